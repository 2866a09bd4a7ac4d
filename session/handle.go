package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/invariant"
)

// SessionHandle holds one connection, and with it one server session, for as
// long as a transaction, temporary tables or prepared statements need it. The
// caller must Close it.
//
// A handle runs one call at a time; a result counts as a call until it has
// ended. A second call meanwhile fails with ErrBusy. Close may come from any
// goroutine at any time.
type SessionHandle struct {
	conn   backend.Conn
	policy *Policy

	// stateless says that the handle carries a single call of a pool: the
	// end of the call closes it.
	stateless bool

	// preparing says that what is set stays: see NewKeeping.
	preparing bool

	// id is what the tracer knows the connection by; 0 of a stateless handle.
	id uint64

	// kept is what a prepared session proves itself by, nil of others: see Kept.
	kept *keptProof

	// op, trace and deadline are those of a stateless handle's call: see PoolCall.
	op       string
	trace    *Trace
	deadline time.Time

	// commits counts the calls of Commit that have not said that nothing is stored.
	commits atomic.Int32

	// mu is held for bookkeeping only, never across a call of conn, a hook
	// or the release of the connection.
	mu struct {
		sync.Mutex
		state         state
		call          *call         // the one under way, while busy
		ended         chan struct{} // closed at the end of ending
		rollbackDone  chan struct{} // closed when a rollback that nobody waits for has ended
		lost          error         // why the session is gone, or nil
		discardReason error         // why the connection must not be reused, or nil
		needsProbe    bool          // the connection must prove itself before reuse
		strayTx       strayTx       // the transaction of its own that a statement that failed may have left
		dropKept      bool          // no prepared statement may be kept on the connection: see Statements
		closing       bool          // Close came while a call was under way
		releaseConn   func(error)   // gives the connection back; nil once done

		tx            transaction
		proof         proof
		prepared      map[*PreparedQuery]struct{}
		sideEffects   sideEffects
		held          map[string]bool  // the keys of settings that changedSettings has of it
		sharedObjects *changedSettings // which counts a change of objects again when it ends, or nil
		ownObjects    uint64           // changes of objects by the session, temporary ones too, and their ends
		ownOpen       bool             // one has not ended
	}
}

// state is what a handle is doing.
type state uint8

const (
	idle     state = iota
	busy           // a call is under way, or its result is open
	ending         // the caller has gone; the call is being ended behind it
	cleaning       // Close is taking back what the session left
	closed
)

// New makes a handle on conn. releaseConn is called exactly once, when the handle
// is done with the connection: with nil for reuse, or with the reason to
// discard it.
func New(conn backend.Conn, policy *Policy, releaseConn func(discard error)) *SessionHandle {
	s := &SessionHandle{conn: conn, policy: policy, kept: policy.Kept.of(conn)}
	s.mu.releaseConn = releaseConn
	return s
}

// NewWithID is New for a connection that the Tracer is to know by id.
func NewWithID(conn backend.Conn, id uint64, policy *Policy, releaseConn func(discard error)) *SessionHandle {
	s := New(conn, policy, releaseConn)
	s.id = id
	return s
}

// NewStateless makes a handle for a single call, at whose end the handle closes itself.
// Nothing can be left to lose between two calls, so it needs no proof.
func NewStateless(conn backend.Conn, policy *Policy, releaseConn func(discard error)) *SessionHandle {
	return NewTraced(conn, policy, PoolCall{}, releaseConn)
}

// A PoolCall is a call that a pool has begun, and makes on one connection or the other.
type PoolCall struct {
	Op       string    // the pool's method, for errors; empty: that of the handle
	Trace    *Trace    // nil without a tracer
	Deadline time.Time // when its time is over, whatever its options say; zero: they do
}

// NewTraced is NewStateless for a call that has begun. The handle ends its trace, but for
// a call that fails before it has a result: its caller does, who may make it again.
func NewTraced(conn backend.Conn, policy *Policy, call PoolCall, releaseConn func(discard error)) *SessionHandle {
	s := New(conn, policy, releaseConn)
	s.stateless, s.op, s.trace, s.deadline = true, call.Op, call.Trace, call.Deadline
	return s
}

