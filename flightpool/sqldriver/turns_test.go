package sqldriver

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// shortTimed is a *sql.Conn whose calls have 100 ms each, on a server that needs longer to stop a statement.
func shortTimed(t *testing.T) (s *testserver.Server, c *sql.Conn, end func()) {
	s, err := testserver.Start(testserver.Options{Profile: testserver.Strict(), Listen: testserver.InMemory})
	require.NoError(t, err)
	p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{Dialer: s.Dial, MaxSize: 1, DefaultQueryTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	db := OpenDB(p)
	c, err = db.Conn(t.Context())
	require.NoError(t, err)
	s.Faults().Set(testserver.Fault{On: testserver.OnCancel, Do: testserver.Delay(500 * time.Millisecond)})
	return s, c, func() {
		_ = c.Close()
		_ = db.Close()
		_ = p.Close(context.Background())
		_ = s.Close()
	}
}

// What has taken all the time of a call is stopped behind its caller. A rollback waits for that, however short the time of
// a call is.
func TestTheTimeOfACallEndsNoRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, end := shortTimed(t)
		defer end()
		tx, err := c.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT sleep('1h')")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, tx.Rollback())
		_, err = c.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
	})
}

// Statements that are closed are closed on the server by the next call that comes to its turn. One that does not waits no
// longer for how many they are.
func TestStatementsAreClosedByTheCallThatComesToItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, end := shortTimed(t)
		defer end()
		var stmts []*sql.Stmt
		for range 5 {
			stmt, err := c.PrepareContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			stmts = append(stmts, stmt)
		}
		prepared := s.Ledger().Snapshot().Prepared
		_, err := c.ExecContext(t.Context(), "SELECT sleep('1h')")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, stmt := range stmts {
			require.NoError(t, stmt.Close())
		}
		start := time.Now()
		_, err = c.ExecContext(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
		time.Sleep(time.Minute)
		_, err = c.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
		require.Equal(t, prepared-len(stmts), s.Ledger().Snapshot().Prepared)
	})
}
