package flightpool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// FlightSQLPool keeps connections to one Flight SQL server ready. Its methods
// may be called from any goroutine. Close it when done.
type FlightSQLPool struct {
	target      string
	cfg         Config
	conns       *reservoir.Reservoir[backend.Conn]
	connsSet    chan struct{} // closed once conns is set; opens begin before
	policy      *session.Policy
	closeShared func() error // lets go of what the connections share
	stop        context.CancelFunc
	closing     atomic.Bool // set before anything else of Close
	background  taskgroup.Group
	health      health
	counters    counters
}

// New makes a pool for the server at target, see ParseTarget; options in the
// target and fields of cfg add up. Unless MinIdle is negative it returns once
// the first connection has a session that works (HealthCheck.SQL has run on
// it), or with the reason why the first open failed, see Config.OpenRetry, and
// the rest of MinIdle is opened in the background. ctx alone bounds that wait,
// each open DialTimeout; opens that do not heed their contexts then end behind
// New. ctx also lends its values to everything that the pool does later.
func New(ctx context.Context, target string, cfg Config) (*FlightSQLPool, error) {
	d, faults := parseDSN(target)
	cfg, more := d.merge(cfg)
	resolved, err := cfg.resolve()
	faults = append(append(faults, more...), err)
	if d.addr != "" { // else nobody knows whether it is plain text
		faults = append(faults, d.checkTLS(cfg.TLS))
	}
	if err := errjoin.Join(faults...); err != nil {
		return nil, badConfig(err)
	}
	// The pool outlives the call that makes it.
	auth := resolved.Auth.credential(context.WithoutCancel(ctx))
	endpoint, err := flightconn.NewEndpoint(endpointConfig(d, resolved, auth))
	if err != nil {
		return nil, badConfig(err)
	}
	release := func() error { return errjoin.Join(auth.stop(resolved.CloseTimeout), endpoint.Close()) }
	return start(ctx, d.addr, resolved, endpoint.Open, release)
}

// NewWith makes a pool of connections of your own kind. The Config's fields on
// transport and credentials (Auth, TLS, Headers, Dialer, DialOptions,
// Allocator, MaxMessage) do not apply: open decides what they say. open is called
// with a context that ends after DialTimeout; what it returns is proven by
// HealthCheck.SQL as in New.
func NewWith(ctx context.Context, open func(context.Context) (backend.Conn, error), cfg Config) (*FlightSQLPool, error) {
	resolved, err := cfg.resolve()
	if open == nil {
		err = errjoin.Join(err, errors.New("open: is required"))
	}
	if err != nil {
		return nil, badConfig(err)
	}
	return start(ctx, "", resolved, open, func() error { return nil })
}

func badConfig(err error) error {
	return &Error{Op: "New", Stage: backend.StageArgument, Fault: FaultUsage, Unsent: true, Err: err}
}

// start makes the reservoir and proves one connection.
func start(ctx context.Context, target string, cfg Config, open func(context.Context) (backend.Conn, error), release func() error) (*FlightSQLPool, error) {
	// The pool outlives the call that makes it.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &FlightSQLPool{target: target, cfg: cfg, closeShared: release, stop: stop, connsSet: make(chan struct{})}
	p.health = health{
		failures: cfg.HealthCheck.FailureThreshold, minOutage: max(0, cfg.HealthCheck.UnhealthyAfter),
		recoveries: cfg.HealthCheck.RecoveryThreshold, onUnhealthy: p.failWaiters, onChange: p.healthChanged,
	}
	if cfg.Layer != nil {
		open, p.closeShared = wrapOpen(cfg.Layer, cfg.CloseTimeout, open, release)
	}
	p.policy = &session.Policy{
		Target: target, OwnerContext: life, Go: func(f func()) { p.background.Go(f) }, OnReturn: cfg.OnReturn, Cancel: cfg.Cancel, ProbeSQL: cfg.HealthCheck.SQL,
		QueryTimeout: cfg.DefaultQueryTimeout, CloseTimeout: cfg.CloseTimeout, ReturnWaits: cfg.HealthCheck.ValidateOnRelease, Allocator: cfg.Allocator,
		Observe: p.observer(),
	}
	conns := reservoirConfig(cfg, p.verifiedOpen(open))
	conns.MinIdle = max(0, cfg.MinIdle-1) // one more is opened for New itself
	conns.Check, conns.Hooks, conns.Watch, conns.ExpiresAt = p.check, p.wrapHooks(), watchLoss, cfg.expiresAt
	var err error
	if p.conns, err = reservoir.New(conns); err != nil {
		stop()
		return nil, errjoin.Join(badConfig(err), release())
	}
	close(p.connsSet)
	if cfg.MinIdle < 1 {
		return p, nil
	}
	if err = p.waitFirstConn(ctx); err == nil {
		conns.MinIdle = cfg.MinIdle
		if err = p.conns.Reconfigure(conns); err == nil {
			return p, nil
		}
	}
	return nil, errjoin.Join(p.acquireError(ctx, "New", err), p.abandonNew(ctx, life))
}

