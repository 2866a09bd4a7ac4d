package flightpool

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

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
	resolved.Headers = nil // the endpoint has them: what holds the pool may be printed by reflection
	release := func() error { return errjoin.Join(auth.stop(resolved.CloseTimeout), endpoint.Close()) }
	return start(ctx, d.addr, resolved, endpoint.Open, release)
}

// NewWith makes a pool of connections of your own kind. The Config's fields on
// transport and credentials (Auth, TLS, Headers, SessionHeader, Locations, Dialer, DialOptions,
// Traffic, Allocator, MaxMessage, Cancel.Actions) do not apply: open decides what they say. open is called
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
	if cfg.Tracer != nil {
		p.tracing = &tracing{failed: p.hookFailed}
		_ = p.tracing.add(cfg.Tracer) // it was tried by resolve
	}
	if cfg.Layer != nil {
		open, p.closeShared = wrapOpen(cfg.Layer, cfg.CloseTimeout, open, release)
	}
	p.policy = &session.Policy{
		Target: target, OwnerContext: life, Go: func(f func()) { p.background.Go(f) }, OnReturn: cfg.OnReturn, Cancel: cfg.Cancel, ProbeSQL: cfg.HealthCheck.SQL,
		QueryTimeout: cfg.DefaultQueryTimeout, CloseTimeout: cfg.CloseTimeout, ReturnWaits: cfg.HealthCheck.ValidateOnRelease, Allocator: cfg.Allocator,
		Observe: p.observer(),
	}
	if p.tracing != nil {
		p.policy.Tracer = p.tracing
	}
	conns := reservoirConfig(cfg, p.verifiedOpen(open), p.closeConn)
	conns.MinIdle = max(1, cfg.MinIdle) - 1 // one more is opened for New itself
	if cfg.OnConnect != nil {
		p.policy.Kept = new(session.Kept)
	}
	if cfg.StatementCache > 0 {
		p.policy.Statements = session.NewStatements(cfg.StatementCache)
	}
	conns.Check, conns.Hooks, conns.Watch, conns.ExpiresAt, conns.Admit = p.check, p.wrapHooks(), watchLoss, cfg.expiresAt, p.admitByBudgets()
	var err error
	if p.conns, err = reservoir.New(conns); err != nil {
		stop()
		return nil, errjoin.Join(badConfig(err), release())
	}
	close(p.connsSet)
	if err = p.followLeases(life); err == nil && cfg.MinIdle < 1 {
		return p, nil
	}
	if err == nil {
		err = p.waitFirstConn(ctx)
	}
	if err == nil {
		conns.MinIdle = cfg.MinIdle
		if err = p.conns.Reconfigure(conns); err == nil {
			return p, nil
		}
	}
	return nil, errjoin.Join(p.acquireError(ctx, "New", err), p.abandonNew(ctx, life))
}

// abandonGrace is how much longer than its context New stays to see the opens end that
// it has begun: those that heed their contexts do so at once.
const abandonGrace = 50 * time.Millisecond

// abandonNew ends a pool that New does not return, and goes on behind the caller
// whose ctx has ended.
func (p *FlightSQLPool) abandonNew(ctx, life context.Context) error {
	closing := callback.Go(callback.NoValue(func() error {
		bounded, cancel := context.WithTimeout(life, p.cfg.CloseTimeout)
		defer cancel()
		return p.closeAll(bounded)
	}))
	if !closing.Wait(ctx, abandonGrace) {
		return errors.New("opens that do not heed their contexts go on behind New")
	}
	closing.Resume()
	return closing.Err
}

// waitFirstConn waits for the first connection, until ctx ends or an open has failed; a
// failed open ends it only by OpenRetry, not because ctx has no deadline.
func (p *FlightSQLPool) waitFirstConn(ctx context.Context) error {
	for {
		loan, err := p.conns.Acquire(withoutDeadline{ctx})
		if err == nil {
			return p.releaseUntil(ctx, loan)
		}
		full, exhausted := err.(*reservoir.ExhaustedError) //nolint:errorlint // of this pool: an open may have failed with another's
		if ctx.Err() != nil || !exhausted {
			return err
		}
		goesOn := p.cfg.OpenRetry == OpenRetryAlways && p.cfg.OnExhausted != FailFast
		if full.LastOpen != nil && !goesOn {
			return err
		}
		// Only AcquireTimeout is over, which bounds calls of a pool.
	}
}

// withoutDeadline is a context that ends with its parent and tells no deadline, so that
// OpenRetryTimed does not let it wait.
type withoutDeadline struct{ context.Context } //nolint:containedctx // it is one

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
