package reservoir

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// A failure is why an open made nothing, and what its error says of that. The methods of an error are
// the user's code and may do whatever that may: they are called once, and apart.
type failure struct {
	cause     error
	inAdmit   bool
	exhausted bool
	lasting   bool               // Permanent
	left      *stillClosingError // or nil
}

// failureOf calls f and returns what it has failed with, or nil.
func failureOf(f func() error) *failure {
	cause := callback.Isolate(who, f)
	if cause == nil {
		return nil
	}
	failed := &failure{cause: cause}
	if err := callback.Isolate(who, func() error { failed.read(); return nil }); err != nil {
		failed.cause = err // nobody is to call those methods again
	}
	return failed
}

// read asks the error. What was left behind is that of the reservoir that asks first: another's may be behind
// Open.
func (f *failure) read() {
	var left *stillClosingError
	if errors.As(f.cause, &left) && !left.taken.Swap(true) {
		f.left = left
	}
	f.exhausted = errors.Is(f.cause, ErrExhausted)
	f.lasting = IsPermanent(f.cause)
}

// lookAt calls f, which looks at a new connection, and returns an *UnusableError of what it has failed with, and whether that
// is Permanent.
func lookAt(f func() error) (lasting bool, unusable error) {
	failed := failureOf(f)
	if failed == nil {
		return false, nil
	}
	return failed.lasting, &UnusableError{failed.cause}
}

// openFailed ends an open that made nothing. One that failed because a budget is full
// fails no waiter: there may be room before their deadlines. An open that Close
// cancelled counts as skipped, not as failed. What is still being closed counts until that is over.
func (r *Reservoir[C]) openFailed(e *entry[C], failed *failure, began int64) {
	if failed.left == nil {
		_ = releasePermission(e.release) // the open's own error matters more
	}
	full := failed.inAdmit && failed.exhausted
	var fx effects[C]
	r.mu.Lock()
	r.admitted(e)
	now := r.clock.read()
	closed := r.mu.closed
	if closed {
		r.mu.stats.OpensSkipped++
	} else {
		r.mu.stats.OpenFailures++
		r.mu.lastOpenErr = failed.cause
	}
	if !full {
		// Of opens that overlap, the last to fail may not be the last to begin.
		r.mu.failedUpTo = max(r.mu.failedUpTo, e.lastWaiterAtOpen)
	}
	if now >= r.mu.retryAt { // opens that fail together are one failure
		r.backOff(r.mu.failures, now)
	}
	if !failed.inAdmit {
		r.mu.serverFails = true
	}
	switch {
	case failed.left != nil:
		r.countPromised() // the server has a connection less then, too
		e.reason, e.cause = Discarded, failed.cause
		r.move(e, closing)
	case failed.inAdmit:
		r.remove(e)
	default:
		r.countPermission()
		r.remove(e)
	}
	if r.live() == 0 && !full && !closed { // else Close tells them
		r.failWaitersUpTo(r.mu.failedUpTo, failed.cause, failed.lasting, &fx)
	}
	r.reconcile(&fx)
	r.unlock(&fx)
	if hook := r.cfg.Hooks.OpenSkipped; hook != nil && closed {
		r.callHook(hook)
	}
	if hook := r.cfg.Hooks.OpenFailed; hook != nil && !closed {
		r.callHook(func() { hook(failed.cause, time.Duration(r.clock.exact()-began)) })
	}
	if failed.left != nil {
		r.awaitLeft(e, failed.left.closed)
	}
}

// awaitLeft ends the entry of an open that has failed once its connection is closed.
func (r *Reservoir[C]) awaitLeft(e *entry[C], closed <-chan struct{}) {
	defer r.watchClose(e)()
	<-closed
	_ = releasePermission(e.release) // its error has no receiver: the open was reported
	var fx effects[C]
	r.mu.Lock()
	r.remove(e)
	r.reconcile(&fx)
	r.unlock(&fx)
}

// backOff makes the next open wait, after so many that failed before this
// one. The caller holds mu.
func (r *Reservoir[C]) backOff(before int, now int64) {
	r.mu.failures = before + 1
	r.mu.retryAt = now + int64(retryPause(r.mu.failures, rand.Float64()))
}
