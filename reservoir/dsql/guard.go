package dsql

import (
	"cmp"
	"context"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// callWithin calls a function of the user's that has a context. When it does not end
// with that, its error is the context's, and what it makes later is given to late.
func callWithin[T any](ctx context.Context, f func() (T, error), late func(T)) (T, error) {
	a, inTime := callback.Within(ctx, returnMargin, f, late, nil)
	if !inTime {
		return a.Value, ctxerr.Of(ctx)
	}
	a.Resume()
	return a.Value, a.Err
}

// returnMargin is what a function has to return once its context has ended.
const returnMargin = 100 * time.Millisecond

// beforeClose tells the user of a connection that is about to be closed. An error
// says that BeforeClose has not returned in time.
func (c *Cluster) beforeClose(ctx context.Context, p *physical) error {
	if c.cfg.BeforeClose == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("BeforeClose panicked", "panic", v)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CloseTimeout)
	defer cancel()
	_, err := callWithin(ctx, func() (struct{}, error) { c.cfg.BeforeClose(p.pgx()); return struct{}{}, nil }, nil)
	if err != nil {
		c.log.Error("BeforeClose has not returned within CloseTimeout: the connection is cut")
	}
	return err
}

// beforeAcquire asks the user whether to lend a connection. An error says that
// BeforeAcquire has not returned at the end of ctx.
func (c *Cluster) beforeAcquire(ctx context.Context, p *physical) (bool, error) {
	return callWithin(ctx, func() (bool, error) { return c.cfg.BeforeAcquire(ctx, p.pgx()), nil }, nil)
}

// onReturn makes a connection that came back as good as new. One whose OnReturn ignores
// its context is cut, and is used by nobody else.
func (c *Cluster) onReturn(ctx context.Context, p *physical) error {
	if !p.owner.CompareAndSwap(ownedByNone, ownedByBorrower) {
		return errGone
	}
	_, err := callWithin(ctx, func() (struct{}, error) {
		defer p.owner.Store(ownedByNone) // until then a close only cuts it
		return struct{}{}, cmp.Or(c.cfg.OnReturn(ctx, p.pgx()), p.checkIdle())
	}, nil)
	return err
}
