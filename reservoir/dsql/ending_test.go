package dsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// patient gives a busy machine time to answer a request to cancel a statement.
func patient(conns int) func(*dsql.Config) {
	return func(c *dsql.Config) { c.MaxSize, c.CancelGrace, c.CloseTimeout = conns, 20*time.Second, 20*time.Second }
}

// both are a pool and a sql.DB of one cluster.
func both(t *testing.T, c *dsql.Cluster) (*dsql.Pool, *sql.DB) {
	t.Helper()
	pool, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	db, err := c.OpenDB(dsql.View{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return pool, db
}

func TestATimeoutStopsTheStatementAndKeepsTheConnection(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, patient(1))
	pool, db := both(t, c)
	ctx := within(t, 60*time.Second)
	const slow = "select /* stopped */ 1 from pg_sleep(20)"
	var n int
	calls := map[string]func(context.Context) error{
		"pgx Exec":     func(ctx context.Context) error { _, err := pool.Exec(ctx, slow); return err },
		"pgx Query":    func(ctx context.Context) error { rows, _ := pool.Query(ctx, slow); return drain(rows) },
		"pgx QueryRow": func(ctx context.Context) error { return pool.QueryRow(ctx, slow+" where $1 = 1", 1).Scan(&n) },
		"pgx batch": func(ctx context.Context) error {
			return inBatch(ctx, pool, slow+" where $1 = 1", 1, func(b pgx.BatchResults) error { return b.QueryRow().Scan(&n) })
		},
		"pgx in a transaction": func(ctx context.Context) error {
			return pool.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, slow); return err })
		},
		"sql Exec":     func(ctx context.Context) error { _, err := db.ExecContext(ctx, slow); return err },
		"sql QueryRow": func(ctx context.Context) error { return db.QueryRowContext(ctx, slow).Scan(&n) },
		"sql in a transaction": func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, slow)
			require.Error(t, tx.Rollback(), "database/sql has rolled back")
			return err
		},
	}
	require.NoError(t, pool.Ping(ctx))
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			before := g.Stats().Cancels
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := call(short)
			require.Less(t, time.Since(began), 10*time.Second, "the statement was stopped")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, dsql.ErrLost)
			require.NoError(t, pool.Ping(ctx))
			require.NotEqual(t, before, g.Stats().Cancels)
			require.Equal(t, 1, g.Stats().Admitted, "it is the same connection")
		})
	}
	require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_stat_activity where query like 'select /* stopped */%' and state = 'active' and pid <> pg_backend_pid()").Scan(&n))
	require.Zero(t, n)
}

func TestAStormOfTimeoutsCostsNoOpens(t *testing.T) {
	const size, workers, each = 4, 8, 15
	g := startGate(t, nil)
	c := newCluster(t, g, patient(size))
	pool, db := both(t, c)
	require.NoError(t, c.WaitReady(within(t, 30*time.Second), size))
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if i%2 == 0 {
					_, _ = pool.Exec(ctx, "select pg_sleep(0.1)")
				} else {
					_, _ = db.ExecContext(ctx, "select pg_sleep(0.1)")
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Positive(t, g.Stats().Cancels)
	require.EqualValues(t, size, c.Stats().Opened)
	for range 2 * size {
		require.NoError(t, pool.Ping(within(t, 30*time.Second)))
	}
	require.Equal(t, size, g.Stats().Admitted)
}

// A statement after one that was cancelled is not hit by that request, however
// close to its own end the one before was.
func TestALateCancelHitsNoOtherStatement(t *testing.T) {
	g := startGate(t, nil)
	pool := newPool(t, g, patient(1))
	long := within(t, 90*time.Second)
	conn, err := pool.Acquire(long)
	require.NoError(t, err)
	cancelled, completed := 0, 0
	for i := range 150 {
		limit := 5 * time.Millisecond
		ctx, cancel := context.WithTimeout(long, limit)
		_, err := conn.Exec(ctx, fmt.Sprintf("select pg_sleep(%f)", (limit-2*time.Millisecond+time.Duration(i%40)*100*time.Microsecond).Seconds()))
		cancel()
		if err == nil {
			completed++
		} else {
			cancelled++
		}
		var n int
		require.NoError(t, conn.QueryRow(long, "select 1 from pg_sleep(0.002)").Scan(&n), "run %d", i)
	}
	t.Logf("%d cancelled, %d completed, %d requests", cancelled, completed, g.Stats().Cancels)
	conn.Release()
	require.Equal(t, 1, g.Stats().Admitted)
}

func TestAStatementThatDoesNotEndInTimeCostsItsConnection(t *testing.T) {
	g := startGate(t, nil)
	pool := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize, c.CancelGrace, c.CloseTimeout, c.CheckInterval = 1, 200*time.Millisecond, 200*time.Millisecond, -1
	})
	require.NoError(t, pool.Ping(within(t, 20*time.Second)))
	require.Equal(t, 1, g.FreezeAll())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := pool.Exec(ctx, "select 1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 10*time.Second)
	require.NoError(t, pool.Ping(within(t, 20*time.Second)))
	require.Equal(t, 2, g.Stats().Admitted)
}

