package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// health is what is known of a server. While it is healthy, the opens, checks and
// loans of its pools are the evidence. While it is not, nothing is opened but for the
// probes of the registry, and they alone are the evidence.
//
// The evidence comes by the hooks of the pools and from package sqlconn. What a server
// says, be it a refusal, is evidence that it can be reached.
type health struct {
	server       string
	down         atomic.Pointer[UnhealthyError]    // nil: healthy. Read on every call
	onTransition func(*UnhealthyError)             // called outside the lock for every change of down, in order
	transitions  callback.Notices[*UnhealthyError] // of which onTransition has not been told; added under mu
	checksPassed atomic.Uint64
	checksFailed atomic.Uint64
	faultsInRow  atomic.Int64 // copy of mu.faultsInRow, read without the lock

	mu struct {
		sync.Mutex
		check            HealthCheck
		faultsInRow      int // in a row
		successesInRow   int // probes in a row, while unhealthy
		faultsSince      time.Time
		lastSuccess      time.Time // the latest success
		probePause       time.Duration
		next             time.Time // of the next probe, while unhealthy
		probe            *probe    // under way; nil: none
		probeMayBeQueued bool      // it may be in a queue
	}
}

// firstProbePause is the pause before the first probe of a server that turned
// unhealthy, and between those that succeed.
const firstProbePause = 100 * time.Millisecond

// isServerFault reports whether err says that the server could not be reached. A server
// that refuses a password or a statement was, and what we have cancelled ourselves, with
// its pool, has shown nothing.
func isServerFault(err error) bool {
	var flight *backend.Error
	if errors.As(err, &flight) {
		noAnswer := flight.Fault == backend.FaultContext && flight.Stage != backend.StageAcquire && !wasCancelled(err)
		return flight.Fault == backend.FaultTransport || noAnswer
	}
	return sqlconn.Unreachable(err)
}

// showsNothing reports whether err is of an open, or a check, by which the server was not asked: cancelled, waiting for a
// permission, or what Kind.Connector says of it.
func showsNothing(err error) bool {
	return wasCancelled(err) || errors.Is(err, ErrExhausted) || errors.As(err, new(interface{ NotAsked() }))
}

// wasCancelled reports whether err is of what was cancelled, by a caller or with its pool, before anybody knew more.
func wasCancelled(err error) bool { return errors.Is(err, context.Canceled) }

// recordCheck takes what an open or a check of a pool has shown. An open that fails
// counts, one that succeeds ends no row of faults: see recordAnswer. One that has waited for
// a permission, as Kind.Connector has it, has shown nothing.
func (h *health) recordCheck(err error, open bool) {
	if showsNothing(err) {
		return
	}
	if err != nil && isServerFault(err) {
		h.checksFailed.Add(1)
		h.recordFault(err)
		return
	}
	h.checksPassed.Add(1)
	h.mu.Lock()
	h.mu.lastSuccess = time.Now()
	h.mu.Unlock()
	if !open {
		h.recordAnswer()
	}
}

// recordAnswer takes note of a check, a statement or a reset that the server has
// answered: that ends a row of faults. An open does not: a proxy opens connections to a
// database that is gone. It is called for every statement, and takes no lock while no
// fault is on record.
func (h *health) recordAnswer() {
	if h.faultsInRow.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.Load() == nil {
		h.mu.faultsInRow = 0
		h.faultsInRow.Store(0)
	}
}

// recordLoss takes note of a connection that broke under its borrower, as it has shown itself.
func (h *health) recordLoss(cause error) {
	if cause != nil && !errors.As(cause, new(interface{ SaidByBorrower() })) && isServerFault(cause) {
		h.recordFault(cause)
	}
}

