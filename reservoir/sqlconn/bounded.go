package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// returnGrace is how long a driver has to notice the end of its context. Those
// that do leave nothing behind when a call returns.
const returnGrace = 50 * time.Millisecond

// errGoroutineEnded is that of a driver that ended the goroutine of a call.
var errGoroutineEnded = errors.New("sqlconn: the driver ended the goroutine of the call")

// callGuarded runs a call of the driver's on a goroutine of ours and tells done how it
// ended, also when the driver panics or ends the goroutine: no borrower is there to
// be told otherwise, and a panic would end the program.
func callGuarded(call func() error, done func(error)) {
	err := errGoroutineEnded
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
		done(err)
	}()
	err = call()
}

func panicError(p any) error { return fmt.Errorf("sqlconn: the driver panicked: %v", p) }

// catchPanic runs a call of the driver's on its borrower's goroutine. A panic is an
// error, and the connection is lost: database/sql would keep locks for ever that the
// end of the loan waits for.
func catchPanic[T any](c *Conn, call func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			lost := panicError(p)
			c.lost.CompareAndSwap(nil, &lost)
			err = lost
		}
	}()
	return call()
}

// catchPanicError is catchPanic for calls that only fail.
func catchPanicError(c *Conn, call func() error) error {
	_, err := catchPanic(c, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// ignoreError is a done for callGuarded that drops the error.
func ignoreError(error) {}

// bounded runs a check or a reset. When ctx has ended and the driver does not
// notice, the call is given up with ctx's error: the connection is lost, and Close
// waits a while for the call.
func (c *Conn) bounded(ctx context.Context, call func(ctx context.Context) error) error {
	if ctx.Done() == nil {
		return call(ctx)
	}
	returned, result := make(chan struct{}), error(nil)
	go callGuarded(func() error { return call(ctx) }, func(err error) {
		result = err
		close(returned)
	})
	select {
	case <-returned:
		return result
	case <-ctx.Done():
	}
	late := time.NewTimer(returnGrace)
	defer late.Stop()
	select {
	case <-returned:
		return result
	case <-late.C:
	}
	err := fmt.Errorf("sqlconn: the driver did not return: %w", ctx.Err())
	c.lost.CompareAndSwap(nil, &err)
	c.abandonedCall.Store(&returned)
	return err
}

// awaitAbandonedCall waits a while for a call that was given up.
func (c *Conn) awaitAbandonedCall() {
	returned := c.abandonedCall.Load()
	if returned == nil {
		return
	}
	late := time.NewTimer(killTimeout)
	defer late.Stop()
	select {
	case <-*returned:
	case <-late.C:
	}
}
