package sqlconn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// noticeTime is how long a driver has to notice the end of its context. Those
// that do leave nothing behind when a call returns.
const noticeTime = 50 * time.Millisecond

// errEnded is that of a driver that ended the goroutine of a call.
var errEnded = errors.New("sqlconn: the driver ended the goroutine of the call")

// guarded runs a call of the driver's on a goroutine of ours and tells done how it
// ended, also when the driver panics or ends the goroutine: no borrower is there to
// be told otherwise, and a panic would end the program.
func guarded(call func() error, done func(error)) {
	err := errEnded
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		done(err)
	}()
	err = call()
}

func panicked(p any) error { return fmt.Errorf("sqlconn: the driver panicked: %v", p) }

// caught runs a call of the driver's on its borrower's goroutine. A panic is an
// error, and the connection is lost: database/sql would keep locks for ever that the
// end of the loan waits for.
func caught[T any](c *Conn, call func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			lost := panicked(p)
			c.lost.CompareAndSwap(nil, &lost)
			err = lost
		}
	}()
	return call()
}

// caughtError is caught for calls that only fail.
func caughtError(c *Conn, call func() error) error {
	_, err := caught(c, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// ignored is for guarded where nobody is to be told.
func ignored(error) {}

// bounded runs a check or a reset. When ctx has ended and the driver does not
// notice, the call is given up with ctx's error: the connection is lost, and Close
// waits a while for the call.
func (c *Conn) bounded(ctx context.Context, call func(ctx context.Context) error) error {
	if ctx.Done() == nil {
		return call(ctx)
	}
	returned, result := make(chan struct{}), error(nil)
	go guarded(func() error { return call(ctx) }, func(err error) {
		result = err
		close(returned)
	})
	select {
	case <-returned:
		return result
	case <-ctx.Done():
	}
	late := time.NewTimer(noticeTime)
	defer late.Stop()
	select {
	case <-returned:
		return result
	case <-late.C:
	}
	err := fmt.Errorf("sqlconn: the driver did not return: %w", ctx.Err())
	c.lost.CompareAndSwap(nil, &err)
	c.stuck.Store(&returned)
	return err
}

// awaitStuck waits a while for a call that was given up.
func (c *Conn) awaitStuck() {
	returned := c.stuck.Load()
	if returned == nil {
		return
	}
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-*returned:
	case <-late.C:
	}
}
