package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// At driver.ErrBadConn database/sql closes a *sql.Conn in the call itself, which waits for
// the rows and the transaction that the caller has open: for ever, and past any context.
func TestACallOnABadConnectionDoesNotWaitForWhatItsCallerHasOpen(t *testing.T) {
	type call struct {
		fails string
		make  func(ctx context.Context, conn *sql.Conn) error
	}
	calls := map[string]call{
		"Exec": {"X", func(ctx context.Context, conn *sql.Conn) error { _, err := conn.ExecContext(ctx, "X"); return err }},
		"Query": {"X", func(ctx context.Context, conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, "X") //nolint:sqlclosecheck // there are none
			if err == nil {
				err = rows.Err()
			}
			return err
		}},
		"Prepare": {"prepare", func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.PrepareContext(ctx, "X") //nolint:sqlclosecheck // there is none
			return err
		}},
		"Ping":  {"ping", func(ctx context.Context, conn *sql.Conn) error { return conn.PingContext(ctx) }},
		"Begin": {"BEGIN", func(ctx context.Context, conn *sql.Conn) error { _, err := conn.BeginTx(ctx, nil); return err }},
		"Commit": {"COMMIT", func(ctx context.Context, conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Commit()
		}},
		"the close of rows": {"close", func(ctx context.Context, conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, "Y")
			if err != nil {
				return err
			}
			return errors.Join(rows.Close(), rows.Err())
		}},
		"Raw": {"", func(_ context.Context, conn *sql.Conn) error {
			return sqlconn.Raw(conn, func(any) error { return driver.ErrBadConn })
		}},
	}
	opens := map[string]func(t *testing.T, conn *sql.Conn) (end func() error){
		"rows": func(t *testing.T, conn *sql.Conn) func() error {
			rows, err := conn.QueryContext(t.Context(), "Z") //nolint:sqlclosecheck,rowserrcheck // by end
			require.NoError(t, err)
			return rows.Close
		},
		"a transaction": func(t *testing.T, conn *sql.Conn) func() error {
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return tx.Rollback
		},
	}
	for opened, leaveOpen := range opens {
		for name, c := range calls {
			bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
				conn := open(t, target)
				lent, err := conn.Lend(t.Context())
				require.NoError(t, err)
				end := leaveOpen(t, lent)
				s.session(0).fail[c.fails] = driver.ErrBadConn
				err = c.make(t.Context(), lent)
				require.True(t, sqlconn.Broken(err), "%s with %s open: %v", name, opened, err)
				require.ErrorContains(t, err, driver.ErrBadConn.Error())
				delete(s.session(0).fail, c.fails)
				_ = end()
				require.NoError(t, sqlconn.Return(t.Context(), lent))
				require.NoError(t, target.Close(conn))
			})
		}
	}
}

// A driver that takes one call at a time answers driver.ErrBadConn, or that it is not valid,
// while rows are open: nothing was sent, and the rows go on.
func TestACallThatADriverDoesNotTakeWhileRowsAreOpenCostsNoConnection(t *testing.T) {
	for name, refuse := range map[string]func(s *session) (context.Context, error){
		"it answers ErrBadConn": func(s *session) (context.Context, error) {
			s.fail["X"] = driver.ErrBadConn
			return context.Background(), driver.ErrBadConn
		},
		"the context has ended before": func(s *session) (context.Context, error) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			s.fail["X"] = ctx.Err()
			return ctx, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told []error
			cfg := sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = append(told, err) }}
			bubble(t, cfg, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
				c := open(t, target)
				conn, err := c.Lend(t.Context())
				require.NoError(t, err)
				rows, err := conn.QueryContext(t.Context(), "SELECT 1")
				require.NoError(t, err)
				session := s.session(0)
				ctx, want := refuse(session)
				session.setBusy(true)
				_, err = conn.ExecContext(ctx, "X")
				require.ErrorContains(t, err, want.Error())
				n := 0
				for rows.Next() {
					n++
				}
				session.setBusy(false)
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
				require.Equal(t, 2, n)
				_, err = conn.ExecContext(t.Context(), "UPDATE t SET a = 1")
				require.NoError(t, err)
				require.NoError(t, sqlconn.Return(t.Context(), conn))
				require.NoError(t, c.Lost())
				require.NoError(t, target.Close(c))
				require.Empty(t, told, "nothing was to be stopped")
			})
		})
	}
}

