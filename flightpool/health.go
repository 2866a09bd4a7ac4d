package flightpool

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
)

// UnhealthyError says why and since when a server is taken to be unreachable.
// errors.Is finds ErrUnhealthy and the reason in it.
type UnhealthyError struct {
	Reason error     // the last failure
	Since  time.Time // of the first failure in the row that made it unhealthy
	Next   time.Time // of the next trial
}

func (e *UnhealthyError) Error() string {
	return fmt.Sprintf("server unhealthy since %s: %v", e.Since.Format(time.RFC3339), e.Reason)
}

// Unwrap gives ErrUnhealthy and the reason.
func (e *UnhealthyError) Unwrap() []error { return []error{ErrUnhealthy, e.Reason} }

// health counts failures to reach the server. It has no goroutine: while the
// server is unhealthy one caller after the other is let through as the trial,
// at intervals that double up to the longest.
//
// INVARIANT: a server is not found unhealthy before its outage, as far as attempts have
// shown, has lasted for minOutage. A gap of maxOutageGap without an attempt ends an
// outage: a failure of hours ago says nothing about the one of now.
type health struct {
	failures, recoveries int                // thresholds; failures < 0: off
	minOutage            time.Duration      // how long the failures must have gone on, at least; 0: they are counted alone
	onUnhealthy          func()             // called at once when the server has turned unhealthy
	onChange             func(reason error) // told of every change, one after the other

	changes     callback.Notices[error] // of which onChange has not been told; added under mu
	isUnhealthy atomic.Bool             // whether mu.reason is set; written under mu

	mu struct {
		sync.Mutex
		failed      int // in a row, of one outage
		succeeded   int // in a row, since unhealthy
		since       time.Time
		lastCounted time.Time // of the last failure that counted
		lastFailure time.Time // of the last failure of all, those that overlap included
		reason      error     // nil: healthy
		pause       time.Duration
		next        time.Time
		attempts    uint64 // that have ended, however
		trials      uint64 // that were given out
	}
}

const (
	firstPause   = 250 * time.Millisecond
	longestPause = 10 * time.Second

	// maxOutageGap is the longest time without an attempt between two failures of
	// one outage. Opens that are tried again come no more than a second apart, and
	// may wait for a budget.
	maxOutageGap = 5 * time.Second
)

// failed takes note of a failed attempt to reach the server that took that long. Only
// transport faults count: a server that refuses a password can be reached. Attempts
// that overlap are one: a single break ends many connections.
func (h *health) failed(err error, took time.Duration) {
	transport := backend.FaultIn(err) == backend.FaultTransport
	now := time.Now()
	began := now.Add(-took)
	h.mu.Lock()
	h.mu.attempts++
	if !transport || h.failures < 0 {
		h.mu.Unlock()
		return
	}
	gap := began.Sub(h.mu.lastFailure)
	h.mu.lastFailure = now
	if h.mu.failed > 0 && !began.After(h.mu.lastCounted) {
		h.mu.Unlock()
		return
	}
	h.mu.lastCounted = now
	if h.mu.reason == nil && h.minOutage > 0 && gap > maxOutageGap {
		h.mu.failed = 0
	}
	if h.mu.failed == 0 && h.mu.reason == nil {
		h.mu.since = now
	}
	h.mu.failed++
	h.mu.succeeded = 0
	changed := h.mu.reason == nil && h.mu.failed >= h.failures && now.Sub(h.mu.since) >= h.minOutage
	if changed || h.mu.reason != nil {
		h.mu.reason = err
	}
	if changed {
		h.isUnhealthy.Store(true)
		h.mu.pause = firstPause
		h.mu.next = now.Add(firstPause)
		h.changes.Add(err)
	}
	h.mu.Unlock()
	if changed {
		h.onUnhealthy()
		h.changes.Tell(h.onChange)
	}
}

// succeeded takes note of an open or a check that has succeeded.
func (h *health) succeeded() {
	h.mu.Lock()
	h.mu.attempts++
	h.mu.failed = 0
	changed := h.countSuccess()
	h.mu.Unlock()
	if changed {
		h.changes.Tell(h.onChange)
	}
}

