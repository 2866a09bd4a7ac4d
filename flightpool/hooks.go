package flightpool

import (
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// Hooks are told what happens in a pool. Each may be nil. They are called
// outside all locks, from any goroutine and at the same time, so they must be
// safe for that, and quick. They may call the pool, but not wait for its Close, which waits
// for them. A panic in one, or in the Logger or Tracer, is caught and
// counted (Stats.HookFailures), and so is a call of runtime.Goexit. In a Tracer of calls or
// loans, and in those of Connections that run within a caller's call (see reservoir.Hooks), that
// ends the caller's goroutine; if a Tracer does so at a start, the tracers before it
// are not told of the end.
type Hooks struct {
	// Connections are the events of the connections and of those who wait
	// for them.
	Connections reservoir.Hooks

	// Cancelled: the cancel chain of a call has ended. Safe in the report
	// says whether the connection is used again.
	Cancelled func(op string, r cancel.Report)

	// Retried: a call is made again after err.
	Retried func(op string, err error)

	// SessionReset: a session was cleaned before its return. err says why
	// that failed; its connection is discarded.
	SessionReset func(took time.Duration, err error)

	// RolledBack: a transaction left open was rolled back.
	RolledBack func()

	// Health: the server became unhealthy for the reason, or, with nil,
	// healthy again. It is called for one turn after the other, in their order.
	Health func(reason error)
}

// wrapHooks has the user's hooks logged as well.
func (p *FlightSQLPool) wrapHooks() reservoir.Hooks {
	h := p.cfg.Hooks.Connections
	log := p.cfg.Logger
	failed, leaked, stalled := h.OpenFailed, h.Leaked, h.CloseStalled
	h.OpenFailed = func(err error, took time.Duration) {
		if log != nil {
			p.callHook(func() {
				log.Warn("flightpool: a connection could not be opened", "target", p.target, "error", err, "took", took)
			})
		}
		if failed != nil {
			failed(err, took)
		}
	}
	h.Leaked = func(l reservoir.Leak) {
		if log != nil {
			p.callHook(func() {
				log.Warn("flightpool: a session or result is out for long; is it released?", "target", p.target, "held", l.Held, "borrower", l.Stack)
			})
		}
		if leaked != nil {
			leaked(l)
		}
	}
	h.CloseStalled = func(r reservoir.Reason) {
		if log != nil {
			p.callHook(func() {
				log.Warn("flightpool: closing a connection takes longer than CloseTimeout", "target", p.target, "reason", r.String())
			})
		}
		if stalled != nil {
			stalled(r)
		}
	}
	return h
}

// observer is what the sessions tell the pool: its counters, its health and the user's hooks.
func (p *FlightSQLPool) observer() session.Observer {
	return session.Observer{Cancelled: p.cancelled, Reset: p.sessionReset, RolledBack: p.rolledBack, Answered: p.health.answered, FirstBatch: p.times.firstBatch.Add, Ended: p.times.call.Add}
}

func (p *FlightSQLPool) cancelled(op string, r cancel.Report) {
	if r.Safe() {
		p.counters.cancelsConfirmed.Add(1)
	} else {
		p.counters.cancelsUnconfirmed.Add(1)
		if log := p.cfg.Logger; log != nil {
			p.callHook(func() {
				log.Warn("flightpool: a cancelled statement may still run; its connection is dropped", "target", p.target, "call", op, "cancel", r.String())
			})
		}
	}
	if f := p.cfg.Hooks.Cancelled; f != nil {
		p.callHook(func() { f(op, r) })
	}
}

func (p *FlightSQLPool) sessionReset(took time.Duration, err error) {
	p.counters.resets.Add(1)
	if err != nil {
		p.counters.resetFailures.Add(1)
	}
	if f := p.cfg.Hooks.SessionReset; f != nil {
		p.callHook(func() { f(took, err) })
	}
}

func (p *FlightSQLPool) rolledBack() {
	p.counters.rolledBack.Add(1)
	if f := p.cfg.Hooks.RolledBack; f != nil {
		p.callHook(f)
	}
}

// healthChanged is called on goroutines of the reservoir and of callers, with one
// turn of health at a time.
func (p *FlightSQLPool) healthChanged(reason error) {
	if log := p.cfg.Logger; log != nil {
		p.callHook(func() {
			if reason != nil {
				log.Error("flightpool: the server is unhealthy", "target", p.target, "reason", reason)
			} else {
				log.Info("flightpool: the server is healthy again", "target", p.target)
			}
		})
	}
	if f := p.cfg.Hooks.Health; f != nil {
		p.callHook(func() { f(reason) })
	}
}

func (p *FlightSQLPool) retried(op string, err error) {
	p.counters.retries.Add(1)
	if f := p.cfg.Hooks.Retried; f != nil {
		p.callHook(func() { f(op, err) })
	}
}

// userCode names what the user has put into Config in the errors of package callback.
const userCode = "a callback"

// callHook calls a hook of the pool's own, or the Logger. A panic or runtime.Goexit in
// it is counted and has no other consequence: the session that it is told of has
// yet to be given back.
func (p *FlightSQLPool) callHook(hook func()) {
	if err := callback.Isolate(userCode, func() error { hook(); return nil }); err != nil {
		p.hookFailed(err)
	}
}

func (p *FlightSQLPool) hookFailed(err error) {
	p.counters.hookFailures.Add(1)
	p.counters.lastHookError.Store(&err)
}

// Stats is what a pool is and has done.
type Stats struct {
	reservoir.Stats // of the connections and those who wait for them

	Calls    uint64 // stateless calls of the pool, repetitions not counted
	Failures uint64 // of these, calls that failed; a result that fails later is not counted
	Retries  uint64 // calls repeated on another connection, and transactions that InTx has run again
	Sessions uint64 // sessions and transactions begun, and batches sent by the pool

	// CancelsConfirmed and CancelsUnconfirmed count the cancel chains by
	// their outcome; each unconfirmed one has cost its connection.
	CancelsConfirmed, CancelsUnconfirmed uint64

	Resets, ResetFailures uint64 // sessions cleaned on return; those whose connection was discarded for it
	RolledBack            uint64 // transactions left open and rolled back

	Times Times // how long waits, loans, opens and calls have taken

	// UnhealthySince and UnhealthyReason are set while the server is taken
	// to be unreachable.
	UnhealthySince  time.Time
	UnhealthyReason error
}

// counters are the pool's own; those of the connections are the reservoir's.
type counters struct {
	calls, failures, retries, sessions   atomic.Uint64
	cancelsConfirmed, cancelsUnconfirmed atomic.Uint64
	resets, resetFailures, rolledBack    atomic.Uint64
	hookFailures                         atomic.Uint64
	lastHookError                        atomic.Pointer[error]
}

// Stats is a snapshot. It does not wait for anybody.
func (p *FlightSQLPool) Stats() Stats {
	s := Stats{
		Stats: p.conns.Stats(),
		Calls: p.counters.calls.Load(), Failures: p.counters.failures.Load(), Retries: p.counters.retries.Load(), Sessions: p.counters.sessions.Load(),
		CancelsConfirmed: p.counters.cancelsConfirmed.Load(), CancelsUnconfirmed: p.counters.cancelsUnconfirmed.Load(),
		Resets: p.counters.resets.Load(), ResetFailures: p.counters.resetFailures.Load(), RolledBack: p.counters.rolledBack.Load(),
		Times: p.times.snapshot(),
	}
	s.HookFailures += p.counters.hookFailures.Load()
	if err := p.counters.lastHookError.Load(); err != nil {
		s.LastHookError = *err
	}
	s.UnhealthySince, s.UnhealthyReason = p.health.unhealthySince()
	return s
}
