package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// A Trace is told of each call of a borrower when it begins: "Query", "Exec", "Prepare",
// "Begin", "Commit" or "Rollback", with the text of its statement, if it has one. The driver
// is given the context that it returns, which ends with ctx. end is told of the end, once: a
// query ends with its rows. Where a driver has what it is given with arguments prepared, that
// is one call. Neither may panic, end the goroutine or use the connection, which database/sql
// has locked.
type Trace func(ctx context.Context, op, text string) (_ context.Context, end func(Outcome))

// Outcome is what came of a call.
type Outcome struct {
	Err          error
	Answered     time.Duration // until the driver answered a query
	Rows         int64         // that were read
	RowsAffected int64         // -1: not known
}

// A tracedCall is a call as a Trace sees it; nil: nobody does.
type tracedCall struct {
	ctx     context.Context //nolint:containedctx // of a statement that is prepared for the call, too
	text    string
	began   time.Time
	end     func(Outcome)
	outcome Outcome
}

// startTrace tells of a call. One that the driver has left to a prepared statement goes on
// with that.
func (l *borrowedConn) startTrace(ctx context.Context, op, text string) (context.Context, *tracedCall) {
	l.endSkipped(errNotRun)
	if l.trace == nil {
		return ctx, nil
	}
	c := &tracedCall{text: text, began: time.Now(), outcome: Outcome{RowsAffected: -1}}
	c.ctx, c.end = l.trace(ctx, op, text)
	return c.ctx, c
}

// errExited is the end of a call whose driver has ended the goroutine.
var errExited = errors.New("sqlconn: the driver has ended the goroutine")

// errNotRun is the end of a call that database/sql gave up before its statement ran, since
// an argument cannot be sent.
var errNotRun = errors.New("sqlconn: the statement was not run")

// finish tells of the end.
func (c *tracedCall) finish(err error) {
	if c != nil {
		c.outcome.Err = err
		c.end(c.outcome)
	}
}

// endSkipped ends the call that the driver has left to a prepared statement that did not
// come.
func (l *borrowedConn) endSkipped(err error) {
	c := l.skipped
	l.skipped = nil
	c.finish(err)
}

// takeSkipped is the call that goes on with a statement of this text, if there is one.
func (l *borrowedConn) takeSkipped(text string) *tracedCall {
	c := l.skipped
	if c == nil || c.text != text {
		return nil
	}
	l.skipped = nil
	return c
}

// answered tells of the end of a call that has failed. What the driver wants prepared goes
// on.
func (l *borrowedConn) answered(c *tracedCall, err error) {
	switch {
	case c == nil:
	case errors.Is(err, driver.ErrSkip):
		l.skipped = c
	case err != nil:
		c.finish(err)
	}
}

// executed is answered for a statement that gives no rows.
func (l *borrowedConn) executed(c *tracedCall, res driver.Result, err error) {
	if l.answered(c, err); c == nil || err != nil {
		return
	}
	var n int64
	if callback.Isolate(theDriver, func() (err error) { n, err = res.RowsAffected(); return err }) == nil { // the borrower has not asked for it
		c.outcome.RowsAffected = n
	}
	c.finish(nil)
}

// read counts a row, or notes why there are no more.
func (c *tracedCall) read(err error) {
	switch {
	case c == nil:
	case err == nil:
		c.outcome.Rows++
	case !errors.Is(err, io.EOF):
		c.outcome.Err = err
	}
}