// answered takes note of a call that has ended well. While the server is unhealthy
// it is a success, once an open or a check has succeeded since the last failure: a
// connection of before the outage may live while no other can be made. Otherwise the
// successes that are still missing would have to come from further opens and checks,
// which a pool whose one connection is in use does not make.
func (h *health) answered() {
	if !h.isUnhealthy.Load() {
		return
	}
	h.mu.Lock()
	changed := h.mu.succeeded > 0 && h.countSuccess()
	h.mu.Unlock()
	if changed {
		h.changes.Tell(h.onChange)
	}
}

// countSuccess counts a success and says whether the server is healthy again by it. The
// caller holds mu.
func (h *health) countSuccess() (changed bool) {
	if h.mu.reason == nil {
		return false
	}
	if h.mu.succeeded++; h.mu.succeeded < h.recoveries {
		return false
	}
	h.isUnhealthy.Store(false)
	h.mu.reason, h.mu.succeeded = nil, 0
	h.changes.Add(nil)
	return true
}

// A trial is the permission of a call to find out whether an unhealthy server is
// back. The zero value is that of a call that needs none.
type trial struct {
	health           *health
	number, attempts uint64
	pause            time.Duration // what it was before
	next             time.Time     // likewise
}

// allowTrial lets a call wait for a connection that is not there yet: the server is
// healthy, or it is time for a trial and this call is it.
func (h *health) allowTrial() (trial, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.reason == nil {
		return trial{}, nil
	}
	now := time.Now()
	if now.Before(h.mu.next) {
		return trial{}, h.unhealthyError()
	}
	h.mu.trials++
	t := trial{h, h.mu.trials, h.mu.attempts, h.mu.pause, h.mu.next}
	h.mu.pause = min(2*h.mu.pause, longestPause)
	h.mu.next = now.Add(h.mu.pause)
	return t, nil
}

// returnUnused leaves the trial to the next call, unless an attempt has ended since it
// was given out, or another trial was.
func (t trial) returnUnused() {
	h := t.health
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.reason != nil && h.mu.attempts == t.attempts && h.mu.trials == t.number {
		h.mu.pause, h.mu.next = t.pause, t.next
	}
}

// unhealthy describes an unhealthy server; nil: it is healthy.
func (h *health) unhealthy() *UnhealthyError {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.reason == nil {
		return nil
	}
	return h.unhealthyError()
}

// unhealthyError is the error of an unhealthy server. The caller holds mu.
func (h *health) unhealthyError() *UnhealthyError {
	return &UnhealthyError{Reason: h.mu.reason, Since: h.mu.since, Next: h.mu.next}
}

// unhealthySince is since when and why the server is unhealthy, or nil.
func (h *health) unhealthySince() (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.reason == nil {
		return time.Time{}, nil
	}
	return h.mu.since, h.mu.reason
}

// allowWait lets a call wait for a connection unless nobody waits for an
// unreachable server.
func (p *FlightSQLPool) allowWait() (trial, error) {
	if p.health.unhealthy() == nil || p.waitsWhenUnhealthy() {
		return trial{}, nil
	}
	return p.health.allowTrial()
}

// waitsWhenUnhealthy reports whether callers wait for an unhealthy server: there is a
// connection, in use or idle by now, that they may get, or the user has said so.
func (p *FlightSQLPool) waitsWhenUnhealthy() bool {
	if p.cfg.OpenRetry == OpenRetryAlways {
		return true
	}
	s := p.conns.Stats()
	return s.InUse+s.Idle > 0
}

// failWaiters ends the wait of everybody when the server has become unhealthy.
func (p *FlightSQLPool) failWaiters() {
	<-p.connsSet // an open may fail before the reservoir's New returns
	if down := p.health.unhealthy(); down != nil && !p.waitsWhenUnhealthy() {
		p.conns.FailWaiters(down)
	}
}
