package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// returnGrace is how long a driver has to notice the end of its context. Those
// that do leave nothing behind when a call returns.
const returnGrace = 50 * time.Millisecond

// theDriver names it in the errors of package callback. No borrower is there to be told
// of a panic in most of its calls, and it would end the program.
const theDriver = "sqlconn: the driver"

// catchPanic runs a call of the driver's on its borrower's goroutine. A panic is an
// error, and the connection is lost: database/sql would keep locks for ever that the
// end of the loan waits for.
//
// INVARIANT: nobody uses a connection on which a call was given up, but that call.
func catchPanic[T any](c *Conn, call func() (T, error)) (v T, err error) {
	if c.abandonedCall.Load() != nil || !c.calls.begin() {
		return v, c.refusal()
	}
	defer c.calls.end()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s panicked: %v", theDriver, p)
			lost := err
			c.lost.CompareAndSwap(nil, &lost)
		}
	}()
	return call()
}

// catchPanicError is catchPanic for calls that only fail.
func catchPanicError(c *Conn, call func() error) error {
	_, err := catchPanic(c, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// callInBackground runs a call whose error nobody waits for.
func callInBackground(call func() error) { callback.Go(callback.NoValue(call)) }

// bounded runs a check or a reset. When ctx has ended and the driver does not
// notice, the call is given up with ctx's error: the connection is lost, and Close
// waits a while for the call.
func (c *Conn) bounded(ctx context.Context, call func(ctx context.Context) error) error {
	_, err := boundedValue(ctx, c, false, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// errGivenUp is why a connection is lost on which a call was given up at the end of its borrower's context. Whether the server would have
// answered is not known: a COMMIT may take longer than its borrower has time.
var errGivenUp = errors.New("sqlconn: the beginning or end of a transaction was given up when its context ended")

// boundedValue is bounded for the begin and the end of a transaction, whose ctx is the borrower's.
func boundedValue[T any](ctx context.Context, c *Conn, ofBorrower bool, call func(ctx context.Context) (T, error)) (none T, err error) {
	if ctx.Done() == nil {
		return call(ctx)
	}
	running := callback.Go(func() (T, error) { return call(ctx) })
	if running.Wait(ctx, returnGrace) {
		return running.Value, running.Failure(theDriver)
	}
	err = fmt.Errorf("sqlconn: the driver did not return: %w", endOf(ctx))
	lost := err
	if ofBorrower {
		lost = errGivenUp
	}
	c.lost.CompareAndSwap(nil, &lost)
	c.abandonedCall.Store(&running.Done)
	return none, err
}

// awaitAbandonedCall waits a while for a call that was given up.
func (c *Conn) awaitAbandonedCall() {
	if returned := c.abandonedCall.Load(); returned != nil {
		_ = callback.EndsWithin(*returned, killTimeout) // one that never returns is left
	}
}
