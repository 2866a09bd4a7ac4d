package dsql_test

import (
	"context"
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

func TestPoolsOfOneClusterShareItsConnections(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, nil)
	ctx := within(t, 20*time.Second)
	pool, err := c.NewPool(dsql.View{Max: 3})
	require.NoError(t, err)
	db, err := c.OpenDB(dsql.View{Reserve: 1})
	require.NoError(t, err)
	require.NoError(t, c.WaitReady(ctx, 4))
	var held []*dsql.Conn
	for range 3 {
		conn, err := pool.Acquire(ctx)
		require.NoError(t, err)
		held = append(held, conn)
	}
	_, err = pool.Acquire(within(t, 50*time.Millisecond))
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty, "its maximum")
	require.NoError(t, db.PingContext(ctx), "its reserve")
	require.Equal(t, 4, g.Stats().Admitted)
	for _, conn := range held {
		conn.Release()
	}
	require.NoError(t, db.Close())
	require.NoError(t, pool.Close(ctx))
	_, err = pool.Acquire(ctx)
	require.ErrorIs(t, err, dsql.ErrClosed)
	require.Equal(t, 4, c.Stats().Reservoir.Idle, "the cluster lives on")
	again, err := c.NewPool(dsql.View{Reserve: 4})
	require.NoError(t, err, "their reserves are free")
	require.NoError(t, again.Ping(ctx))
}

func TestOnDemandKeepsNothingReady(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) { c.OnDemand = true })
	require.Zero(t, p.Stats().Reservoir.Total)
	require.NoError(t, p.Ping(within(t, 20*time.Second)))
	require.Equal(t, 1, g.Stats().Admitted)
}

func TestEveryConnectionIsReplacedBeforeDSQLCutsIt(t *testing.T) {
	g := startGate(t, func(o *dsqlgate.Options) { o.SessionLimit = 3 * time.Second })
	p := newPool(t, g, func(c *dsql.Config) {
		c.BaseLifetime, c.LifetimeJitter, c.GuardWindow, c.OpenTimeout = 1200*time.Millisecond, 600*time.Millisecond, 200*time.Millisecond, time.Second
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 4))
	for p.Stats().Reservoir.Closed[reservoir.Expired] < 8 {
		_, err := p.Exec(ctx, "select 1")
		require.NoError(t, err)
	}
	require.Zero(t, g.Stats().Expired)
	require.LessOrEqual(t, g.Stats().Peak, 4)
}

// revocable is a budget that can be taken away.
type revocable struct {
	lease.Leases
	mu   sync.Mutex
	tell func(lease.Revocation)
}

func (r *revocable) OnRevoke(f func(lease.Revocation)) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tell = nil
	}
}

func (r *revocable) Valid() error { return nil }

func TestRevokedLeasesCloseIdleConnectionsNowAndBusyOnesAtTheDeadline(t *testing.T) {
	g := startGate(t, nil)
	budget := &revocable{Leases: lease.NewLeases("x", 2)}
	require.Implements(t, (*lease.Revoker)(nil), budget)
	p := newPool(t, g, func(c *dsql.Config) { c.MaxOpen, c.Leases = 2, budget })
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.WaitReady(ctx, 2))
	busy, err := p.Acquire(ctx)
	require.NoError(t, err)
	old := busy.Conn().PgConn().PID()
	running := make(chan error)
	go func() {
		_, err := busy.Exec(context.WithoutCancel(ctx), "select pg_sleep(20)")
		busy.Release()
		running <- err
	}()
	began := time.Now()
	budget.tell(lease.Revocation{Deadline: time.Now().Add(300 * time.Millisecond)})
	reach(t, "the idle one is closed now", func() bool { return p.Stats().Reservoir.Closed[reservoir.Outdated] == 1 })
	require.Less(t, time.Since(began), 300*time.Millisecond)
	require.Error(t, <-running)
	require.InDelta(t, 0.3, time.Since(began).Seconds(), 0.2)
	fresh, err := p.Acquire(ctx)
	require.NoError(t, err)
	require.NotEqual(t, old, fresh.Conn().PgConn().PID())
	fresh.Release()
	require.LessOrEqual(t, g.Stats().Peak, 2)
	closeSoon(t, p.Close)
	require.Nil(t, budget.tell, "it listens no more")
	require.Zero(t, budget.Stats().InUse)
}

func TestAStatementThatMayHaveBeenSentRunsOnce(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, nil)
	ctx := within(t, 20*time.Second)
	pool, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	db, err := c.OpenDB(dsql.View{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = pool.Exec(ctx, "create table if not exists runs (n int)")
	require.NoError(t, err)
	for name, run := range map[string]func(string) error{
		"pgx":          func(s string) error { _, err := pool.Exec(ctx, s); return err },
		"database/sql": func(s string) error { _, err := db.ExecContext(ctx, s); return err },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pool.Exec(ctx, "delete from runs")
			require.NoError(t, err)
			g.VanishAtAnswer(1)
			err = run("insert into runs values (1)")
			require.ErrorIs(t, err, dsql.ErrLost)
			require.NotErrorIs(t, err, driver.ErrBadConn)
			require.False(t, pgconn.SafeToRetry(err))
			require.Equal(t, 1, count(t, pool, "runs"))
		})
	}
}
