package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flightpool/flightpool/internal/sqlscan"
)

// SessionHandle holds one connection, and with it one server session, for as
// long as a transaction, temporary tables or prepared statements need it. The
// caller must Close it.
//
// A handle runs one call at a time; a result counts as a call until it has
// ended. A second call meanwhile fails with ErrBusy. Close may come from any
// goroutine at any time.
type SessionHandle struct {
	conn   Conn
	policy *Policy

	// stateless says that the handle carries a single call of a pool: the
	// end of the call closes it.
	stateless bool

	// mu is held for bookkeeping only, never across a call of conn, a hook
	// or the release of the connection.
	mu struct {
		sync.Mutex
		state   state
		current *QueryResult       // the open result, while busy with one
		cutting context.CancelFunc // ends the RPCs of the call under way, if it may be cut
		settled chan struct{}      // closed at the end of cancelling
		lost    error              // why the session is gone, or nil
		doomed  error              // why the connection must not be reused, or nil
		doubt   bool               // the connection must prove itself before reuse
		closing bool               // Close came while a call was under way
		touched time.Time          // the last answer of the server
		returns func(error)        // gives the connection back; nil once done

		tx       transaction
		prepared map[*PreparedQuery]struct{}
		dirt     dirt
	}
}

// state is what a handle is doing.
type state uint8

const (
	idle       state = iota
	busy             // a call is under way, or its result is open
	cancelling       // the caller has gone; the outcome is being found out
	cleaning         // Close is taking back what the session left
	closed
)

// New makes a handle on conn. returns is called exactly once, when the handle
// is done with the connection: with nil for reuse, or with the reason to
// discard it.
func New(conn Conn, policy *Policy, returns func(discard error)) *SessionHandle {
	s := &SessionHandle{conn: conn, policy: policy}
	s.mu.returns = returns
	s.mu.touched = time.Now()
	return s
}

// NewStateless makes a handle for a single call, at whose end the handle
// closes itself.
func NewStateless(conn Conn, policy *Policy, returns func(discard error)) *SessionHandle {
	s := New(conn, policy, returns)
	s.stateless = true
	return s
}

// begin makes the handle busy with a new call. While an earlier call is being
// cancelled it waits for the outcome, as long as ctx allows.
func (s *SessionHandle) begin(ctx context.Context, op string, opts QueryOptions, uncut bool) (*call, error) {
	for {
		wait, err := s.enter()
		if err == nil && wait == nil {
			break
		}
		if err != nil {
			return nil, s.refuse(op, err)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, &Error{Op: op, Stage: StageAcquire, Fault: FaultContext, Target: s.policy.Target, Unsent: true,
				Ctx: ctx.Err(), Err: errors.New("the previous call is still being cancelled")}
		}
	}
	c := s.newCall(ctx, op, opts, uncut)
	if !c.uncut {
		s.mu.Lock()
		s.mu.cutting = c.endRPC
		s.mu.Unlock()
	}
	if err := c.ctx.Err(); err != nil {
		return nil, c.end(&Error{Stage: StageArgument, Fault: FaultContext, Unsent: true, Err: err})
	}
	return c, nil
}

// enter takes the handle from idle to busy, or tells what to wait for.
func (s *SessionHandle) enter() (wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closing, s.mu.state == closed, s.mu.state == cleaning:
		return nil, ErrHandleClosed
	case s.mu.lost != nil:
		return nil, lostError(s.mu.lost)
	case s.mu.state == cancelling:
		return s.mu.settled, nil
	case s.mu.state == busy:
		return nil, ErrBusy
	}
	s.mu.state = busy
	return nil, nil
}

// refuse is the error of a call of which nothing was sent.
func (s *SessionHandle) refuse(op string, err error) error {
	e := &Error{Op: op, Stage: StageArgument, Fault: FaultUsage, Target: s.policy.Target, Unsent: true, Err: err}
	if errors.Is(err, ErrSessionLost) {
		e.Fault = FaultSession
	}
	return e
}