// watchLoss arranges that lost is called when the transport of c ends, if c can tell.
func watchLoss(c backend.Conn, lost func(error)) {
	if w, ok := c.(backend.LossNotifier); ok {
		w.OnLost(lost)
	}
}

// check is the health check of one connection.
func (p *FlightSQLPool) check(ctx context.Context, c backend.Conn) error {
	start := time.Now()
	err := c.Lost()
	if err == nil {
		err = p.validate(ctx, c)
	}
	if err != nil {
		p.health.failed(err, time.Since(start))
		return err
	}
	p.health.succeeded()
	return nil
}

func (p *FlightSQLPool) validate(ctx context.Context, c backend.Conn) error {
	if p.cfg.HealthCheck.Kind == Ping {
		return p.ping(ctx, c)
	}
	if p.cfg.HealthCheck.Kind == FullValidate {
		// First, because a statement would make a new session where the old
		// one was evicted, and hide that it is gone.
		if _, err := c.Options(ctx); err != nil && backend.FaultIn(err) != FaultUnsupported {
			return fmt.Errorf("session options: %w", err)
		}
	}
	return session.Probe(ctx, c, p.cfg.HealthCheck.SQL)
}

// Resize changes MaxSize while the pool works. Connections beyond a smaller
// size are closed when they come back.
func (p *FlightSQLPool) Resize(maxSize int) error {
	if err := p.conns.Resize(maxSize); err != nil {
		return badArgument("Resize", p.target, "%w", poolError(err))
	}
	return nil
}

// Reset replaces every connection: idle ones now, those on loan when they come
// back. It does not wait.
func (p *FlightSQLPool) Reset() { p.conns.Reset() }

// EvictIdle closes the idle connections beyond MinIdle and returns how many.
func (p *FlightSQLPool) EvictIdle() int { return p.conns.EvictIdle() }

// WaitReady waits until n connections are open, opening what is missing.
func (p *FlightSQLPool) WaitReady(ctx context.Context, n int) error {
	if err := p.conns.WaitReady(ctx, n); err != nil {
		return p.acquireError(ctx, "WaitReady", err)
	}
	return nil
}

// Close refuses new calls, wakes everybody who waits with ErrClosed, and waits
// for results, sessions and cancel chains until ctx ends; those still out are
// then cut off, and the error tells how many. When it returns no goroutine,
// socket or lease of the pool is left, but for what functions of yours keep that do
// not return within CloseTimeout, which the error tells. A second Close answers
// ErrClosed.
func (p *FlightSQLPool) Close(ctx context.Context) error {
	err := p.closeAll(ctx)
	if err == nil {
		return nil
	}
	e := &Error{Op: "Close", Stage: backend.StageClose, Target: p.target, Err: err}
	if errors.Is(err, ErrClosed) {
		e.Fault = FaultUsage
	}
	return e
}

func (p *FlightSQLPool) closeAll(ctx context.Context) error {
	p.closing.Store(true)
	err := p.conns.Close(ctx)
	if err != nil {
		err = poolError(err)
	}
	if errors.Is(err, ErrClosed) {
		return err
	}
	p.stop()
	// What still runs notices that; ctx has ended if Close had to use force.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CloseTimeout)
	defer cancel()
	if n := p.background.Wait(bounded); n > 0 {
		err = errjoin.Join(err, fmt.Errorf("%d goroutines of calls have not ended within CloseTimeout; does a hook block?", n))
	}
	return errjoin.Join(err, p.closeShared())
}
