package registry

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/fairshare"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
	"github.com/flightpool/flightpool/session"
)

// generation is a user's pool as it was made with one target and credential.
type generation interface {
	resize(n int)
	yield(n int, unused time.Duration) int
	replace()
	stats() reservoir.Stats
	tune(d *ServerDefinition) error
	failWaiters(err error) int
	prove(ctx context.Context) error
	ready(ctx context.Context, n int) error
	evict() int
	connections() []ConnectionStats
	busy() bool
	superseded(ctx context.Context, d *ServerDefinition, removed <-chan struct{})
	close(ctx context.Context) error
}

// pooled is what all generations do with their reservoir.
type pooled[C any] struct {
	conns *reservoir.Reservoir[C]
	calls *tasks // of Do
}

func (p pooled[C]) resize(n int)                           { _ = p.conns.Resize(n) } // a closed one needs no size
func (p pooled[C]) yield(n int, unused time.Duration) int  { return p.conns.Yield(n, unused) }
func (p pooled[C]) replace()                               { p.conns.Reset() }
func (p pooled[C]) stats() reservoir.Stats                 { return p.conns.Stats() }
func (p pooled[C]) failWaiters(err error) int              { return p.conns.FailWaiters(err) }
func (p pooled[C]) prove(ctx context.Context) error        { return p.conns.Prove(ctx) }
func (p pooled[C]) ready(ctx context.Context, n int) error { return p.conns.WaitReady(ctx, n) }
func (p pooled[C]) evict() int                             { return p.conns.EvictIdle() }
func (p pooled[C]) close(ctx context.Context) error        { return p.conns.Close(ctx) }
func (p pooled[C]) tune(d *ServerDefinition) error         { return p.conns.Tune(tuning[C](d)) }

// busy says that a call of Do uses the pool, be it between two calls of its own.
func (p pooled[C]) busy() bool { return p.calls.left() > 0 }

// keptForDo is how long a superseded pool keeps a connection idle for the calls of Do
// that go on: its successor has to do without that slot.
const keptForDo = time.Second

// superseded waits for the calls of Do on a pool that has a successor made of d, until
// ctx ends or the user's pool is removed altogether.
func (p pooled[C]) superseded(ctx context.Context, d *ServerDefinition, removed <-chan struct{}) {
	if !p.busy() { // INVARIANT: none begins any more
		return
	}
	cfg := tuning[C](d)
	cfg.MinIdle, cfg.IdleTTL = 0, keptForDo
	_ = p.conns.Tune(cfg) // d has been in use
	select {
	case <-p.calls.ended():
	case <-removed:
	case <-ctx.Done():
	}
}

// tuning is what can change in a reservoir at work.
func tuning[C any](d *ServerDefinition) reservoir.Config[C] {
	c := reservoir.Config[C]{
		OpenRetry: reservoir.OpenRetryNever, // a failed open is the health check's to judge
		MinIdle:   d.MinConnections, MaxSize: userSize(d), MaxConcurrentOpens: d.MaxConcurrentOpens, MaxWaiters: d.MaxWaiters,
		AcquireTimeout: d.AcquireTimeout, IdleTTL: d.IdleTimeout, MaxLifetime: d.MaxLifetime,
		CheckInterval: d.HealthCheck.Interval, IdleBeforeCheck: d.ValidateAfter, CheckOnAcquire: d.ValidateOnAcquire,
	}
	if d.OnExhausted == flightpool.FailFast {
		c.OnExhausted = reservoir.FailFast
	}
	if d.HealthCheck.Disabled {
		c.CheckInterval = -1
	}
	return c
}

// boundsOf are what a definition says of all users together.
func boundsOf(d *ServerDefinition) fairshare.Bounds {
	return fairshare.Bounds{
		Max: d.MaxConnections, Overflow: d.overflow(), Reserved: d.ReservedConnections, MaxOpening: d.MaxConcurrentOpens,
		FailFast: d.OnExhausted == flightpool.FailFast && !d.ValidateOnAcquire, // else who waits for a check is not known
	}
}

// userSize is what a user's reservoir may grow to. The share keeps all of them
// together within the server's bound.
func userSize(d *ServerDefinition) int { return d.UserMaxConnections + d.overflow() }

type sqlGeneration struct {
	pooled[*sqlconn.Conn]
	limits    *limits
	connector driver.Connector
}

// limits are the times that sqlGeneration reads when it uses them.
type limits struct {
	target         *sqlconn.Target
	connect, check atomic.Int64
}

func (l *limits) set(d *ServerDefinition) {
	l.connect.Store(int64(d.ConnectTimeout))
	l.check.Store(int64(d.HealthCheck.Timeout))
	l.target.SetQueryTimeout(max(0, d.QueryTimeout))
}

func (l *limits) open(ctx context.Context) (*sqlconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.connect.Load()))
	defer cancel()
	return l.target.Open(ctx)
}

// checked bounds a check or a reset.
func (l *limits) checked(f func(context.Context, *sqlconn.Conn) error) func(context.Context, *sqlconn.Conn) error {
	return func(ctx context.Context, c *sqlconn.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(l.check.Load()))
		defer cancel()
		return f(ctx, c)
	}
}

func (g *sqlGeneration) tune(d *ServerDefinition) error {
	g.limits.set(d)
	return g.pooled.tune(d)
}

// close also closes a connector that has something of its own to close.
func (g *sqlGeneration) close(ctx context.Context) error {
	err := g.pooled.close(ctx)
	c, ok := g.connector.(io.Closer)
	if !ok {
		return err
	}
	late, cancel := lenient(ctx)
	defer cancel()
	closed := make(chan error, 1)
	go guarded(func() (struct{}, error) { return struct{}{}, c.Close() }, func(_ struct{}, err error) { closed <- err })
	select {
	case closing := <-closed:
		return errjoin.Join(err, closing)
	case <-late.Done():
		return errjoin.Join(err, errors.New("the connector's Close has not returned"))
	}
}

