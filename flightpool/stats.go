package flightpool

import (
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// Stats is what a pool is and has done.
type Stats struct {
	reservoir.Stats // of the connections and those who wait for them

	Calls    uint64 // stateless calls of the pool, repetitions not counted
	Failures uint64 // of these, calls that failed; a result that fails later is not counted
	Retries  uint64 // calls repeated on another connection
	Sessions uint64 // SessionHandles given out

	// CancelsConfirmed and CancelsUnconfirmed count the cancel chains by
	// their outcome; each unconfirmed one has cost its connection.
	CancelsConfirmed, CancelsUnconfirmed uint64

	Resets, ResetFailures uint64 // sessions cleaned on return; those whose connection was discarded for it
	RolledBack            uint64 // transactions left open and rolled back

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
	}
	s.HookFailures += p.counters.hookFailures.Load()
	if err := p.counters.lastHookError.Load(); err != nil {
		s.LastHookError = *err
	}
	s.UnhealthySince, s.UnhealthyReason = p.health.unhealthySince()
	return s
}
