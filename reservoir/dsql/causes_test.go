package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A writeHook is called once with each write that follows its being set.
type writeHook struct {
	net.Conn
	next *atomic.Pointer[func()]
}

func (c writeHook) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if f := c.next.Swap(nil); f != nil {
		(*f)()
	}
	return n, err
}

// In an errgroup the cause of a context is what another call has failed with: an answer of
// the server's, but to somebody else.
func TestTheCauseOfAContextIsNoAnswerToCommit(t *testing.T) {
	g := startGate(t, nil)
	var next atomic.Pointer[func()]
	c := newCluster(t, g, func(c *dsql.Config) {
		c.MaxSize, c.CheckInterval, c.CancelGrace, c.CloseTimeout = 1, -1, 50*time.Millisecond, 200*time.Millisecond
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := g.Dial(ctx, network, address)
			return writeHook{conn, &next}, err
		}
	})
	pool, db := both(t, c)
	for name, cause := range map[string]error{
		"another's conflict":  &pgconn.PgError{Code: "40001", Severity: "ERROR"},
		"another's violation": &pgconn.PgError{Code: "23505", Severity: "ERROR"},
		"another's end":       pgx.ErrTxClosed,
	} {
		calls := map[string]func(ctx context.Context, armed func()) error{
			"pgx": func(ctx context.Context, armed func()) error {
				return pool.InTx(ctx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "select 1")
					armed()
					return err
				})
			},
			"sql": func(ctx context.Context, armed func()) error {
				return dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "select 1")
					armed()
					return err
				})
			},
		}
		for by, run := range calls {
			for how, lose := range map[string]func() int{"silent": g.FreezeAll, "lost": g.DropAll} {
				t.Run(by+"/"+how+"/"+name, func(t *testing.T) {
					ctx, end := context.WithCancelCause(within(t, 30*time.Second))
					defer end(nil)
					runs := 0
					err := run(ctx, func() {
						runs++
						sent := func() {
							end(cause)
							lose()
						}
						require.Positive(t, g.FreezeAll()) // those before, too
						next.Store(&sent)
					})
					require.ErrorIs(t, err, dsql.ErrCommitUnknown)
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, cause)
					require.False(t, dsql.IsConflict(err))
					require.Equal(t, 1, runs)
				})
			}
		}
	}
}

// Whatever ends by its context says how that has ended, and the cause that its owner has
// given for that.
func TestWhatItsContextEndsSaysHowAndWhy(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	pool, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	ctx := within(t, 60*time.Second)
	why := errors.New("the request was withdrawn")
	check := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.Equal(t, 1, strings.Count(err.Error(), why.Error()), "%v", err)
	}
	withdrawn := func(after time.Duration) context.Context {
		ctx, end := context.WithCancelCause(ctx)
		if after == 0 {
			end(why)
		} else {
			time.AfterFunc(after, func() { end(why) })
		}
		return ctx
	}
	for name, call := range causeCalls(pool) {
		t.Run(name, func(t *testing.T) {
			check(t, call(withdrawn(0)))
			held, err := pool.Acquire(ctx)
			require.NoError(t, err)
			check(t, call(withdrawn(20*time.Millisecond)))
			held.Release()
		})
	}
	t.Run("Begin of a connection", func(t *testing.T) {
		held, err := pool.Acquire(ctx)
		require.NoError(t, err)
		defer held.Release()
		_, err = held.Begin(withdrawn(0))
		check(t, err)
		tx, err := held.Begin(ctx)
		require.NoError(t, err)
		check(t, tx.Commit(withdrawn(0)))
	})
	t.Run("Close of a view", func(t *testing.T) {
		part, err := c.NewPool(dsql.View{})
		require.NoError(t, err)
		held, err := part.Acquire(ctx)
		require.NoError(t, err)
		check(t, part.Close(withdrawn(0)))
		held.Release()
	})
	t.Run("RetryOCC", func(t *testing.T) {
		conflict := &pgconn.PgError{Code: "40001"}
		ended := withdrawn(20 * time.Millisecond)
		err := dsql.OCCPolicy{Attempts: -1, Pause: time.Hour, MaxPause: time.Hour}.Do(ended, func(context.Context) error { return conflict })
		check(t, err)
		require.ErrorIs(t, err, conflict)
		require.NotContains(t, err.Error(), "\n")
	})
}

// causeCalls are calls that borrow a connection.
func causeCalls(pool *dsql.Pool) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := pool.Acquire(ctx); return err },
		"Exec":    func(ctx context.Context) error { _, err := pool.Exec(ctx, "select 1"); return err },
		"Begin":   func(ctx context.Context) error { _, err := pool.Begin(ctx); return err },
		"InTx":    func(ctx context.Context) error { return pool.InTx(ctx, func(pgx.Tx) error { return nil }) },
		"CopyFrom": func(ctx context.Context) error {
			_, err := pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"n"}, pgx.CopyFromRows(nil))
			return err
		},
		"Ping": pool.Ping,
	}
}

// What the function of InTx has committed by itself may be stored, whatever has ended since.
func TestInTxOfDatabaseSQLKnowsWhatItsFunctionHasCommitted(t *testing.T) {
	g := startGate(t, nil)
	db := openDB(t, g, nil)
	for name, c := range map[string]struct {
		ends    func(tx *sql.Tx, end func()) error
		unknown bool
	}{
		"commits":                              {func(tx *sql.Tx, _ func()) error { return tx.Commit() }, true},
		"commits, and the context ends":        {func(tx *sql.Tx, end func()) error { defer end(); return tx.Commit() }, true},
		"commits, fails, and the context ends": {func(tx *sql.Tx, end func()) error { defer end(); return errors.Join(tx.Commit(), errors.New("more")) }, true},
		"the context ends":                     {func(_ *sql.Tx, end func()) error { end(); return nil }, false},
		"rolls back, and the context ends":     {func(tx *sql.Tx, end func()) error { defer end(); return tx.Rollback() }, false},
		"a commit is refused, and the context ends": {func(tx *sql.Tx, end func()) error {
			defer end()
			g.FailCommits(1, "23505")
			return tx.Commit()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(within(t, 30*time.Second))
			defer end()
			err := dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "select 1")
				require.NoError(t, err)
				return c.ends(tx, end)
			})
			require.Error(t, err)
			require.Equal(t, c.unknown, errors.Is(err, dsql.ErrCommitUnknown), "%v", err)
		})
	}
}
