package reservoir

import (
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// Hooks are told what happens in a reservoir. Each may be nil. They are called
// outside the reservoir's lock, from any goroutine and at the same time, so
// they must be safe for that, and quick. They may call the reservoir, but not
// wait for its Close. A panic in one is caught and counted (Stats.HookFailures).
//
// WaitStart, WaitEnd, Acquired, Released, Rejected and the Checked of CheckOnRelease run
// within the caller's call that they tell of, which may end after Close has returned.
type Hooks struct {
	// Opening: Open is about to be called.
	Opening func()
	// Opened: Open has made a connection.
	Opened func(took time.Duration)
	// OpenFailed: Open or Admit failed, or, with an UnusableError, what Open has made can't be lent
	// even once; Opened was told of that before.
	OpenFailed func(err error, took time.Duration)
	// OpenSkipped: an admitted open was not wanted any more, and Open was not
	// called, or Close has ended the open.
	OpenSkipped func()

	// WaitStart: a caller joined the queue.
	WaitStart func()
	// WaitEnd: a caller left the queue, with a connection when err is nil. It is told
	// of every wait, also where the caller's goroutine has ended or panics.
	WaitEnd func(waited time.Duration, err error)
	// Acquired: a caller got a connection; waited is 0 when one was idle.
	Acquired func(waited time.Duration)
	// Released: a loan ended, by Release or Discard. held is as exact as the
	// reservoir's clock: up to 10ms off.
	Released func(held time.Duration)
	// Rejected: a caller was refused at once, by FailFast or MaxWaiters.
	Rejected func()
	// Leaked: a loan is out for longer than LeakAfter.
	Leaked func(Leak)

	// Checked: Check has looked at a connection.
	Checked func(err error, took time.Duration)
	// Closing: Close is about to be called. cause is the error behind the
	// reason, if there is one.
	Closing func(reason Reason, cause error)
	// CloseStalled: a Close takes longer than CloseTimeout, or what StillClosing waits for (Discarded). It still counts.
	CloseStalled func(reason Reason)
	// Closed: Close has returned err; the permission of Admit was given back.
	Closed func(reason Reason, err error)
}

// A Leak is a loan that is out for long.
type Leak struct {
	// Held is for how long.
	Held time.Duration
	// Stack is where it was acquired, innermost call first.
	Stack string
}

// effects are what a section under the lock decided and did not do: nothing is called,
// started, sent or closed before the lock is released. They are chains through the
// entries and waiters themselves, so that deciding allocates nothing.
type effects[C any] struct {
	wake, lastWake *waiter[C] // first to last
	tasks          *entry[C]  // to open, check or close, as the state says
	begun          int        // how many of them
	funcs          []func()   // what is too rare for a chain of its own
}

// wakeWaiter wakes a waiter, which has left the queue and knows its result.
func (fx *effects[C]) wakeWaiter(w *waiter[C]) {
	if fx.wake == nil {
		fx.wake = w
	} else {
		fx.lastWake.nextEffect = w
	}
	fx.lastWake = w
}

// begin has what an entry's state asks for done on a goroutine of the reservoir: an open,
// a check, a close. The caller holds mu.
//
// INVARIANT: an entry with a task to come keeps its state until the task has begun.
func (r *Reservoir[C]) begin(e *entry[C], fx *effects[C]) {
	r.mu.tasks++
	e.nextEffect, fx.tasks = fx.tasks, e
	fx.begun++
}

func (fx *effects[C]) afterUnlock(f func()) { fx.funcs = append(fx.funcs, f) }

// unlock ends a section under the lock and carries its effects out. What it
// starts runs on the reservoir's context, not on that of the call that happens
// to have caused it.
func (r *Reservoir[C]) unlock(fx *effects[C]) {
	r.verify()
	r.mu.Unlock()
	for w := fx.wake; w != nil; {
		next := w.nextEffect // w belongs to its goroutine from the send on
		w.nextEffect = nil
		w.ready <- struct{}{}
		w = next
	}
	for e := fx.tasks; e != nil; {
		next := e.nextEffect // e belongs to its task from then on
		e.nextEffect = nil
		switch e.state {
		case opening:
			go r.open(e)
		case checking:
			go r.check(e)
		case closing:
			go r.close(e)
		case idle, loaned, resetting, gone: // have no task
		}
		e = next
	}
	for _, f := range fx.funcs {
		f()
	}
}

// callHook calls a hook from a goroutine of the reservoir. What goes wrong in it is
// counted and has no other consequence.
func (r *Reservoir[C]) callHook(hook func()) {
	if err := callback.Isolate(who, func() error { hook(); return nil }); err != nil {
		r.hookFailed(err)
	}
}

// callHookInline calls a hook from a caller's goroutine.
func (r *Reservoir[C]) callHookInline(hook func()) {
	callback.Guard(who, func() error { hook(); return nil }, func(err error) {
		if err != nil {
			r.hookFailed(err)
		}
	})
}

func (r *Reservoir[C]) hookFailed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.stats.HookFailures++
	r.mu.stats.LastHookError = err
}
