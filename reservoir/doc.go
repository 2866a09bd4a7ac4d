// Package reservoir keeps connections ready and lends them.
//
// It knows of a connection only what Config's functions do with it, so that
// one core serves every protocol. It needs the standard library alone.
//
// # Life of a connection
//
//	             ┌───────────── dispatch ◄─────────────┐
//	             │                  ▲  ▲               │
//	opening ─────┤                  │  └── resetting ◄─┤ Release with Reset
//	   │         ├─► idle ──────────┼────────► loaned ─┤ Release
//	   │         │    │  └► checking┘          ▲  │
//	   │         ├────┼──── first waiter ──────┘  │ Discard, forced Close
//	   ▼         ▼    ▼                           ▼
//	  gone ◄── closing ◄──────────────────────────┘
//
// Every edge is one call of move, under the one lock. destinationOf decides on all
// paths: a connection that must not be lent (closed, old generation, lost, expired), is
// one too many, has a successor or is given up for others (GiveUp) is closed, else the first live waiter gets it, else
// it is idle. An open that fails, or is not wanted any more, is gone at once,
// unless what it has made is still being closed (StillClosing).
//
// # What always holds
//
// The INVARIANT lines stand beside the state that they guard; verify checks
// them at the end of every locked section with the build tag invariants, and that the
// quick ways through Acquire and Release do what the long ones would.
//
//   - opening + idle + in use + closing == total <= MaxSize (+ overflow). A
//     connection counts until its Close has returned. Only Resize can leave the
//     total above the bound, for as long as loans last.
//   - A usable idle connection and a waiter never coexist, those apart who have
//     left and are about to be taken out of the queue. Waiters are served
//     in the order of arrival; nobody overtakes.
//   - A caller whose ctx has ended gets no connection; one that was on its way
//     to that caller goes to the next.
//   - Callers do no I/O. Opens run on the reservoir's own context, for whoever
//     waits first.
//   - Under the lock there is only arithmetic, and not more of it for many
//     connections or waiters than for few: what concerns many is done in batches
//     (batch), each under a hold of its own. What is to be done is collected in
//     effects and carried out after the unlock.
//   - No function of Config's and no hook is called under the lock, nor a method
//     of a caller's context. A panic in one is an error, and a call of
//     runtime.Goexit ends at most the goroutine of the caller in whose call it
//     happens: nothing is lost by either.
//
// # Opens
//
// demand, a pure function of counts, is compared with what is under way after
// every change: one open per waiter, what is missing to MinIdle, one successor
// per stale connection, what WaitReady asks for. After Admit an open looks again
// whether it is wanted, and gives the permission back if not; callers who have left
// meanwhile still want one of them, unless a connection is idle. After a failure
// there is one open at a time, after a pause that doubles from 10ms to 1s, until
// one succeeds. An open's error reaches the callers who were in the queue when
// Open was called, when there is no other connection left that could serve them
// and as OpenRetry says: by default those with a deadline wait for the next
// open. Admit's error reaches those who were there when Admit was called; that
// the budget is full (ErrExhausted) reaches nobody, since it passes.
//
// # Age
//
// A connection's life is MaxLifetime and a part of LifetimeJitter, or until ExpiresAt
// if that is earlier; with ReplaceAfter it is replaced at that age, and lives on until
// MaxLifetime only while no other can be opened; the parts of connections that are
// opened together are spread evenly. In the last GuardWindow of its life it is not
// lent. Some time before it is stale: it is still lent, and one successor is opened for
// it; when that is there, the stale one is closed as soon as nobody needs it. Where
// MaxSize has no room, stale ones are closed first, up to a quarter of MaxSize at a
// time, and none while opens fail. How early that begins follows from the time that
// opens were measured to take: with quick opens a connection is used for 98 % of its
// life. One that is in use all the time, by one borrower, has no successor opened
// before it comes back.
//
// IdleTTL closes by the clock what was idle for so long, as far as more than
// MinIdle connections were: a reservoir that is not used shrinks to MinIdle. The
// successor of an idle connection takes its place, and is idle since that was.
//
// # Checks
//
// Keepalive checks run beside each other, up to a quarter of MaxSize and no more
// than 64. With CheckOnAcquire a check runs for one waiter; once it takes longer
// than opens do, or one has failed, an open races what follows, and while that
// has no room a check is given up after a second.
//
// # Loss
//
// A connection that ends by itself, as Watch can tell, does not stay idle: it
// is closed and what it leaves missing is opened. In its first second of life
// it counts as a failed open, so that the pauses grow there too.
//
// # Time
//
// There is no goroutine per reservoir. One timer, sweepTimer, fires at the next moment
// at which anything is due; sweep does it. The times of connections are in a heap
// (timers), which borrowing and releasing do not touch. Deadlines and expiries are
// exact. Idle ages and held times come from a clock that is read at most every 10ms
// under load, or every 64 uses (see clock), since reading the system's would cost more
// than all the rest. Sums of times saturate (addSaturating). The clock is monotonic: it
// stands still while the machine is suspended.
//
// # Why it is built so
//
// One mutex, intrusive lists and counters, rather than lock-free stacks: an acquire and
// a release take four atomic operations, every rule above can be checked at one point,
// and any idle connection leaves the list in O(1). Waiters carry no timer each: they
// all have the same timeout, so the first in the queue always has the earliest
// deadline, and sweepTimer serves them all. A caller whose context ends leaves without
// the lock: one atomic word (waiter.status) decides between that and a result. The
// first of those who leave together takes all of them out of the queue (removeLeavers),
// so that whoever needs the lock does not queue behind each of them.
//
// After a direct hand-off Release yields the processor once, so that the woken
// caller uses the connection at once and not when the releaser happens to
// pause. Where every borrower yields by itself this costs some throughput
// (internal/tools/bench, work handoff); where releasers go on computing on a busy
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
//	config.go, hooks.go, stats.go, errors.go   what users see
//	loan.go, leak.go                     a loan from its beginning to its end; loans that are out too long
//	reservoir.go, reconfigure.go         the state, its clock and lists, and New; what changes of the configuration
//	acquire.go, waiter.go, leave.go      callers and their queue
//	fail.go, waitready.go                how waits fail; waits for readiness
//	demand.go                            which opens and replacements are missing
//	entry.go, dispatch.go                connections and their state; what becomes of them
//	open.go, openfail.go, check.go, close.go, evict.go      the calls of Config's functions; idle ones closed on request
//	giveup.go                                 connections given up for others, those in use too
//	sweep.go, lifetime.go                what time brings; how long connections live
//	verify.go, mutex.go, mutex_watched.go      what holds under the lock, checked with the tag invariants
package reservoir
