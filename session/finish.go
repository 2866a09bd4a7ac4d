package session

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/eof"
)

// outcome is what came of a call, as far as this side knows. The zero outcome is
// success: the server has answered and is done. An error goes before an interruption:
// if the server's answer has come, it counts.
type outcome struct {
	err error // what the call failed with

	// interruptedBy is why the RPC was ended before the server had answered, so that
	// nobody knows what the server is doing.
	interruptedBy error

	// unread are rows that nobody will read.
	unread backend.Stream

	// readerReleased says that the reader ended the result by its own choice, and was
	// told no failure. A read that was released early need not abort its transaction:
	// see mayKeepTx.
	readerReleased bool
}

// finish ends the call: the handle learns what became of the connection, and the
// caller's error comes back. What is left to do on the server, such as the rows that
// nobody reads and the call's own prepared statement, is done behind the caller, and
// the handle serves no other call meanwhile. The caller's error says what is known
// already. What fails later, behind the caller, aborts an open transaction or costs the
// connection, and reaches it so.
func (c *call) finish(o outcome) error {
	if o.unread == nil && c.ownStatement() == nil {
		return c.end(o)
	}
	c.s.markEnding()
	c.s.policy.goInBackground(func() { c.endInBackground(o) })
	if e := c.outcomeError(o); e != nil {
		return e
	}
	return nil
}

// endInBackground is end after completeOnServer. A panic or Goexit while unread rows
// are drained is caught here, since the caller has already returned. Allocators and
// drivers are the user's code, and a panic on this goroutine would end the process. The
// stream is closed, the statement is kept for the handle's Close, and the server is
// asked to cancel, since nobody knows how far it is.
func (c *call) endInBackground(o outcome) {
	var a callback.Attempt[outcome]
	defer func() {
		if !a.Returned {
			if o.unread != nil {
				o.unread.Close()
			}
			if stmt := c.ownStatement(); stmt != nil {
				c.s.registerUnclosed(stmt)
			}
			a.Value = outcome{interruptedBy: errCallbackExited}
		}
		_ = c.end(a.Value)
	}()
	a.Run(func() (outcome, error) { return c.completeOnServer(o), nil })
}

// end tells the handle. No RPC of the call is under way any more. From here on the
// connection is idle, lost or being cancelled behind the caller, and the handle belongs
// to the next call. The context of the caller is asked for its error, which is code of
// the caller's and may panic: the handle learns of the end of the call all the same.
func (c *call) end(o outcome) error {
	c.endRPC()
	defer func() { // until then the end of the caller's context is seen
		for _, f := range c.onEnd {
			f()
		}
	}()
	e, known := (*backend.Error)(nil), false
	defer func() {
		if !known { // a method of the caller's context has ended the goroutine
			e = &backend.Error{Op: c.op, Stage: backend.StageFetch, Fault: backend.FaultContext, Err: errCallbackExited}
			c.s.recordCallEnd(c, outcome{interruptedBy: errCallbackExited}, e)
			c.notifyEnd(e)
		}
	}()
	e = c.outcomeError(o)
	known = true
	c.s.recordCallEnd(c, o, e)
	c.notifyEnd(e)
	if e == nil {
		return nil
	}
	return e
}

// outcomeError is what the caller is told of the outcome, or nil.
func (c *call) outcomeError(o outcome) *backend.Error {
	switch {
	case o.err != nil:
		return c.wrapError(o.err)
	case o.interruptedBy != nil:
		return c.wrapError(&backend.Error{Stage: backend.StageFetch, Fault: backend.FaultContext, Err: o.interruptedBy})
	default:
		return nil
	}
}

// completeOnServer does what is left to do on the server, and returns what is known
// then. It runs in the background, while the handle is ending. The rows go first, since
// they are the statement's. A statement whose RPC may be running is not closed here,
// since the cancel comes before.
func (c *call) completeOnServer(o outcome) outcome {
	if o.unread != nil {
		ended, err := c.drainUnread(o)
		o.unread.Close()
		switch {
		case err != nil:
			o.err, o.readerReleased = err, false
		case !ended:
			o.interruptedBy = errReleasedEarly
		}
	}
	stmt := c.ownStatement()
	if stmt == nil || c.s.conn.Lost() != nil {
		return o
	}
	if e := c.outcomeError(o); e != nil && (e.Running || !e.Fault.KeepsConn()) {
		c.s.registerUnclosed(stmt) // closed with the handle, once the session is free
		return o
	}
	ctx, stop := c.s.policy.closeContext()
	defer stop()
	if err := stmt.Close(ctx); err != nil {
		c.s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
	}
	return o
}

// Limits for draining a result that its reader released early, before its read-only
// statement is cancelled. Most such results are nearly complete, and draining costs less
// than a cancel, which may abort a transaction.
const (
	drainBytes   = 1 << 20
	drainTime    = 100 * time.Millisecond
	drainBytesTx = 32 << 20
)

