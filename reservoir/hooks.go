package reservoir

import "time"

// Hooks are told what happens in a reservoir. Each may be nil. They are called
// outside the reservoir's lock, from any goroutine and at the same time, so
// they must be safe for that, and quick. They may call the reservoir, but not
// wait for its Close. A panic in one is caught and counted (Stats.HookFailures).
type Hooks struct {
	// Opening: Open is about to be called.
	Opening func()
	// Opened: Open has made a connection.
	Opened func(took time.Duration)
	// OpenFailed: Open or Admit failed.
	OpenFailed func(err error, took time.Duration)
	// OpenSkipped: an admitted open was not wanted any more, and Open was not
	// called, or Close has ended the open.
	OpenSkipped func()

	// WaitStart: a caller joined the queue.
	WaitStart func()
	// WaitEnd: a caller left the queue, with a connection when err is nil.
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
	// CloseStalled: a Close takes longer than CloseTimeout. It still counts.
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
