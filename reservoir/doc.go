// Package reservoir keeps connections ready and lends them.
//
// It knows of a connection only what Config's functions do with it, so that
// one core serves every protocol. It needs the standard library alone.
//
// # Life of a connection
//
//	             ┌────────────── settle ◄──────────────┐
//	             │                  ▲  ▲               │
//	opening ─────┤                  │  └── resetting ◄─┤ Release with Reset
//	   │         ├─► idle ──────────┼────────► loaned ─┤ Release
//	   │         │    │  └► checking┘          ▲  │
//	   │         ├────┼──── first waiter ──────┘  │ Discard, forced Close
//	   ▼         ▼    ▼                           ▼
//	  gone ◄── closing ◄──────────────────────────┘
//
// Every edge is one call of move, under the one lock. settle decides on all
// paths: a connection that must not be lent (closed, old generation, expired)
// or is one too many is closed, else the first live waiter gets it, else it is
// idle. An open that fails, or is not wanted any more, is gone at once.
//
// # What always holds
//
// The INVARIANT lines stand beside the state that they guard; verify checks
// them at the end of every locked section under the race detector.
//
//   - opening + idle + in use + closing == total <= MaxSize (+ overflow). A
//     connection counts until its Close has returned. Only Resize can leave the
//     total above the bound, for as long as loans last.
//   - A usable idle connection and a waiter never coexist. Waiters are served
//     in the order of arrival; nobody overtakes.
//   - A caller whose ctx has ended gets no connection; one that was on its way
//     to him goes to the next.
//   - Callers do no I/O. Opens run on the reservoir's own context, for whoever
//     waits first.
//   - Under the lock there is only arithmetic. What is to be done is collected
//     in effects and carried out after the unlock.
//
// # Opens
//
// pump compares what is wanted with what is under way, after every change:
// one open per waiter, MinIdle fresh idle connections, one replacement per
// stale one, what WaitReady asks for. After Admit an open looks again whether
// it is wanted, and gives the permission back if not. After a failure there is
// one open at a time, after a pause that doubles from 10ms to 1s, until one
// succeeds. An open's error reaches the callers who were in the queue when Open
// was called, and only when there is no other connection left that could serve
// them. Admit's error reaches those who were there when Admit was called; that
// the budget is full (ErrExhausted) reaches nobody, since it passes.
//
// # Age
//
// A connection's life is MaxLifetime and a part of LifetimeJitter; the parts of
// connections that are opened together are spread evenly. In the last
// GuardWindow of its life it is not lent. Some time before, enough to replace
// the whole reservoir and at most a quarter of a life, it is stale: it is still
// lent, but fresh connections are opened in the place of stale idle ones, first
// opened and then closed where MaxSize has room, else a few closed at a time.
// A stale one that nobody used for IdleTTL is not replaced.
//
// IdleTTL is looked at where connections are taken and returned, not by a
// clock: an unused reservoir keeps its connections, until their lifetime ends.
//
// # Loss
//
// A connection that ends by itself, as Watch can tell, does not stay idle: it
// is closed and what it leaves missing is opened. In its first second of life
// it counts as a failed open, so that the pauses grow there too.
//
// # Time
//
// There is no goroutine per reservoir. One timer, alarm, fires at the next
// moment at which anything is due. Deadlines and expiries are exact. Idle ages
// and held times come from a clock that is read at most every 10ms under load
// (see clock), since reading the system's would cost more than all the rest.
//
// # Why it is built so
//
// One mutex, two intrusive lists and counters, rather than lock-free stacks:
// an acquire and a release take four atomic operations, every rule above can
// be checked at one point, and any idle connection leaves the list in O(1).
// Waiters carry no timer each: they all have the same timeout, so the first in
// the queue always has the earliest deadline, and alarm serves them all.
//
// After a direct hand-off Release yields the processor once, so that the woken
// caller uses the connection at once and not when the releaser happens to
// pause. Where every borrower yields by itself this costs some throughput
// (internal/bench, work handoff); where releasers go on computing on a busy
// machine it keeps the scarce thing, the connection, in use.
//
// # What it does not do
//
// It does not retry work, does not know transactions, does not take a
// connection from a borrower except at the end of Close's ctx, and does not
// stop an Open, Check or Close that ignores its context: it goes on counting it.
//
// # Files
//
//	config, hooks, stats, errors, loan       what users see
//	reservoir     the state, New, Resize, Reset, EvictIdle; verify
//	acquire, waiter, ready                   callers and their queue
//	entry, list   connections and their state; settle: what becomes of them
//	refill        which opens are missing; sweep: what time brings
//	steer         what an owner of many reservoirs does to one of them
//	expire, clock arithmetic of time; leak: loans that are out too long
//	close, lost   the end of one connection, by us or by itself, and of all
//	effects       what is done after the unlock
package reservoir
