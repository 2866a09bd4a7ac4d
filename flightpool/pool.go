package flightpool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
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
	readyWaits  readyWaits
	counters    counters
	times       times
	tracing     *tracing // nil without tracers

	stopFollowing func() // has the pool do no more what Config.Leases asks for
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

// checkNew shows that the session works, whatever the server makes of HealthCheck.SQL.
// Where the checks of the connection will run that, the server must not refuse it: each
// would close the connection, and nobody would hear why.
func (p *FlightSQLPool) checkNew(ctx context.Context, c backend.Conn) error {
	check := p.cfg.HealthCheck
	if check.Kind == Ping {
		return session.CheckSession(ctx, c, check.SQL)
	}
	refused := session.Probe(ctx, c, check.SQL)
	if refused == nil {
		return nil
	}
	if err := session.CheckSession(ctx, c, check.SQL); err != nil {
		return err
	}
	return &Error{Stage: backend.StageProbe, Fault: backend.FaultIn(refused), Err: fmt.Errorf("HealthCheck.SQL: %w", refused)}
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

// Resize changes MaxSize, to at least 1, while the pool works. Connections beyond a
// smaller size are closed when they come back.
func (p *FlightSQLPool) Resize(maxSize int) error {
	if err := p.conns.Resize(maxSize); err != nil {
		return badArgument("Resize", p.target, "%w", poolError(err))
	}
	return nil
}

// Reset replaces every connection: idle ones now, those borrowed when they come
// back. It does not wait.
func (p *FlightSQLPool) Reset() { p.conns.Reset() }

// EvictIdle closes the idle connections beyond MinIdle and returns how many.
func (p *FlightSQLPool) EvictIdle() int { return p.conns.EvictIdle() }

// Close refuses new calls, wakes everybody who waits with ErrClosed, and waits
// for results, sessions and cancel chains until ctx ends; those still out are
// then cut off, and the error tells how many. When it returns no goroutine,
// socket or lease of the pool is left, but for what functions of yours keep that do
// not return within CloseTimeout, which the error tells. A second Close waits for the
// connections too, cuts nothing off, and answers ErrClosed, at the end of its ctx at
// the latest.
func (p *FlightSQLPool) Close(ctx context.Context) error {
	err := p.closeAll(ctx)
	if err == nil {
		return nil
	}
	e := &Error{Op: "Close", Stage: backend.StageClose, Target: p.target, Err: err}
	var forced *reservoir.CloseError
	switch {
	case reservoir.ClosedBefore(err):
		e.Fault = FaultUsage
	case errors.As(err, &forced):
		e.Fault = FaultContext
	}
	return e
}

func (p *FlightSQLPool) closeAll(ctx context.Context) error {
	p.closing.Store(true)
	err := p.conns.Close(ctx)
	if err != nil {
		err = poolError(err)
	}
	if reservoir.ClosedBefore(err) {
		return err // the rest is for the Close that came first, which may wait still
	}
	err = errjoin.Join(err, p.endFollowing()) // until then leases could be revoked whose connections were lent
	p.stop()
	// What still runs notices that; ctx has ended if Close had to use force.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.CloseTimeout)
	defer cancel()
	if n := p.background.Wait(bounded); n > 0 {
		err = errjoin.Join(err, fmt.Errorf("%d goroutines of calls have not ended within CloseTimeout; does a hook block?", n))
	}
	return errjoin.Join(err, p.closeShared())
}

// A Connection is one open connection of a pool at one moment.
type Connection struct {
	// ID is what no other connection of the process has or had. A Tracer is told it.
	ID uint64
	// InUse says that it is borrowed, or being checked, OnLoan that a call, a session or a
	// transaction has it.
	InUse, OnLoan bool
	// Opened is when it was opened, Used when its latest loan began or ended, or else
	// Opened, and Expires from when on it is not lent; zero: never.
	Opened, Used, Expires time.Time
	// Loans counts the loans so far.
	Loans uint64
	// Borrower is where the loan was taken, with Config.LeakAfter; nil: there is none, or it
	// is not known.
	Borrower *reservoir.BorrowStack
}

// Connections describes the open connections, each that is open all the while once, in
// the order of their IDs. It asks nobody, and looks at a few of them at a time.
func (p *FlightSQLPool) Connections() []Connection {
	infos := p.conns.Connections()
	all := make([]Connection, len(infos))
	for i, c := range infos {
		all[i] = Connection{ID: c.ID, InUse: c.InUse, OnLoan: c.OnLoan, Opened: c.Opened, Used: c.Used, Expires: c.Expires, Loans: c.Loans, Borrower: c.Borrower}
	}
	return all
}

// Reservoir gives what keeps the pool's connections, for owners of many pools
// that share a bound among them. Its Acquire lends bare connections, without the
// care that a SessionHandle takes of them.
func (p *FlightSQLPool) Reservoir() *reservoir.Reservoir[backend.Conn] { return p.conns }
