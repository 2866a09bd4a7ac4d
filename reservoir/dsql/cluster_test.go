package dsql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
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
	// The limit and OpenTimeout leave a busy machine seconds in which it runs nothing of this. An
	// open that is given up may be a session of the server's for a moment, beside the next one.
	g := startGate(t, func(o *dsqlgate.Options) { o.SessionLimit = 15 * time.Second })
	p := newPool(t, g, func(c *dsql.Config) {
		c.ReplaceAfter, c.LifetimeJitter, c.GuardWindow, c.OpenTimeout = 1200*time.Millisecond, 600*time.Millisecond, 200*time.Millisecond, 10*time.Second
		c.CloseTimeout = 50 * time.Second // a fifth of it is for the server to end a session, however busy the machine
	})
	ctx := within(t, time.Minute)
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
	p := newPool(t, g, func(c *dsql.Config) { c.MaxSize, c.Leases = 2, budget })
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
	deadline := time.Now().Add(time.Second)
	budget.tell(lease.Revocation{Deadline: deadline})
	reach(t, "the idle one is closed now", func() bool { return p.Stats().Reservoir.Closed[reservoir.Outdated] == 1 })
	require.True(t, time.Now().Before(deadline))
	require.Error(t, <-running)
	require.False(t, time.Now().Before(deadline))
	require.Less(t, time.Since(deadline), 5*time.Second, "not after the 20 of the statement")
	fresh, err := p.Acquire(ctx)
	require.NoError(t, err)
	require.NotEqual(t, old, fresh.Conn().PgConn().PID())
	fresh.Release()
	require.LessOrEqual(t, g.Stats().Peak, 2)
	closeSoon(t, p.Close)
	require.Nil(t, budget.tell, "it listens no more")
	require.Zero(t, budget.Stats().InUse)
}

// In an errgroup the cause of a context is what another call has failed with, such as that another cluster is closed.
func TestTheFirstCloseIsTheFirstWhateverEndsItsContext(t *testing.T) {
	g := startGate(t, nil)
	budget := &revocable{Leases: lease.NewLeases("x", 1)}
	c := newCluster(t, g, func(c *dsql.Config) { c.MaxSize, c.Leases = 1, budget })
	pool, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	held, err := pool.Acquire(within(t, 20*time.Second))
	require.NoError(t, err)
	ctx, end := context.WithCancelCause(t.Context())
	end(fmt.Errorf("another cluster: %w", dsql.ErrClosed))
	require.ErrorIs(t, c.Close(ctx), context.Canceled)
	require.Nil(t, budget.tell, "it listens no more")
	held.Release()
}

// Likewise for those who wait.
func TestAWaitIsEndedByItsContextWhateverTheCauseIsOf(t *testing.T) {
	g := startGate(t, nil)
	c := newCluster(t, g, func(c *dsql.Config) { c.MaxSize = 1 })
	pool, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	held, err := pool.Acquire(within(t, 20*time.Second))
	require.NoError(t, err)
	defer held.Release()
	ctx, end := context.WithCancelCause(t.Context())
	end(fmt.Errorf("another cluster: %w", dsql.ErrClosed))
	_, err = pool.Acquire(&lateEnd{Context: ctx})
	require.ErrorIs(t, err, context.Canceled)
	var empty *dsql.EmptyError
	require.ErrorAs(t, err, &empty)
	require.Equal(t, 1, empty.InUse)
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
			g.DropAtAnswer(1)
			err = run("insert into runs values (1)")
			require.ErrorIs(t, err, dsql.ErrLost)
			require.NotErrorIs(t, err, driver.ErrBadConn)
			require.False(t, pgconn.SafeToRetry(err))
			require.Equal(t, 1, count(t, pool, "runs"))
		})
	}
}

func TestOpenSessionsOutliveTheirCredentialsAndTheNextOpenHasTheNewOnes(t *testing.T) {
	second := dsqlgate.Credential{AccessKeyID: "AKIDNEXT", SecretAccessKey: "other"}
	g := startGate(t, func(o *dsqlgate.Options) { o.Credentials = append(o.Credentials, second) })
	var rotated atomic.Bool
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 1
		c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if rotated.Load() {
				return aws.Credentials{AccessKeyID: second.AccessKeyID, SecretAccessKey: second.SecretAccessKey}, nil
			}
			return aws.Credentials{
				AccessKeyID: key.AccessKeyID, SecretAccessKey: key.SecretAccessKey, SessionToken: key.SessionToken,
				CanExpire: true, Expires: time.Now().Add(4900 * time.Millisecond), // a busy machine needs some; tokens count in whole seconds
			}, nil
		})
	})
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.Ping(ctx))
	rotated.Store(true)
	g.Revoke(key.AccessKeyID)
	require.NoError(t, p.Ping(ctx))
	require.Equal(t, 1, g.Stats().Admitted)
	g.DropAll()
	reach(t, "the old ones expire and the new ones open", func() bool { return p.Ping(ctx) == nil })
	require.Equal(t, 2, g.Stats().Admitted)
}

