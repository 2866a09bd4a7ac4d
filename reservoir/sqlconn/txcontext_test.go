package sqlconn_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// lend lends a connection to a fake server in real time: database/sql waits with locks, which virtual time does not know.
func lend(t *testing.T, cfg sqlconn.Config) *sql.Conn {
	wrapper := sqlconn.NewWrapper()
	cfg.Connector = &server{}
	target, err := sqlconn.New(wrapper, cfg)
	require.NoError(t, err)
	c := open(t, target)
	conn, err := c.Lend(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close() // it is broken
		require.NoError(t, target.Close(c))
		require.NoError(t, wrapper.Close())
	})
	return conn
}

// database/sql waits for the statement of a transaction before it rolls it back. tx.Exec has no context of its own.
func TestTheContextOfATransactionEndsItsStatements(t *testing.T) {
	for name, run := range map[string]func(tx *sql.Tx) error{
		"Exec":            func(tx *sql.Tx) error { _, err := tx.Exec(slow); return err },     //nolint:noctx // on purpose
		"QueryRow":        func(tx *sql.Tx) error { return tx.QueryRow(slow).Scan(new(any)) }, //nolint:noctx // on purpose
		"its own context": func(tx *sql.Tx) error { _, err := tx.ExecContext(t.Context(), slow); return err },
	} {
		t.Run(name, func(t *testing.T) {
			conn := lend(t, sqlconn.Config{QueryTimeout: 5 * time.Second})
			short, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer end()
			tx, err := conn.BeginTx(short, nil)
			require.NoError(t, err)
			began := time.Now()
			require.ErrorIs(t, run(tx), context.DeadlineExceeded)
			require.Less(t, time.Since(began), 4*time.Second)
			require.Error(t, tx.Commit())
		})
	}
}

// What follows a transaction has its own time.
func TestTheContextOfATransactionEndsNothingBehindIt(t *testing.T) {
	conn := lend(t, sqlconn.Config{})
	short, end := context.WithCancel(t.Context())
	tx, err := conn.BeginTx(short, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	end()
	own, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = conn.ExecContext(own, slow)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