func TestATransactionThatItsContextEndsKeepsItsConnection(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, patient(1))
	pool, db := both(t, c)
	ctx := within(t, 60*time.Second)
	for _, s := range []string{"drop table if exists left_open", "create table left_open (n int)"} {
		_, err := pool.Exec(ctx, s)
		require.NoError(t, err)
	}
	const insert = "insert into left_open values (1)"
	for name, use := range map[string]func(ctx context.Context, end func()){
		"database/sql, between statements": func(short context.Context, end func()) {
			tx, err := db.BeginTx(short, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(short, insert)
			require.NoError(t, err)
			end()
			reach(t, "database/sql rolls back", func() bool { return c.Stats().Reservoir.InUse == 0 })
			require.Error(t, tx.Commit())
		},
		"pgx, Rollback": func(short context.Context, end func()) {
			tx, err := pool.Begin(short)
			require.NoError(t, err)
			_, err = tx.Exec(short, insert)
			require.NoError(t, err)
			end()
			require.NoError(t, tx.Rollback(short))
			_, err = tx.Exec(ctx, insert)
			require.ErrorIs(t, err, pgx.ErrTxClosed, "the connection may be another's")
			require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
		},
		"pgx, Commit": func(short context.Context, end func()) {
			tx, err := pool.Begin(short)
			require.NoError(t, err)
			_, err = tx.Exec(short, insert)
			require.NoError(t, err)
			end()
			err = tx.Commit(short)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, dsql.ErrCommitUnknown)
		},
		"pgx, on a connection of one's own": func(short context.Context, end func()) {
			conn, err := pool.Acquire(short)
			require.NoError(t, err)
			tx, err := conn.Begin(short)
			require.NoError(t, err)
			_, err = tx.Exec(short, insert)
			require.NoError(t, err)
			end()
			require.NoError(t, tx.Rollback(short))
			require.NoError(t, conn.Ping(ctx), "it is ended when Rollback returns")
			require.EqualValues(t, 'I', conn.Conn().PgConn().TxStatus())
			conn.Release()
		},
		"pgx, released without an end": func(short context.Context, end func()) {
			conn, err := pool.Acquire(short)
			require.NoError(t, err)
			tx, err := conn.Begin(short)
			require.NoError(t, err)
			_, err = tx.Exec(short, insert)
			require.NoError(t, err)
			end()
			conn.Release()
		},
		"pgx, InTx": func(short context.Context, end func()) {
			err := pool.InTx(short, func(tx pgx.Tx) error {
				_, err := tx.Exec(short, insert)
				end()
				return err
			})
			require.ErrorIs(t, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				short, end := context.WithCancel(ctx)
				use(short, end)
				end()
				require.Zero(t, count(t, pool, "left_open"))
			}
			require.Equal(t, 1, g.Stats().Admitted)
		})
	}
}

// COMMIT is not cancelled: its answer is awaited.
func TestACommitThatItsContextEndsIsAnswered(t *testing.T) {
	g := startGate(t, nil)
	pool := newPool(t, g, patient(1))
	ctx := within(t, 60*time.Second)
	for _, s := range []string{
		"drop table if exists late_commit", "create table late_commit (n int)",
		"create or replace function late() returns trigger as 'begin perform pg_sleep(0.3); return null; end' language plpgsql",
	} {
		_, err := pool.Exec(ctx, s)
		require.NoError(t, err)
	}
	_, err := pool.Exec(ctx, "do $$ begin create constraint trigger late after insert on late_commit initially deferred for each row execute function late(); end $$")
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "insert into late_commit values (1)")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.NoError(t, tx.Commit(short), "it is committed, and that is known")
	require.Equal(t, 1, count(t, pool, "late_commit"))
	require.Zero(t, g.Stats().Cancels)
	require.Equal(t, 1, g.Stats().Admitted)
}

// Whoever brings another handler to pgx has it, and its requests are dialled.
func TestAHandlerOfTheUsersOwnEndsStatements(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 1
		c.Pgx = func(cc *pgx.ConnConfig) {
			cc.BuildContextWatcherHandler = func(pc *pgconn.PgConn) ctxwatch.Handler {
				return &pgconn.CancelRequestContextWatcherHandler{Conn: pc, DeadlineDelay: 20 * time.Second}
			}
		}
	})
	ctx := within(t, 30*time.Second)
	require.NoError(t, p.WaitReady(ctx, 1))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := p.Exec(short, "select pg_sleep(10)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, p.Ping(ctx))
	require.Equal(t, 1, g.Stats().Cancels)
	require.Equal(t, 1, g.Stats().Admitted)
}

