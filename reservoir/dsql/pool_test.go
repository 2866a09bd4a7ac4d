package dsql_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

func TestEveryMethodOfThePoolReleasesItsConnection(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	_, err := p.Exec(ctx, "create table if not exists every_method (n int)")
	require.NoError(t, err)
	_, err = p.Exec(ctx, "delete from every_method")
	require.NoError(t, err)
	broken := errors.New("broken")
	for name, use := range map[string]func() error{
		"Exec":            func() error { _, err := p.Exec(ctx, "insert into every_method values ($1)", 1); return err },
		"Exec that fails": func() error { _, err := p.Exec(ctx, "select 1/0"); return reversed(err) },
		"Query to the end": func() error {
			rows, err := p.Query(ctx, "select n from every_method")
			return errors.Join(err, drain(rows))
		},
		"Query closed early": func() error {
			rows, err := p.Query(ctx, "select generate_series(1, 100000)")
			rows.Next()
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"Query that fails": func() error {
			rows, err := p.Query(ctx, "nonsense")
			return reversed(errors.Join(err, drain(rows)))
		},
		"a Scan that fails": func() error {
			rows, err := p.Query(ctx, "select 'x'")
			require.NoError(t, err)
			rows.Next()
			var n int
			return reversed(rows.Scan(&n))
		},
		"QueryRow":         func() error { var n int; return p.QueryRow(ctx, "select 1").Scan(&n) },
		"QueryRow of none": func() error { var n int; return reversed(p.QueryRow(ctx, "select 1 where false").Scan(&n)) },
		"SendBatch": func() error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			b.Queue("select 2")
			return p.SendBatch(ctx, b).Close()
		},
		"SendBatch with a transaction": func() error {
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{})
			b.Queue("select 1")
			results := p.SendBatch(ctx, b)
			return errors.Join(results.Close(), results.Tx().Commit(ctx))
		},
		"CopyFrom": func() error {
			n, err := p.CopyFrom(ctx, pgx.Identifier{"every_method"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}, {2}}))
			require.EqualValues(t, 2, n)
			return err
		},
		"Begin, Commit":   func() error { tx, err := p.Begin(ctx); return errors.Join(err, tx.Commit(ctx)) },
		"Begin, Rollback": func() error { tx, err := p.Begin(ctx); return errors.Join(err, tx.Rollback(ctx)) },
		"Commit of a failed transaction": func() error {
			tx, err := p.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select 1/0")
			require.Error(t, err)
			require.ErrorIs(t, tx.Commit(ctx), pgx.ErrTxCommitRollback)
			return nil
		},
		"InTx": func() error {
			return p.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1"); return err })
		},
		"InTx that fails": func() error { return reversed(p.InTx(ctx, func(pgx.Tx) error { return broken })) },
		"AcquireFunc":     func() error { return p.AcquireFunc(ctx, func(c *dsql.Conn) error { return c.Ping(ctx) }) },
		"Ping":            func() error { return p.Ping(ctx) },
		"Release twice":   func() error { c, err := p.Acquire(ctx); c.Release(); c.Release(); return err },
		"Discard":         func() error { c, err := p.Acquire(ctx); c.Discard(broken); c.Release(); return err },
		"a tx left open":  func() error { c, err := p.Acquire(ctx); _, _ = c.Begin(ctx); c.Release(); return err },
		"rows left open":  func() error { c, err := p.Acquire(ctx); _, _ = c.Query(ctx, "select 1"); c.Release(); return err },
		"a lost statement": func() error {
			_, err := p.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return reversed(err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, use())
			var status string
			require.NoError(t, p.QueryRow(ctx, "select 'usable'").Scan(&status))
			require.Zero(t, p.Stats().Reservoir.InUse)
		})
	}
}

func reversed(err error) error {
	if err == nil {
		return errors.New("an error was expected")
	}
	return nil
}

func drain(rows pgx.Rows) error {
	for rows.Next() {
	}
	return rows.Err()
}

func TestAFailedAcquireIsTheErrorOfEveryMethod(t *testing.T) {
	p := newPool(t, startGate(t, nil), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Exec(ctx, "select 1")
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	require.ErrorIs(t, err, context.Canceled)
	rows, err := p.Query(ctx, "select 1")
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, rows.Next())
	require.ErrorIs(t, rows.Err(), context.Canceled)
	require.ErrorIs(t, p.QueryRow(ctx, "select 1").Scan(), context.Canceled)
	b := &pgx.Batch{}
	b.Queue("select 1")
	require.ErrorIs(t, p.SendBatch(ctx, b).Close(), context.Canceled)
	_, err = p.CopyFrom(ctx, nil, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = p.Begin(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, p.Ping(ctx), context.Canceled)
}

func TestAConflictRunsAgainAndCommitsOnce(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, nil)
	ctx := within(t, 20*time.Second)
	_, err := p.Exec(ctx, "create table if not exists again (n int)")
	require.NoError(t, err)
	_, err = p.Exec(ctx, "delete from again")
	require.NoError(t, err)
	g.FailCommits(1, "OC000")
	g.FailCommits(1, "OC001")
	runs := 0
	require.NoError(t, p.InTx(ctx, func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(ctx, "insert into again values (1)")
		return err
	}))
	require.Equal(t, 3, runs)
	require.Equal(t, 1, count(t, p, "again"))
}