func TestARoleThatIsNotAdminOpensWithItsOwnAction(t *testing.T) {
	limited := key
	limited.Users = []string{"app"}
	g := startGate(t, func(o *dsqlgate.Options) { o.Credentials = []dsqlgate.Credential{limited} })
	p := newPool(t, g, func(c *dsql.Config) { c.User = "app" })
	require.NoError(t, p.Ping(within(t, 20*time.Second)))
}

func TestTwoRolesShareTheBudgetsThatBothAreGiven(t *testing.T) {
	g := startGate(t, nil)
	leases, limiter := lease.NewLeases("cluster", 3), lease.NewLimiter("cluster", 100, 3)
	with := func(c *dsql.Config) { c.Leases, c.Limiter, c.MaxSize = leases, limiter, 2 }
	admin := newPool(t, g, with)
	ctx := within(t, 20*time.Second)
	require.NoError(t, admin.WaitReady(ctx, 2))
	app := newPool(t, g, func(c *dsql.Config) { with(c); c.User = "app" })
	require.NoError(t, app.WaitReady(ctx, 1))
	require.Equal(t, 3, leases.Stats().InUse)
	reach(t, "the fourth waits for a lease", func() bool { return leases.Stats().Waiting == 1 })
	require.Equal(t, 3, g.Stats().Peak)
	closeSoon(t, admin.Close)
	require.NoError(t, app.WaitReady(ctx, 2), "what one gives back the other gets")
	closeSoon(t, app.Close)
	require.Zero(t, leases.Stats().InUse)
	require.NoError(t, leases.Close(ctx), "whoever made it closes it")
}

// One pool never stops asking; the other asks now and then, and must not wait
// for more than the connections that were lent before it asked.
func TestAGreedyPoolDoesNotStarveAModestOne(t *testing.T) {
	g := startGate(t, nil)
	const size = 3
	c := newCluster(t, g, func(c *dsql.Config) { c.MaxSize = size })
	greedy, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	modest, err := c.NewPool(dsql.View{})
	require.NoError(t, err)
	ctx := within(t, 30*time.Second)
	require.NoError(t, c.WaitReady(ctx, size))
	var lent atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 10 * size {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := greedy.AcquireFunc(ctx, func(c *dsql.Conn) error { lent.Add(1); return c.Ping(ctx) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	reach(t, "the greedy one has all, and wants more", func() bool { return c.Stats().Queued > size })
	const asks = 100
	var others int64 // lent to the greedy one between a question and its answer
	for range asks {
		before := lent.Load()
		require.NoError(t, modest.AcquireFunc(ctx, func(*dsql.Conn) error { others += lent.Load() - before; return nil }))
	}
	close(stop)
	all.Wait()
	require.LessOrEqual(t, others, int64(asks*10), "on average; 27 wait before it each time")
	require.Equal(t, size, g.Stats().Admitted)
}

func TestAConnectionIsNotLentInItsGuardWindow(t *testing.T) {
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize, c.OnDemand = 1, true
		c.ReplaceAfter, c.MaxLifetime, c.LifetimeJitter, c.GuardWindow = 10*time.Second, 10*time.Second, -1, 9800*time.Millisecond
	})
	began := time.Now()
	pids := map[uint32]bool{}
	for len(pids) < 2 {
		require.NoError(t, p.AcquireFunc(within(t, 20*time.Second), func(c *dsql.Conn) error { pids[c.Conn().PgConn().PID()] = true; return nil }))
	}
	require.Less(t, time.Since(began), 5*time.Second, "not lent in the last 9.8 of 10 seconds")
}

func TestOnReturnMakesAConnectionAsGoodAsNewOrClosesIt(t *testing.T) {
	g := startGate(t, nil)
	var fails atomic.Bool
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 1
		c.OnReturn = func(ctx context.Context, conn *pgx.Conn) error {
			if fails.Load() {
				return errors.New("broken")
			}
			_, err := conn.Exec(ctx, "reset all")
			return err
		}
	})
	ctx := within(t, 20*time.Second)
	_, err := p.Exec(ctx, "set statement_timeout = 12345")
	require.NoError(t, err)
	var timeout string
	require.NoError(t, p.QueryRow(ctx, "show statement_timeout").Scan(&timeout))
	require.Equal(t, "0", timeout)
	fails.Store(true)
	require.NoError(t, p.Ping(ctx))
	fails.Store(false)
	require.NoError(t, p.Ping(ctx))
	require.Equal(t, 2, g.Stats().Admitted)
}
