package flightpool

import (
	"context"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// Layer puts connections of another kind on top of those that a pool opens:
// another client on the same transport, or one that watches what goes by.
type Layer interface {
	// Wrap takes over a new connection and returns what the pool uses in its
	// place, or closes it and fails. It is called from several goroutines at
	// once. What it returns must pass package backendtest.
	Wrap(ctx context.Context, c backend.Conn) (backend.Conn, error)

	// Close is called after the last connection's, and may be called again. The
	// pool waits for it up to CloseTimeout.
	Close() error
}

// wrapOpen wraps open and release in a layer, whose Close may take up to limit.
func wrapOpen(l Layer, limit time.Duration, open func(context.Context) (backend.Conn, error), release func() error) (func(context.Context) (backend.Conn, error), func() error) {
	wrapped := func(ctx context.Context) (backend.Conn, error) {
		c, err := open(ctx)
		if err != nil {
			return nil, err
		}
		returned := false
		defer func() {
			if !returned { // a panic or runtime.Goexit
				_ = c.Close()
			}
		}()
		c, err = l.Wrap(ctx, c)
		returned = true
		return c, err
	}
	return wrapped, func() error { return errjoin.Join(closeLayer(l, limit), release()) }
}

func closeLayer(l Layer, limit time.Duration) error {
	closing := callback.Go(callback.NoValue(l.Close))
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-closing.Done:
		return closing.Failure(userCode)
	case <-timer.C:
		return fmt.Errorf("the Layer has not closed within CloseTimeout %v", limit)
	}
}