func lostError(cause error) error {
	if errors.Is(cause, ErrSessionLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrSessionLost, cause)
}

// answered takes note of a call that the server has answered.
func (s *SessionHandle) answered(c *call) {
	s.mu.Lock()
	s.mu.touched = time.Now()
	s.note(c.script)
	s.leave()
}

// failed takes note of a call that ended in e, and starts the cancel chain
// where nobody knows what the server is doing.
func (s *SessionHandle) failed(c *call, e *Error) {
	lost := s.conn.Lost()
	s.mu.Lock()
	if !e.Unsent {
		s.note(c.script)
		if c.statement {
			s.mu.tx.statementFailed(e.Fault)
		}
	}
	switch {
	case lost != nil || e.Fault == FaultTransport || e.Fault == FaultSession:
		if lost == nil {
			lost = e.Err
		}
		s.mu.lost = lost
		if !errors.Is(e.Err, ErrSessionLost) {
			e.Err = fmt.Errorf("%w: %w", ErrSessionLost, e.Err)
		}
	case e.Fault == FaultContext && !e.Unsent:
		s.chase(c)
		return
	case e.Fault == FaultAuth:
		s.mu.doomed = e
	case !e.Fault.KeepsConn() && !e.Unsent:
		s.mu.doubt = true
	}
	s.leave()
}

// becomeCancelling marks that the caller of an uncut call has gone.
func (s *SessionHandle) becomeCancelling() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state = cancelling
	s.mu.settled = make(chan struct{})
}

// leave ends the busy or cancelling state and lets go of a lost connection.
// It is called with the lock held and gives it up.
func (s *SessionHandle) leave() {
	if s.mu.settled != nil {
		close(s.mu.settled)
		s.mu.settled = nil
	}
	s.mu.state = idle
	s.mu.current, s.mu.cutting = nil, nil
	finish := s.stateless || s.mu.closing
	var drop func(error)
	cause := s.mu.lost
	if cause != nil && !finish {
		// The handle lives on to say so, but its connection does not: the
		// pool may open another one now.
		drop, s.mu.returns = s.mu.returns, nil
	}
	if finish {
		s.mu.state = cleaning
	}
	s.mu.Unlock()
	switch {
	case finish:
		_ = s.finish() // it has gone into the reason to discard
	case drop != nil:
		drop(lostError(cause))
	}
}

// note records what a statement that was sent leaves behind. The lock is held.
func (s *SessionHandle) note(script sqlscan.Script) {
	if !script.Empty() {
		s.mu.dirt.add(script)
	}
}

// Close rolls back an open transaction, closes what is open, makes the session
// clean and returns the connection to its pool. It is bounded by the pool's
// CloseTimeout. A call under way is cancelled and the connection returns when
// the outcome is known. Close is idempotent; its error says why the connection
// was discarded, which harms nobody.
func (s *SessionHandle) Close() error {
	s.mu.Lock()
	switch s.mu.state {
	case idle:
		s.mu.state = cleaning
		s.mu.Unlock()
		return s.finish()
	case busy, cancelling:
		s.mu.closing = true
		result, cut := s.mu.current, s.mu.cutting
		s.mu.Unlock()
		if result != nil {
			result.interrupt(ErrHandleClosed)
		} else if cut != nil {
			cut()
		}
		return nil
	default:
		s.mu.Unlock()
		return nil
	}
}

// finish cleans the session and returns the connection. The state is cleaning.
func (s *SessionHandle) finish() error {
	s.mu.Lock()
	reason := s.mu.doomed
	if s.mu.lost != nil {
		reason = lostError(s.mu.lost)
	}
	s.mu.Unlock()
	var failure error
	if reason == nil {
		failure = s.clean()
		reason = failure
	}
	s.mu.Lock()
	s.mu.state = closed
	returns := s.mu.returns
	s.mu.returns = nil
	s.mu.Unlock()
	if returns != nil {
		returns(reason)
	}
	return failure
}
