package registry

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/fairshare"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// poolVersion is a user's pool as it was made with one target and credential. It has
// what the registry does to a pool whatever its kind is: what a reservoir does by itself,
// and the rest.
type poolVersion interface {
	Resize(n int) error
	CloseIdle(n int, unused time.Duration) int
	Reset()
	Stats() reservoir.Stats
	FailWaiters(err error) int
	CheckOne(ctx context.Context) error
	WaitReady(ctx context.Context, n int) error
	EvictIdle() int
	Close(ctx context.Context) error

	reconfigure(d *ServerDefinition) error
	connections() []ConnectionStats
	hasDoCalls() bool
	awaitDoCalls(ctx context.Context, d *ServerDefinition, removed <-chan struct{})
	awaitClosed(ctx context.Context) error
}

// reservoirVersion is what all versions do with their reservoir.
type reservoirVersion[C any] struct {
	*reservoir.Reservoir[C]
	doCalls *taskgroup.Group // of Do
}

// awaitClosed waits until everything is closed of a pool that close could not wait for.
func (p reservoirVersion[C]) awaitClosed(ctx context.Context) error {
	err := p.Close(ctx)
	if left := new(reservoir.CloseError); errors.As(err, &left) {
		return err
	}
	return nil
}

func (p reservoirVersion[C]) reconfigure(d *ServerDefinition) error {
	return p.Reconfigure(reservoirConfig[C](d))
}

// hasDoCalls says that a call of Do uses the pool, be it between two calls of its own.
func (p reservoirVersion[C]) hasDoCalls() bool { return p.doCalls.Running() > 0 }

// doIdleTTL is how long a superseded pool keeps a connection idle for the calls of Do
// that go on: its successor has to do without that slot.
const doIdleTTL = time.Second

// awaitDoCalls waits for the calls of Do on a pool that has a successor made of d, until
// ctx ends or the user's pool is removed altogether.
func (p reservoirVersion[C]) awaitDoCalls(ctx context.Context, d *ServerDefinition, removed <-chan struct{}) {
	if !p.hasDoCalls() { // INVARIANT: none begins any more
		return
	}
	cfg := reservoirConfig[C](d)
	cfg.MinIdle, cfg.IdleTTL = 0, doIdleTTL
	_ = p.Reconfigure(cfg) // d has been in use
	select {
	case <-p.doCalls.AllDone():
	case <-removed:
	case <-ctx.Done():
	}
}

// reservoirConfig is what can change in a reservoir at work. Whatever is not here needs
// a new version: see connKey.
func reservoirConfig[C any](d *ServerDefinition) reservoir.Config[C] {
	c := reservoir.Config[C]{
		OpenRetry: reservoir.OpenRetryNever, // a failed open is the health check's to judge
		MinIdle:   d.MinIdle, MaxSize: userMaxSize(d), MaxConcurrentOpens: d.MaxConcurrentOpens, MaxWaiters: d.MaxWaiters,
		AcquireTimeout: d.AcquireTimeout, IdleTTL: d.IdleTTL, MaxLifetime: d.MaxLifetime, LeakAfter: d.LeakAfter,
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

type sqlVersion struct {
	reservoirVersion[*sqlconn.Conn]
	timeouts  *sqlTimeouts
	connector driver.Connector
	tracing   *sqlTracing // nil: nobody is told

	stopReclaims func() // nil: nobody asks for idle connections
}

// sqlTimeouts are the times that sqlVersion reads when it uses them. So an Update
// changes them without new connections.
type sqlTimeouts struct {
	lifecycle      *sqlconn.Lifecycle
	connect, check atomic.Int64
}

func (l *sqlTimeouts) applyDefinition(d *ServerDefinition) {
	l.connect.Store(int64(d.OpenTimeout))
	l.check.Store(int64(d.HealthCheck.Timeout))
	l.lifecycle.SetQueryTimeout(max(0, d.QueryTimeout))
}

func (l *sqlTimeouts) open(ctx context.Context) (*sqlconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l.connect.Load()))
	defer cancel()
	return l.lifecycle.Open(ctx)
}

// bounded bounds a check or a reset.
func (l *sqlTimeouts) bounded(f func(context.Context, *sqlconn.Conn) error) func(context.Context, *sqlconn.Conn) error {
	return func(ctx context.Context, c *sqlconn.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(l.check.Load()))
		defer cancel()
		return f(ctx, c)
	}
}

func (g *sqlVersion) reconfigure(d *ServerDefinition) error {
	g.timeouts.applyDefinition(d)
	return g.reservoirVersion.reconfigure(d)
}

type flightVersion struct {
	reservoirVersion[backend.Conn]
	pool *flightpool.FlightSQLPool
}

// Close closes the pool with its reservoir.
func (g flightVersion) Close(ctx context.Context) error { return g.pool.Close(ctx) }

// WaitReady is the pool's, which knows where no open can succeed.
func (g flightVersion) WaitReady(ctx context.Context, n int) error { return g.pool.WaitReady(ctx, n) }

