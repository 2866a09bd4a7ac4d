package flightpool

import (
	"context"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/session"
)

// Layer puts connections of another kind on top of those that a pool opens:
// another client on the same transport, or one that watches what goes by.
type Layer interface {
	// Wrap takes over a new connection and returns what the pool uses in its
	// place, or closes it and fails. It is called from several goroutines at
	// once. What it returns must pass package sessiontest.
	Wrap(ctx context.Context, c session.Conn) (session.Conn, error)

	// Close is called after the last connection's, and may be called again.
	Close() error
}

// layered is open and release with a layer on top.
func layered(l Layer, open func(context.Context) (session.Conn, error), release func() error) (func(context.Context) (session.Conn, error), func() error) {
	wrapped := func(ctx context.Context) (session.Conn, error) {
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
	return wrapped, func() error { return errjoin.Join(isolated(l.Close), release()) }
}
