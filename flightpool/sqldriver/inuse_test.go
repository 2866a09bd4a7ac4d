package sqldriver

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// At driver.ErrBadConn database/sql closes a *sql.Conn in the call itself, which waits for
// the rows and the transaction that the caller has open: for ever, and past any context.
func TestACallOnALostSessionDoesNotWaitForWhatItsCallerHasOpen(t *testing.T) {
	opens := map[string]func(t *testing.T, conn *sql.Conn) (end func() error){
		"rows": func(t *testing.T, conn *sql.Conn) func() error {
			rows, err := conn.QueryContext(t.Context(), "SELECT 1") //nolint:sqlclosecheck,rowserrcheck // by end
			require.NoError(t, err)
			return rows.Close
		},
		"a transaction": func(t *testing.T, conn *sql.Conn) func() error {
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return tx.Rollback
		},
		"rows of a transaction": func(t *testing.T, conn *sql.Conn) func() error {
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			rows, err := tx.QueryContext(t.Context(), "SELECT 1") //nolint:sqlclosecheck,rowserrcheck // by end
			require.NoError(t, err)
			return func() error { return errors.Join(rows.Close(), tx.Rollback()) }
		},
	}
	calls := map[string]func(ctx context.Context, conn *sql.Conn) error{
		"Exec": func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, "SELECT 2")
			return err
		},
		"Query": func(ctx context.Context, conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, "SELECT 2") //nolint:sqlclosecheck // there are none
			if err == nil {
				err = rows.Err()
			}
			return err
		},
		"Prepare": func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.PrepareContext(ctx, "SELECT 2") //nolint:sqlclosecheck // there is none
			return err
		},
		"Ping":  func(ctx context.Context, conn *sql.Conn) error { return conn.PingContext(ctx) },
		"Begin": func(ctx context.Context, conn *sql.Conn) error { _, err := conn.BeginTx(ctx, nil); return err },
	}
	for opened, leaveOpen := range opens {
		for name, call := range calls {
			synctest.Test(t, func(t *testing.T) {
				s, db := openedOn(t, testserver.Strict())
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				end := leaveOpen(t, conn)
				s.Faults().KillConns()
				synctest.Wait()
				require.Error(t, call(t.Context(), conn), "%s beside %s", name, opened)
				_ = end()
				_ = conn.Close()
			})
		}
	}
}

// openedOn has one connection to a server of the profile, as database/sql sees it.
func openedOn(t *testing.T, profile testserver.Profile) (*testserver.Server, *sql.DB) {
	t.Helper()
	s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	p, err := flightpool.New(t.Context(), "grpc://127.0.0.1:1", flightpool.Config{MaxSize: 1, Dialer: s.Dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	db := OpenDB(p)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return s, db
}