// buildVersion makes a user's pool. It connects to nothing: reconfigure starts that.
// MinIdle is zero until then. What its hooks count is the pool's.
func (u *userPool) buildVersion(ctx context.Context, k Kind, d *ServerDefinition, f connKey, w witness) (poolVersion, error) {
	params := d.connectParams(f)
	params.CountBytes = u.traffic.countConn
	if k.Flight != nil {
		return u.buildFlight(ctx, k, d, params, w)
	}
	tracing, err := u.newSQLTracing(params)
	if err != nil {
		return nil, err
	}
	connector, err := k.Connector(params)
	if err != nil {
		return nil, err
	}
	kind := k.SQL
	if f.CheckSQL != "" {
		kind.HealthSQL = f.CheckSQL
	}
	cfg := sqlconn.Config{Connector: connector, Kind: kind, Check: checkKinds[f.Check], KeepState: f.KeepSession, Stopped: u.recordStop}
	counts := !d.DisableQueryStats
	cfg.Observe = func(took time.Duration, err error) { u.recordStatement(w, counts, took, err) }
	target, err := sqlconn.New(u.server.registry.wrapper, cfg)
	if err != nil {
		return nil, err
	}
	l := &sqlTimeouts{lifecycle: target}
	l.applyDefinition(d)
	r := reservoirConfig[*sqlconn.Conn](d)
	r.MinIdle = 0
	r.Open, r.Close, r.Check, r.Reset, r.Admit = l.open, target.Close, l.bounded(target.Check), l.bounded(u.observeResets(w, target.Reset)), u.member.Admit
	r.OpenTimeout, r.CheckTimeout, r.CheckOnRelease = -1, -1, d.ValidateOnRelease // sqlTimeouts has the bounds
	r.ExpiresAt = (*sqlconn.Conn).ExpiresAt
	r.Hooks = u.hooks(w)
	r.Hooks.Leaked = u.logLeak
	conns, err := reservoir.New(r)
	if err != nil {
		return nil, err
	}
	return newSQLVersion(conns, l, connector, tracing), nil
}

// checkKinds are the checks of package flightpool in the words of sqlconn.
var checkKinds = map[flightpool.HealthKind]sqlconn.CheckKind{
	flightpool.Ping: sqlconn.Ping, flightpool.Query: sqlconn.Query, flightpool.FullValidate: sqlconn.FullValidate,
}

// flightConfig is what a definition says of a Flight pool.
func flightConfig(d *ServerDefinition) flightpool.Config {
	check := flightpool.HealthCheck{
		Kind: d.HealthCheck.Kind, SQL: d.HealthCheck.Query, Timeout: d.HealthCheck.Timeout, Interval: d.HealthCheck.Interval,
		IdleBeforeCheck: d.ValidateAfter, ValidateOnAcquire: d.ValidateOnAcquire, ValidateOnRelease: d.ValidateOnRelease,
		FailureThreshold: -1, // the registry judges the server
	}
	if d.HealthCheck.Disabled {
		check.Interval = -1
	}
	cfg := flightpool.Config{
		MinIdle: -1, MaxSize: userMaxSize(d), MaxConcurrentOpens: min(d.MaxConcurrentOpens, math.MaxInt32), MaxWaiters: d.MaxWaiters,
		AcquireTimeout: d.AcquireTimeout, DialTimeout: d.OpenTimeout, IdleTTL: d.IdleTTL, MaxLifetime: d.MaxLifetime, LeakAfter: d.LeakAfter,
		DefaultQueryTimeout: d.QueryTimeout, HealthCheck: check,
		OpenRetry: flightpool.OpenRetryNever, // as in reservoirConfig
	}
	if d.KeepSession {
		cfg.OnReturn = flightpool.ResetNone
	}
	return cfg
}

func (u *userPool) buildFlight(ctx context.Context, k Kind, d *ServerDefinition, params ConnectParams, w witness) (poolVersion, error) {
	cfg := flightConfig(d)
	cfg.Leases, cfg.Hooks = slotLeases{u.member}, flightpool.Hooks{Connections: u.hooks(w), Cancelled: u.recordCancel}
	cfg.Traffic = &u.traffic.flight
	if log := u.server.registry.cfg.Logger; log != nil {
		cfg.Logger = log.With("server", u.server.name, "user", u.name)
	}
	u.traffic.anyCounted.Store(true)
	cfg.Tracer = u.tracer()
	params.Config = cfg
	pool, err := k.Flight(ctx, params)
	if err != nil {
		return nil, err
	}
	return flightVersion{reservoirVersion[backend.Conn]{pool.Reservoir(), &taskgroup.Group{}}, pool}, nil
}

// slotLeases lets a Flight pool ask its user's fairshare.Member for slots.
type slotLeases struct{ m *fairshare.Member }

func (l slotLeases) Acquire(ctx context.Context) (func(), error) { return l.m.Admit(ctx) }

// Stats tells of the server's connections, those of all its users.
func (l slotLeases) Stats() lease.Stats {
	all, own, limit := l.m.Numbers()
	return lease.Stats{Limit: limit, Used: all, InUse: own}
}

// Close does nothing: the share belongs to the server.
func (slotLeases) Close(context.Context) error { return nil }

// observeResets reports successful resets to health, and logs the first failure of a
// pool: each failure costs a connection.
func (u *userPool) observeResets(w witness, reset func(context.Context, *sqlconn.Conn) error) func(context.Context, *sqlconn.Conn) error {
	return func(ctx context.Context, c *sqlconn.Conn) error {
		lost := c.Lost() != nil
		err := reset(ctx, c)
		switch {
		case err == nil:
			w.recordAnswer()
		case !lost && c.Lost() == nil && u.resetFailures.Add(1) == 1:
			if log := u.server.registry.cfg.Logger; log != nil {
				log.Warn("registry: a connection is closed because its session cannot be reset", "server", u.server.name, "user", u.name, "error", err)
			}
		}
		return err
	}
}

// logLeak tells of a connection of database/sql that is out for long. A Flight pool tells of
// its own.
func (u *userPool) logLeak(l reservoir.Leak) {
	if log := u.server.registry.cfg.Logger; log != nil {
		log.Warn("registry: a connection is out for long; is it released?", "server", u.server.name, "user", u.name, "held", l.Held, "borrower", l.Stack)
	}
}