// drainUnread reads rows that nobody wants, within the bounds above, and reports
// whether the result has ended. A call that is not to be cancelled is read to
// its end, however far that is, and so is a change outside of a transaction: the
// server may store it only then, and who let its rows go is told no failure. In
// a transaction the failure is told by its Commit.
func (c *call) drainUnread(o outcome) (ended bool, err error) {
	whole := c.mode == finishWhenLeft || o.readerReleased && c.mayChange() && c.s.txState().phase == txNone
	bytes, limit := int64(drainBytes), drainTime
	if tx := c.s.txState(); tx.phase == txOpen {
		bytes, limit = drainBytesTx, max(limit, c.s.policy.grace())
		if c.s.acceptsUnknownTx() {
			// No statement can tell there whether the transaction has
			// outlived a cancel.
			limit = max(limit, c.s.policy.budget())
		}
	}
	if !c.s.runsSerially() && len(c.s.conn.CancelSteps(c.operation)) == 0 {
		// Nothing would show there that a cancel has worked.
		bytes, limit = math.MaxInt64, max(limit, c.s.policy.budget())
	}
	if !whole {
		timer := time.AfterFunc(limit, c.endRPC)
		defer timer.Stop()
	}
	for {
		batch, err := o.unread.Next()
		switch {
		case eof.Reached(err):
			return true, nil
		case err != nil && c.rpc.Err() != nil && backend.FaultIn(err) == backend.FaultContext:
			return false, nil
		case err != nil:
			return false, err
		}
		if bytes -= sizeOf(batch); bytes < 0 && !whole {
			c.endRPC()
			return false, nil
		}
	}
}

// mayChange reports whether the call, which has a result, may change something. A
// catalogue call and a read are never worth waiting for.
func (c *call) mayChange() bool { return !c.script.ReadOnly() }

// sizeOf is about how many bytes of buffers the batch holds. It bounds the work of
// reading on.
func sizeOf(batch arrow.RecordBatch) int64 {
	bytes := uint64(0)
	for _, column := range batch.Columns() {
		bytes += column.Data().SizeInBytes()
	}
	return int64(min(bytes, math.MaxInt64)) //nolint:gosec // it fits now
}

// Why calls are ended before the server has answered, where no context says so.
var (
	errReleasedEarly  = errors.New("result released before its end")
	errCallbackExited = errors.New("a callback or reader of the caller panicked or ended its goroutine")
)

// recordCallEnd takes note of a call that has ended in e, or well if e is nil, and
// starts the cancel chain where nobody knows what the server is doing. The first case
// that fits decides: what is lost is not cancelled, and what may still run is cancelled
// before anything else is sent, a ROLLBACK or a probe among it.
func (s *SessionHandle) recordCallEnd(c *call, o outcome, e *backend.Error) {
	var lost error
	if e != nil {
		lost = s.conn.Lost()
	}
	s.mu.Lock()
	s.recordSideEffects(c, e)
	s.recordTxOutcome(c, o, e)
	switch {
	case e == nil:
		s.mu.proof.recordAnswer(c.startedAt)
	case lost != nil || e.Fault == backend.FaultTransport || e.Fault == backend.FaultSession:
		if lost == nil {
			lost = e.Err
		}
		s.mu.lost = lost
		e.Err = lostError(e.Err)
	case !e.Unsent && (e.Fault == backend.FaultContext || e.Running):
		if e.Fault == backend.FaultAuth {
			s.mu.discardReason = e
		}
		tx := s.mu.tx
		s.mu.Unlock()
		s.startCancel(c, tx)
		return
	case e.Fault == backend.FaultAuth:
		s.mu.discardReason = e
	case e.Fault == backend.FaultStatement && s.mu.tx.phase == txNone && refusesAll(e):
		s.mu.discardReason, s.mu.strayTx = e, true
	case !e.Fault.KeepsConn() && !e.Unsent:
		s.mu.needsProbe = true
	}
	s.mu.Unlock()
	s.becomeIdle(c)
}

// recordSideEffects records what a statement that was sent leaves behind. A single statement
// that the server has refused left a setting at most, and all of it where the answer
// leaves open whether it is a refusal; a procedure or a script may have
// done something before it failed, such as to begin a transaction of its own,
// in which the session is then. The lock is held.
func (s *SessionHandle) recordSideEffects(c *call, e *backend.Error) {
	if c.script.Empty() || e == nil && c.script.PlainRead() || e != nil && e.Unsent {
		return
	}
	if e != nil && c.failedWhole(e) {
		if meaningOf(effect.Statement, e) == effect.Refused {
			s.mu.sideEffects.addRefused(c.script)
		} else {
			s.mu.sideEffects.add(c.script, false)
		}
		return
	}
	if e != nil && e.Fault == backend.FaultStatement && !c.script.Atomic() {
		s.mu.needsProbe = true
		s.mu.strayTx = s.mu.strayTx || s.mu.tx.phase == txNone
	}
	s.mu.sideEffects.add(c.script, e == nil)
}

// failedWhole reports whether e is the server's answer to a single statement that was
// sent once, so that the failure of it is that of everything the call was to do.
func (c *call) failedWhole(e *backend.Error) bool {
	return e.Fault == backend.FaultStatement && !c.manyExecutions && c.script.Atomic()
}
