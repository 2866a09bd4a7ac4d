package session

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/eof"
)

// outcome is what came of a call, as far as this side knows. The zero outcome
// is success: the server has answered and is done.
type outcome struct {
	err error // what the call failed with

	// cut is why the RPC was ended before the server had answered, so that
	// nobody knows what the server is doing.
	cut error

	// rest are rows that nobody will read.
	rest Stream

	// letGo says that the reader ended the result by its own choice, and was
	// told no failure.
	letGo bool
}

// finish ends the call: the handle learns what became of the connection, and
// the caller's error comes back. What is left to do on the server, such as the
// rows that nobody reads and the call's own prepared statement, is done behind
// the caller, and the handle serves no other call meanwhile.
func (c *call) finish(o outcome) error {
	if o.rest == nil && c.owned() == nil {
		return c.end(o)
	}
	c.s.goOnBehind()
	c.s.policy.run(func() { c.endBehind(o) })
	if e := c.errorOf(o); e != nil {
		return e
	}
	return nil
}

// endBehind is end after tidy. Nobody is there in whom a panic or Goexit could go
// on that comes of rows which nobody reads.
func (c *call) endBehind(o outcome) {
	var a callback.Attempt[outcome]
	defer func() {
		if !a.Returned {
			if o.rest != nil {
				o.rest.Close()
			}
			if stmt := c.owned(); stmt != nil {
				c.s.adopt(stmt)
			}
			a.Value = outcome{cut: errCallback}
		}
		_ = c.end(a.Value)
	}()
	a.Run(func() (outcome, error) { return c.tidy(o), nil })
}

// end tells the handle. No RPC of the call is under way any more.
func (c *call) end(o outcome) error {
	c.endRPC()
	defer func() { // until then the end of the caller's context is seen
		for _, f := range c.hooks {
			f()
		}
	}()
	e, known := (*Error)(nil), false
	defer func() {
		if !known { // a method of the caller's context has ended the goroutine
			c.s.conclude(c, outcome{cut: errCallback}, &Error{Op: c.op, Stage: StageFetch, Fault: FaultContext, Err: errCallback})
		}
	}()
	e = c.errorOf(o)
	known = true
	c.s.conclude(c, o, e)
	if e == nil {
		return nil
	}
	return e
}

func (c *call) errorOf(o outcome) *Error {
	switch {
	case o.err != nil:
		return c.fail(o.err)
	case o.cut != nil:
		return c.fail(&Error{Stage: StageFetch, Fault: FaultContext, Err: o.cut})
	default:
		return nil
	}
}

// tidy does what is left to do on the server, and returns what is known then.
func (c *call) tidy(o outcome) outcome {
	if o.rest != nil {
		ended, err := c.readOn(o)
		o.rest.Close()
		switch {
		case err != nil:
			o.err, o.letGo = err, false
		case !ended:
			o.cut = errLetGo
		}
	}
	stmt := c.owned()
	if stmt == nil || c.s.conn.Lost() != nil {
		return o
	}
	if e := c.errorOf(o); e != nil && (e.Running || !e.Fault.KeepsConn()) {
		c.s.adopt(stmt) // closed with the handle, once the session is free
		return o
	}
	ctx, stop := c.s.policy.bounded()
	defer stop()
	if err := stmt.Close(ctx); err != nil {
		c.s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
	}
	return o
}

// How far a result that was let go is read on before its statement is
// cancelled, if it only reads. The end is near in most results that anybody lets go, and costs
// less than a cancel; inside a transaction a cancel may cost the transaction.
const (
	restBytes   = 1 << 20
	restTime    = 100 * time.Millisecond
	restBytesTx = 32 << 20
)

// readOn reads rows that nobody wants, within the bounds above, and reports
// whether the result has ended. A call that is not to be cancelled is read to
// its end, however far that is, and so is a change outside of a transaction: the
// server may store it only then, and who let its rows go is told no failure. In
// a transaction the failure is told by its Commit.
func (c *call) readOn(o outcome) (ended bool, err error) {
	whole := c.mode == toItsEnd || o.letGo && c.changes() && c.s.txState().phase == txNone
	bytes, limit := int64(restBytes), restTime
	if tx := c.s.txState(); tx.phase == txOpen {
		bytes, limit = restBytesTx, max(limit, c.s.policy.grace())
		if c.s.untrusted() {
			// No statement can tell there whether the transaction has
			// outlived a cancel.
			limit = max(limit, c.s.policy.budget())
		}
	}
	if !c.s.oneAtATime() && len(c.s.conn.CancelSteps(c.work)) == 0 {
		// Nothing would show there that a cancel has worked.
		bytes, limit = math.MaxInt64, max(limit, c.s.policy.budget())
	}
	if !whole {
		timer := time.AfterFunc(limit, c.endRPC)
		defer timer.Stop()
	}
	for {
		batch, err := o.rest.Next()
		switch {
		case eof.Reached(err):
			return true, nil
		case err != nil && c.rpc.Err() != nil && FaultIn(err) == FaultContext:
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

// changes reports whether the call, which has a result, may change something.
func (c *call) changes() bool { return !c.script.ReadOnly() }

func sizeOf(batch arrow.RecordBatch) int64 {
	bytes := uint64(0)
	for _, column := range batch.Columns() {
		bytes += column.Data().SizeInBytes()
	}
	return int64(min(bytes, math.MaxInt64)) //nolint:gosec // it fits now
}

// Why calls are ended before the server has answered, where no context says so.
var (
	errLetGo    = errors.New("result released before its end")
	errCallback = errors.New("a callback or reader of the caller panicked or ended its goroutine")
)
