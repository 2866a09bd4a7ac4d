package dsql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// database/sql waits for the statement of a transaction before it rolls it back. tx.Exec has no context of its own.
func TestTheContextOfATransactionEndsItsStatements(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { patient(1)(c) })
	ctx := within(t, 60*time.Second)
	const long = "select n, pg_sleep(30) from generate_series(1, 2) n"
	for name, run := range map[string]func(tx *sql.Tx) error{
		"Exec":            func(tx *sql.Tx) error { _, err := tx.Exec(long); return err }, //nolint:noctx // on purpose
		"its own context": func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, long); return err },
		"QueryRow":        func(tx *sql.Tx) error { var n int; return tx.QueryRow(long).Scan(&n, new(any)) }, //nolint:noctx // on purpose
		"a prepared statement": func(tx *sql.Tx) error {
			s, err := tx.PrepareContext(ctx, long) //nolint:sqlclosecheck // with the transaction
			if err != nil {
				return err
			}
			_, err = s.ExecContext(ctx)
			return err
		},
	} {
		began := time.Now()
		short, end := context.WithTimeout(ctx, 200*time.Millisecond)
		tx, err := db.BeginTx(short, nil)
		require.NoError(t, err, name)
		err = run(tx)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.Less(t, time.Since(began), 15*time.Second, name)
		require.Error(t, tx.Commit(), name)
		end()
	}
	require.NoError(t, db.PingContext(ctx))
}

// Rows that are read within the time of their transaction come to their end, also behind others.
func TestRowsOfATransactionWithAContextComeWhole(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	short, end := context.WithCancel(within(t, 60*time.Second))
	defer end()
	tx, err := db.BeginTx(short, nil)
	require.NoError(t, err)
	for _, n := range []int{0, 1, 100} {
		rows, err := tx.Query("select repeat('x', 20000), pg_sleep(0.002) from generate_series(1, $1::int)", n) //nolint:noctx // on purpose
		require.NoError(t, err)
		got := 0
		for rows.Next() {
			got++
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		require.Equal(t, n, got)
	}
	require.NoError(t, tx.Commit())
}