// A forced Close leaves no repair behind (goleak looks in TestMain).
func TestCloseEndsRepairs(t *testing.T) {
	g := startGate(t, nil)
	p, err := dsql.NewPool(t.Context(), config(g, func(c *dsql.Config) { c.MaxSize = 1 }))
	require.NoError(t, err)
	ctx := within(t, 20*time.Second)
	conn, err := p.Acquire(ctx)
	require.NoError(t, err)
	_, err = conn.Begin(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, g.FreezeAll())
	conn.Release()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	began := time.Now()
	require.Error(t, p.Close(ended))
	require.Less(t, time.Since(began), 15*time.Second)
	require.Zero(t, p.Stats().Leases.InUse)
}

// A lateEnd has ended, but does not say so the first time.
type lateEnd struct {
	context.Context
	asked int
}

func (c *lateEnd) Err() error {
	if c.asked++; c.asked == 1 {
		return nil
	}
	return c.Context.Err()
}

// What follows a COMMIT or ROLLBACK that could not be sent is no part of its
// transaction.
func TestATransactionWhoseEndWasNotSentIsOver(t *testing.T) {
	g := startGate(t, nil)
	pool := newPool(t, g, patient(1))
	ctx := within(t, 30*time.Second)
	_, err := pool.Exec(ctx, "drop table if exists unsent")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "create table unsent (n int)")
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for i, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(&lateEnd{Context: ended}) },
		func(tx pgx.Tx) error { return tx.Rollback(&lateEnd{Context: ended}) },
	} {
		conn, err := pool.Acquire(ctx)
		require.NoError(t, err)
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "insert into unsent values (100)")
		require.NoError(t, err)
		err = end(tx)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, dsql.ErrCommitUnknown)
		_, err = conn.Exec(ctx, "insert into unsent values (1)")
		require.NoError(t, err)
		conn.Release()
		require.Equal(t, i+1, count(t, pool, "unsent"))
	}
	require.Equal(t, 1, g.Stats().Admitted)
}

// A server may act on a request to cancel a statement after it has taken the request
// and after the statement has ended. What comes next must not be the user's.
func TestARequestToCancelThatTakesEffectLateHitsNoStatementOfAnybodys(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, patient(1))
	pool, db := both(t, c)
	ctx := within(t, 60*time.Second)
	require.NoError(t, pool.Ping(ctx))
	const ends = "select 1 from pg_sleep(0.3)" // before anybody stops it
	var n int
	for name, next := range map[string]func() error{
		"Exec":     func() error { _, err := pool.Exec(ctx, "select 1"); return err },
		"Query":    func() error { rows, _ := pool.Query(ctx, "select 1"); return drain(rows) },
		"QueryRow": func() error { return pool.QueryRow(ctx, "select 1").Scan(&n) },
		"batch": func() error {
			return inBatch(ctx, pool, "select 1 where $1 = 1", 1, func(b pgx.BatchResults) error { return b.QueryRow().Scan(&n) })
		},
		"transaction": func() error {
			return pool.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err })
		},
		"database/sql": func() error { return db.QueryRowContext(ctx, "select 1").Scan(&n) },
		"prepared": func() error {
			s, err := db.PrepareContext(ctx, "select 1")
			if err != nil {
				return err
			}
			return s.Close()
		},
		"ping": func() error { return pool.Ping(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			g.DelayCancels(1)
			before := g.Stats().Cancels
			conn, err := pool.Acquire(ctx)
			require.NoError(t, err)
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err = conn.Exec(short, ends)
			require.NoError(t, err, "it has ended")
			require.Equal(t, before+1, g.Stats().Cancels)
			conn.Release()
			require.NoError(t, next())
			require.Equal(t, 1, g.Stats().Admitted)
		})
	}
	t.Run("of one's own connection", func(t *testing.T) {
		conn, err := pool.Acquire(ctx)
		require.NoError(t, err)
		defer conn.Release()
		for range 3 {
			g.DelayCancels(1)
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			_, err = conn.Exec(short, ends)
			cancel()
			require.NoError(t, err)
			require.NoError(t, conn.QueryRow(ctx, "select 1").Scan(&n))
		}
	})
}

// A request to cancel a statement is dialled by the user's function, too, which may
// ignore its context, or panic.
func TestADialThatHangsOrPanicsDoesNotHoldATimeout(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	for name, fail := range map[string]func(){"hangs": func() { <-hold }, "panics": func() { panic("the user's") }} {
		t.Run(name, func(t *testing.T) {
			g := startGate(t, nil)
			var dials atomic.Int32
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize = 1
				c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 2 {
						fail()
					}
					return g.Dial(ctx, network, address)
				}
			})
			ctx := within(t, 20*time.Second)
			require.NoError(t, p.Ping(ctx))
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := p.Exec(short, "select pg_sleep(30)")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, p.Ping(ctx))
			require.Equal(t, 2, g.Stats().Admitted, "another connection")
		})
	}
}
