package sqldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// The cause of a context may be what a call on another database has failed with, as in an errgroup. database/sql would close
// the *sql.Conn at its driver.ErrBadConn, and wait there for a transaction of the caller's own, for ever.
func TestTheErrBadConnOfACauseIsAnothers(t *testing.T) {
	type call func(ctx context.Context, end func(), s *testserver.Server, c *conn) error
	var pool *flightpool.FlightSQLPool
	later := func(ctx context.Context, end func(), run func(ctx context.Context) error) error {
		time.AfterFunc(time.Second, end)
		return run(ctx)
	}
	for name, run := range map[string]call{
		"Exec": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			return later(ctx, end, func(ctx context.Context) error {
				_, err := c.ExecContext(ctx, "SELECT sleep('1h')", nil)
				return err
			})
		},
		"Query": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			return later(ctx, end, func(ctx context.Context) error {
				_, err := c.QueryContext(ctx, "SELECT sleep('1h')", nil)
				return err
			})
		},
		"Next": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			rows, err := c.QueryContext(ctx, "SELECT * FROM generate(1000, 1)", nil)
			require.NoError(t, err)
			end()
			synctest.Wait()
			for dest := make([]driver.Value, 1); err == nil; {
				err = rows.Next(dest)
			}
			require.NoError(t, rows.Close())
			return err
		},
		"Rows.Close": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			rows, err := c.QueryContext(ctx, "SELECT * FROM generate(1000, 1)", nil)
			require.NoError(t, err)
			end()
			synctest.Wait()
			return rows.Close()
		},
		"Prepare": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			end()
			_, err := c.PrepareContext(ctx, "SELECT 1")
			return err
		},
		"Ping": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			end()
			return c.Ping(ctx)
		},
		"BeginTx": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			end()
			_, err := c.BeginTx(ctx, driver.TxOptions{})
			return err
		},
		"Commit": func(ctx context.Context, end func(), s *testserver.Server, c *conn) error {
			tx, err := c.BeginTx(ctx, driver.TxOptions{})
			require.NoError(t, err)
			s.Faults().Set(testserver.Fault{On: testserver.OnEnd, Do: testserver.Hang()})
			return later(ctx, end, func(context.Context) error { return tx.Commit() })
		},
		"Rollback": func(ctx context.Context, end func(), s *testserver.Server, c *conn) error {
			tx, err := c.BeginTx(ctx, driver.TxOptions{})
			require.NoError(t, err)
			s.Faults().Set(testserver.Fault{On: testserver.OnEnd, Do: testserver.Hang()})
			return later(ctx, end, func(context.Context) error { return tx.Rollback() })
		},
		"Rollback behind its caller": func(ctx context.Context, end func(), _ *testserver.Server, c *conn) error {
			tx, err := c.BeginTx(ctx, driver.TxOptions{})
			require.NoError(t, err)
			end()
			return tx.Rollback()
		},
		"a call behind a rollback": func(ctx context.Context, end func(), s *testserver.Server, c *conn) error {
			own, stop := context.WithCancel(context.WithoutCancel(ctx))
			defer stop()
			tx, err := c.BeginTx(own, driver.TxOptions{})
			require.NoError(t, err)
			s.Faults().Set(testserver.Fault{On: testserver.OnEnd, Do: testserver.Hang()})
			stop()
			_ = tx.Rollback()
			return later(ctx, end, func(ctx context.Context) error {
				_, err := c.ExecContext(ctx, "SELECT 1", nil)
				return err
			})
		},
		"Connect": func(ctx context.Context, end func(), _ *testserver.Server, _ *conn) error {
			end()
			_, err := (&dsnConnector{}).Connect(ctx)
			require.NotErrorIs(t, err, driver.ErrBadConn)
			_, err = NewConnector(pool).Connect(ctx)
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, db := openedOn(t, testserver.Strict())
			opened, err := NewConnector(Pool(db)).Connect(t.Context())
			require.NoError(t, err)
			c := opened.(*conn)
			pool = Pool(db)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			err = run(ctx, func() { cancel(fmt.Errorf("another database: %w", driver.ErrBadConn)) }, s, c)
			require.ErrorIs(t, err, context.Canceled, name)
			require.ErrorContains(t, err, driver.ErrBadConn.Error(), name)
			require.NotErrorIs(t, err, driver.ErrBadConn, name)
			s.Faults().Clear()
			require.NoError(t, c.Close())
		})
	}
}