type flightGeneration struct {
	pooled[session.Conn]
	pool *flightpool.FlightSQLPool
}

func (g flightGeneration) close(ctx context.Context) error { return g.pool.Close(ctx) }

// build makes a user's pool. It connects to nothing: tune lets it begin.
func (u *userPool) build(ctx context.Context, k Kind, d *ServerDefinition, f fixed) (generation, error) {
	reach := d.reach(f)
	reach.Count = u.traffic.count
	if k.Flight != nil {
		return u.buildFlight(ctx, k, d, reach)
	}
	connector, err := k.Connector(reach)
	if err != nil {
		return nil, err
	}
	kind := k.SQL
	if f.CheckSQL != "" {
		kind.HealthSQL = f.CheckSQL
	}
	cfg := sqlconn.Config{Connector: connector, Kind: kind, Check: checkKind(f.Check), KeepState: f.KeepSession, Stopped: u.stopped}
	counts := !d.DisableQueryStats
	cfg.Observe = func(took time.Duration, err error) {
		if counts {
			u.queried(took, err)
		}
		if err == nil || !faulty(err) {
			u.server.health.worked()
		}
	}
	target, err := sqlconn.New(u.server.registry.hub, cfg)
	if err != nil {
		return nil, err
	}
	l := &limits{target: target}
	l.set(d)
	r := tuning[*sqlconn.Conn](d)
	r.MinIdle = 0
	r.Open, r.Close, r.Check, r.Reset, r.Admit = l.open, target.Close, l.checked(target.Check), l.checked(u.reset(target.Reset)), u.member.Admit
	r.OpenTimeout, r.CheckTimeout, r.CheckOnRelease = -1, -1, d.ValidateOnRelease // limits has them
	r.Hooks = u.hooks()
	conns, err := reservoir.New(r)
	if err != nil {
		return nil, err
	}
	return &sqlGeneration{pooled[*sqlconn.Conn]{conns, &tasks{}}, l, connector}, nil
}

func (u *userPool) buildFlight(ctx context.Context, k Kind, d *ServerDefinition, reach Reach) (generation, error) {
	check := flightpool.HealthCheck{
		Kind: d.HealthCheck.Kind, SQL: d.HealthCheck.Query, Timeout: d.HealthCheck.Timeout, Interval: d.HealthCheck.Interval,
		IdleBeforeCheck: d.ValidateAfter, ValidateOnAcquire: d.ValidateOnAcquire, ValidateOnRelease: d.ValidateOnRelease,
		FailureThreshold: -1, // the registry judges the server
	}
	if d.HealthCheck.Disabled {
		check.Interval = -1
	}
	cfg := flightpool.Config{
		MinIdle: -1, MaxSize: userSize(d), MaxConcurrentOpens: min(d.MaxConcurrentOpens, math.MaxInt32), MaxWaiters: d.MaxWaiters,
		AcquireTimeout: d.AcquireTimeout, DialTimeout: d.ConnectTimeout, IdleTTL: d.IdleTimeout, MaxLifetime: d.MaxLifetime,
		DefaultQueryTimeout: d.QueryTimeout, HealthCheck: check, Leases: memberLeases{u.member},
		OpenRetry:   flightpool.OpenRetryNever, // as in tuning
		Hooks:       flightpool.Hooks{Connections: u.hooks()},
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(&u.traffic)},
		Logger:      u.server.registry.cfg.Logger,
	}
	if d.KeepSession {
		cfg.OnReturn = flightpool.ResetNone
	}
	u.traffic.counted.Store(true)
	reach.Config = cfg
	pool, err := k.Flight(ctx, reach)
	if err != nil {
		return nil, err
	}
	return flightGeneration{pooled[session.Conn]{pool.Reservoir(), &tasks{}}, pool}, nil
}

// memberLeases lets a Flight pool ask its user's share for slots.
type memberLeases struct{ m *fairshare.Member }

func (l memberLeases) Acquire(ctx context.Context) (func(), error) { return l.m.Admit(ctx) }

// Stats tells of the server's connections, those of all its users.
func (l memberLeases) Stats() lease.Stats {
	all, own, limit := l.m.Numbers()
	return lease.Stats{Limit: limit, Used: all, InUse: own}
}

// Close does nothing: the share is the server's.
func (memberLeases) Close(context.Context) error { return nil }

// reset takes note of how resets end: one that works is a proof of the server, and
// one that fails costs a connection, of which the log is told once for a pool.
func (u *userPool) reset(reset func(context.Context, *sqlconn.Conn) error) func(context.Context, *sqlconn.Conn) error {
	return func(ctx context.Context, c *sqlconn.Conn) error {
		lost := c.Lost() != nil
		err := reset(ctx, c)
		switch {
		case err == nil:
			u.server.health.worked()
		case !lost && c.Lost() == nil && u.resetFailures.Add(1) == 1:
			if log := u.server.registry.cfg.Logger; log != nil {
				log.Warn("registry: a connection is closed because its session cannot be reset", "server", u.server.name, "user", u.name, "error", err)
			}
		}
		return err
	}
}

// stopped tells of a statement that may run on at the server.
func (u *userPool) stopped(err error) {
	if log := u.server.registry.cfg.Logger; err != nil && log != nil {
		log.Warn("registry: a statement whose time was over could not be stopped on the server", "server", u.server.name, "user", u.name, "error", err)
	}
}
