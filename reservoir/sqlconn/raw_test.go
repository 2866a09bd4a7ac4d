package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// To database/sql a function that does not return is driver.ErrBadConn, at which it waits for
// what its caller has open: for ever.
func TestRawWhoseFunctionDoesNotReturnDoesNotWaitForWhatItsCallerHasOpen(t *testing.T) {
	opens := map[string]func(ctx context.Context, conn *sql.Conn) (end func() error, err error){
		"rows": func(ctx context.Context, conn *sql.Conn) (func() error, error) {
			rows, err := conn.QueryContext(ctx, "Z") //nolint:sqlclosecheck,rowserrcheck // by end
			return rows.Close, err
		},
		"a transaction": func(ctx context.Context, conn *sql.Conn) (func() error, error) {
			tx, err := conn.BeginTx(ctx, nil)
			return tx.Rollback, err
		},
		"nothing": func(context.Context, *sql.Conn) (func() error, error) { return func() error { return nil }, nil },
	}
	for opened, leaveOpen := range opens {
		for name, f := range map[string]func(){"a panic": func() { panic("the borrower's") }, "the end of the goroutine": runtime.Goexit} {
			bubble(t, sqlconn.Config{KeepState: true}, func(t *testing.T, _ *server, target *sqlconn.Lifecycle) {
				c := open(t, target)
				conn, err := c.Lend(t.Context())
				require.NoError(t, err)
				end, err := leaveOpen(t.Context(), conn)
				require.NoError(t, err)
				var panicked any
				returned, ended := false, make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { panicked = recover() }()
					_ = sqlconn.Raw(conn, func(any) error { f(); return nil })
					returned = true
				}()
				<-ended
				require.False(t, returned, "%s with %s open", name, opened)
				require.Equal(t, name == "a panic", panicked == "the borrower's", "%s with %s open", name, opened)
				_ = end()
				require.NoError(t, sqlconn.Return(t.Context(), conn))
				require.ErrorContains(t, c.Lost(), "Raw")
				require.Error(t, target.Reset(t.Context(), c))
				require.NoError(t, target.Close(c))
			})
		}
	}
}

// The driver is at work on a call that was given up: nobody else uses the connection.
func TestRawIsNotCalledBesideACallThatWasGivenUp(t *testing.T) {
	bubble(t, sqlconn.Config{QueryTimeout: time.Second}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		s.stuckEnds = make(chan struct{})
		require.ErrorIs(t, tx.Commit(), context.DeadlineExceeded)
		err = sqlconn.Raw(conn, func(any) error { t.Error("the driver is used"); return nil })
		require.ErrorIs(t, err, driver.ErrBadConn)
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		close(s.stuckEnds)
		synctest.Wait()
		require.NoError(t, target.Close(c))
	})
}