// recordFault counts a fault. The one that reaches FailureThreshold makes the server
// unhealthy; those that come after it, from what was under way, count for nothing.
func (h *health) recordFault(err error) {
	now := time.Now()
	h.mu.Lock()
	if h.mu.check.Disabled || h.down.Load() != nil {
		h.mu.Unlock()
		return
	}
	if h.mu.faultsInRow == 0 {
		h.mu.faultsSince = now
	}
	h.mu.faultsInRow++
	h.faultsInRow.Store(int64(h.mu.faultsInRow))
	if h.mu.faultsInRow < h.mu.check.FailureThreshold {
		h.mu.Unlock()
		return
	}
	h.mu.successesInRow, h.mu.probePause = 0, firstProbePause
	h.transitions.Add(h.markUnhealthy(err, now))
	h.mu.Unlock()
	h.transitions.Tell(h.onTransition)
}

// markUnhealthy makes the server unhealthy from now on. The caller holds mu. It is also
// called for each probe that fails: calls then tell the latest reason and when the next
// probe is. Since stays.
func (h *health) markUnhealthy(err error, now time.Time) *UnhealthyError {
	h.mu.next = now.Add(h.mu.probePause - rand.N(h.mu.probePause/4+1)) // servers that fail together are not probed together
	down := &UnhealthyError{Server: h.server, Reason: err, Since: h.mu.faultsSince, Next: h.mu.next}
	h.down.Store(down)
	return down
}

// recordProbe takes the result of a probe of an unhealthy server.
func (h *health) recordProbe(err error) {
	now := time.Now()
	h.mu.Lock()
	if h.down.Load() == nil {
		h.mu.Unlock()
		return
	}
	if err != nil {
		h.mu.successesInRow = 0
		h.backOff(err, now)
		h.mu.Unlock()
		return
	}
	h.mu.successesInRow++
	if h.mu.successesInRow < h.mu.check.RecoveryThreshold {
		h.mu.next = now.Add(min(firstProbePause, h.mu.check.Interval))
		h.mu.Unlock()
		return
	}
	h.markHealthy()
	h.mu.Unlock()
	h.transitions.Tell(h.onTransition)
}

// recordInconclusiveProbe ends a probe that has shown nothing: the pause before the
// next one grows all the same. Else a server without a user to probe as would be probed
// without a pause.
func (h *health) recordInconclusiveProbe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if down := h.down.Load(); down != nil {
		h.backOff(down.Reason, time.Now())
	}
}

// backOff makes the pause until the next probe longer. The caller holds mu.
func (h *health) backOff(err error, now time.Time) {
	h.mu.probePause = min(2*h.mu.probePause, h.mu.check.Interval)
	_ = h.markUnhealthy(err, now)
}

// markHealthy makes the server healthy. The caller holds mu, and then tells
// of the transition.
func (h *health) markHealthy() {
	h.mu.faultsInRow, h.mu.successesInRow = 0, 0
	h.faultsInRow.Store(0)
	h.down.Store(nil)
	h.transitions.Add(nil)
}

// applyDefinition takes over what a definition says of health. A server that is not
// checked any more is healthy at once, and the next probe of one that is unhealthy comes no
// later than the interval says.
func (h *health) applyDefinition(check HealthCheck) {
	now := time.Now()
	h.mu.Lock()
	h.mu.check = check
	h.mu.probePause = min(h.mu.probePause, check.Interval)
	down := h.down.Load()
	recovered := check.Disabled && down != nil
	switch {
	case recovered:
		h.markHealthy()
	case down != nil && h.mu.next.After(now.Add(h.mu.probePause)):
		_ = h.markUnhealthy(down.Reason, now)
	}
	h.mu.Unlock()
	if recovered {
		h.transitions.Tell(h.onTransition)
	}
}

// beginAnew takes note that the server leads to another place, of which nothing is known yet. An unhealthy one is
// probed there soon, whatever the pause has grown to.
func (h *health) beginAnew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.successesInRow = 0
	if down := h.down.Load(); down != nil {
		h.mu.probePause = min(firstProbePause, h.mu.check.Interval)
		_ = h.markUnhealthy(down.Reason, time.Now())
		return
	}
	h.mu.faultsInRow = 0
	h.faultsInRow.Store(0)
}

// nextProbeAt is when the next probe is, or zero.
func (h *health) nextProbeAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down.Load() == nil || h.mu.probe != nil {
		return time.Time{}
	}
	return h.mu.next
}

func (h *health) lastHealthy() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.lastSuccess
}