func TestALostCommitIsUnknownAndDoesNotRunAgain(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, nil)
	ctx := within(t, 20*time.Second)
	_, err := p.Exec(ctx, "create table if not exists once (n int)")
	require.NoError(t, err)
	_, err = p.Exec(ctx, "delete from once")
	require.NoError(t, err)
	g.DropAtCommit(1)
	runs := 0
	err = p.InTx(ctx, func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(ctx, "insert into once values (1)")
		return err
	})
	require.ErrorIs(t, err, dsql.ErrCommitUnknown)
	require.Equal(t, 1, runs)
	require.Equal(t, 1, count(t, p, "once"))
}

func TestACommitThatFailedForSureIsNotUnknown(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, nil)
	ctx := within(t, 20*time.Second)
	g.FailCommits(1, "OC000")
	tx, err := p.Begin(ctx)
	require.NoError(t, err)
	err = tx.Commit(ctx)
	require.NotErrorIs(t, err, dsql.ErrCommitUnknown)
	require.True(t, dsql.IsConflict(err))

	tx, err = p.Begin(ctx)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = tx.Commit(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, dsql.ErrCommitUnknown, "it was not sent")
}

func count(t *testing.T, p *dsql.Pool, table string) (n int) {
	t.Helper()
	require.NoError(t, p.QueryRow(t.Context(), "select count(*) from "+table).Scan(&n))
	return n
}

// Half of the connections are in use when all are lost at once.
func TestMassDropGivesEveryRequestItsErrorAndTheNextSucceeds(t *testing.T) {
	const size = 20
	for how, drop := range map[string]func(*dsqlgate.Gate) int{"closed": (*dsqlgate.Gate).DropAll, "reset": (*dsqlgate.Gate).ResetAll} {
		t.Run(how, func(t *testing.T) {
			g := startGate(t, nil)
			c := newCluster(t, g, func(c *dsql.Config) { c.MaxSize = size })
			pool, err := c.NewPool(dsql.View{})
			require.NoError(t, err)
			db, err := c.OpenDB(dsql.View{})
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			ctx := within(t, 30*time.Second)
			require.NoError(t, c.WaitReady(ctx, size))
			inFlight := make(chan error)
			sleep := fmt.Sprintf("select pg_sleep(20) /* %p */", t) // PostgreSQL goes on running what was dropped
			for i := range size / 2 {
				go func() {
					var err error
					if i%2 == 0 {
						_, err = pool.Exec(ctx, sleep)
					} else {
						_, err = db.ExecContext(ctx, sleep)
					}
					inFlight <- err
				}()
			}
			running(t, pool, sleep, size/2)
			require.Equal(t, size, drop(g))
			for range size / 2 {
				require.Error(t, <-inFlight)
			}
			require.NoError(t, pool.Ping(ctx))
			require.NoError(t, db.PingContext(ctx))
			var held []*dsql.Conn
			for range size { // all at once, or those that were opened first would be lent again, and the dead lie below them
				conn, err := pool.Acquire(ctx)
				require.NoError(t, err)
				require.NoError(t, conn.Ping(ctx), "the dead are not lent")
				held = append(held, conn)
			}
			for _, conn := range held {
				conn.Release()
			}
			require.Equal(t, 2*size, g.Stats().Attempts, "each lost connection is opened once: no storm")
			require.Empty(t, g.Stats().Refused)
		})
	}
}

// running waits until the server runs a statement so many times.
func running(t *testing.T, p *dsql.Pool, statement string, n int) {
	t.Helper()
	reach(t, "the statements run", func() bool {
		return count(t, p, "pg_stat_activity where state = 'active' and query = '"+statement+"'") == n
	})
}

func TestASilentConnectionIsFoundByItsPing(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize, c.CheckInterval, c.CheckTimeout, c.CloseTimeout = 1, 50*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	})
	ctx := within(t, 30*time.Second)
	require.NoError(t, p.WaitReady(ctx, 1))
	require.Equal(t, 1, g.FreezeAll())
	reach(t, "the ping finds it", func() bool { return p.Stats().Reservoir.CheckFailures > 0 })
	require.NoError(t, p.Ping(ctx))
}

func TestCloseByForceLeavesTheBorrowerAnError(t *testing.T) {
	g := startGate(t, nil)
	p, err := dsql.NewPool(t.Context(), config(g, nil))
	require.NoError(t, err)
	c, err := p.Acquire(within(t, 10*time.Second))
	require.NoError(t, err)
	running := make(chan error)
	go func() {
		_, err := c.Exec(context.WithoutCancel(t.Context()), "select pg_sleep(20)")
		c.Release()
		running <- err
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, p.Close(ended))
	require.Error(t, <-running)
	_, err = p.Acquire(t.Context())
	require.ErrorIs(t, err, dsql.ErrClosed)
	reach(t, "no connection is left", func() bool { return g.Stats().Live == 0 })
	require.Zero(t, p.Stats().Leases.InUse)
}