// begin makes the handle busy with a new call. While an earlier call is being ended in
// the background it waits for that, as long as ctx and the timeout of the call allow.
func (s *SessionHandle) begin(ctx context.Context, op string, opts QueryOptions, mode callMode) (begun *call, err error) {
	op = cmp.Or(s.op, op)
	ctx, trace := s.startTrace(ctx, op, opts)
	err = errCallbackExited // where a method of ctx ends the goroutine
	held := false
	defer func() {
		if !held && s.trace == nil {
			trace.End(err)
		}
	}()
	c := s.newCall(ctx, op, opts, mode)
	c.trace, c.quiet = trace, opts.quiet
	if err = s.awaitTurn(ctx, c, &opts); err != nil {
		return nil, err
	}
	held = true
	c.runCallersCode(func() {
		c.bindContext(opts)
		err = ctxerr.Of(c.ctx)
	})
	if err == nil && mode.cancels() {
		err = c.cause() // Close may have come already
	}
	if err != nil {
		return nil, c.finish(outcome{err: &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultContext, Unsent: true, Err: err}})
	}
	return c, nil
}

// unsentError is the error of a call of which nothing was sent.
func (s *SessionHandle) unsentError(op string, err error) error {
	e := &backend.Error{Op: op, Stage: backend.StageArgument, Fault: backend.FaultUsage, Target: s.policy.Target, Unsent: true, Err: err}
	if errors.Is(err, backend.ErrSessionLost) {
		e.Fault = backend.FaultSession
	}
	return e
}

func lostError(cause error) error {
	if errors.Is(cause, backend.ErrSessionLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", backend.ErrSessionLost, cause)
}

// markEnding marks that the call under way is ended in the background. Later calls wait
// for that. Only the call that holds the handle does so.
func (s *SessionHandle) markEnding() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.state != ending {
		s.mu.state = ending
		s.mu.ended = make(chan struct{})
	}
}

// becomeIdle ends the busy or ending state and lets go of a lost connection. The
// caller of c, if there is one, waits for what that sends, as far as its context
// allows.
//
// INVARIANT: the handle is busy or ending, so that nobody else is giving its
// connection back, or has. It is so until a lost connection is gone: who has waited for
// the end of the call finds it out of the pool's count, unless a hook of the owner's that
// is told of the return keeps it for longer than a call waits (tryBegin).
func (s *SessionHandle) becomeIdle(c *call) {
	s.mu.Lock()
	invariant.Check(s.mu.state == busy || s.mu.state == ending, "a call leaves a handle in state %d", s.mu.state)
	if !s.mu.tx.openOnServer() && s.mu.strayTx == noStrayTx {
		s.settleObjectsLocked()
	}
	if s.mu.lost == nil || s.mu.releaseConn == nil || s.stateless || s.mu.closing {
		s.becomeIdleLocked(c)
		return
	}
	// The handle lives on to say so, but its connection does not: the pool may open
	// another one now.
	release, cause := s.mu.releaseConn, s.mu.lost
	s.mu.releaseConn = nil
	if s.mu.state = ending; s.mu.ended == nil {
		s.mu.ended = make(chan struct{})
	}
	s.mu.Unlock()
	defer func() { // also when a hook of the owner's ends the goroutine
		s.mu.Lock()
		s.becomeIdleLocked(c)
	}()
	release(lostError(cause))
}

// becomeIdleLocked is becomeIdle once a lost connection is gone. The lock is held, and
// released.
func (s *SessionHandle) becomeIdleLocked(c *call) {
	if s.mu.ended != nil {
		close(s.mu.ended)
		s.mu.ended = nil
	}
	s.mu.state = idle
	s.mu.call = nil
	finish := s.stateless || s.mu.closing
	var release func(error)
	switch {
	case finish && s.isClean(): // the common case: nothing is sent
		s.mu.state = closed
		release, s.mu.releaseConn = s.mu.releaseConn, nil
	case finish:
		s.mu.state = cleaning
	}
	s.mu.Unlock()
	switch {
	case release != nil:
		release(nil)
	case finish && c != nil:
		s.cleanAndReturnFor(func() <-chan struct{} { return c.callerGone })
	case finish: // no caller waits for it
		_ = s.cleanAndReturn()
	}
}

// isClean reports whether the connection can be given back as it is, at once. The lock
// is held.
func (s *SessionHandle) isClean() bool {
	return s.mu.lost == nil && s.mu.discardReason == nil && !s.policy.ReturnWaits && !s.needsCleaning() && !s.discardsUsed(s.mu.sideEffects)
}