// Some drivers close the connection at such a call. That is no fault of the server's, and
// what the server computes for the rows is stopped.
func TestAConnectionThatADriverClosesForACallBesideRowsIsNoFaultOfTheServers(t *testing.T) {
	for _, read := range []bool{true, false} {
		var told []error
		cfg := sqlconn.Config{Kind: sqlconn.MySQL, Stopped: func(err error) { told = append(told, err) }}
		bubble(t, cfg, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			session := s.session(0)
			session.fail["next"] = driver.ErrBadConn
			rows, err := conn.QueryContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			session.fail["X"] = driver.ErrBadConn
			session.setBusy(true)
			_, err = conn.ExecContext(t.Context(), "X")
			require.Error(t, err)
			for read && rows.Next() {
				continue
			}
			require.Equal(t, read, errors.Is(rows.Err(), driver.ErrBadConn))
			require.NoError(t, rows.Close())
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.Error(t, target.Reset(t.Context(), c))
			require.ErrorContains(t, c.Lost(), "while rows were open")
			require.False(t, sqlconn.Broken(c.Lost()), "%v", c.Lost())
			require.NoError(t, target.Close(c))
			require.Equal(t, []error{nil}, told)
		})
	}
}

// What rows themselves say is believed.
func TestRowsOfABadConnectionCostIt(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		s.session(0).fail["next"] = io.ErrUnexpectedEOF
		rows, err := conn.QueryContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
		for rows.Next() {
			continue
		}
		require.ErrorIs(t, rows.Err(), io.ErrUnexpectedEOF)
		require.NoError(t, rows.Close())
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.ErrorIs(t, c.Lost(), io.ErrUnexpectedEOF)
		require.NoError(t, target.Close(c))
	})
}

// Nor does the end of a transaction after another call was given up, which the driver is
// still at work on.
func TestTheEndOfATransactionBesideACallThatWasGivenUpDoesNotWaitForRows(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		bubble(t, sqlconn.Config{QueryTimeout: time.Second}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			rows, err := conn.QueryContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
			tx, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			other, err := conn.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			s.stuckEnds = make(chan struct{})
			require.ErrorIs(t, other.Commit(), context.DeadlineExceeded)
			require.ErrorContains(t, end(tx), driver.ErrBadConn.Error(), name)
			require.NoError(t, rows.Err())
			_ = rows.Close()
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			close(s.stuckEnds)
			require.NoError(t, target.Close(c))
		})
	}
}

// The cause of a context may be what a call on another database has failed with, as in an errgroup.
func TestTheErrBadConnOfACauseIsAnothers(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context, conn *sql.Conn) error{
		"Exec": func(ctx context.Context, conn *sql.Conn) error { _, err := conn.ExecContext(ctx, "X"); return err },
		"Query": func(ctx context.Context, conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, "X") //nolint:sqlclosecheck // there are none
			if err == nil {
				err = rows.Err()
			}
			return err
		},
		"Begin": func(ctx context.Context, conn *sql.Conn) error { _, err := conn.BeginTx(ctx, nil); return err },
	} {
		bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			s.session(0).fail["X"], s.session(0).fail["BEGIN"] = context.Canceled, context.Canceled
			s.session(0).ends = func() { cancel(fmt.Errorf("another database: %w", driver.ErrBadConn)) }
			err = run(ctx, conn)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, driver.ErrBadConn, name)
			require.NoError(t, conn.PingContext(t.Context()), "%s: the *sql.Conn is its caller's still", name)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.NoError(t, target.Close(c))
		})
	}
}
