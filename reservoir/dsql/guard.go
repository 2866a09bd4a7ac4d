package dsql

import (
	"cmp"
	"context"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// An asyncCall is a call of a user's function. It runs on a goroutine of its own, and
// ends as it ends, also by a panic, on that of who waits for it.
type asyncCall struct {
	callback.Attempt[struct{}]               // INVARIANT: set before done is closed
	done                       chan struct{} // closed when the function has ended
}

func callAsync(f func()) *asyncCall {
	g := &asyncCall{done: make(chan struct{})}
	go func() {
		defer close(g.done)
		g.Run(func() (struct{}, error) { f(); return struct{}{}, nil })
	}()
	return g
}

// wait waits for the end, once ctx has ended no longer than grace, and says
// whether that was the end.
func (g *asyncCall) wait(ctx context.Context, grace time.Duration) bool {
	select {
	case <-g.done:
	case <-ctx.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-g.done:
		case <-timer.C:
			return false
		}
	}
	g.Resume()
	return true
}

// callWithin calls a function of the user's that has a context. When it does not end
// with that, its error is the context's, and what it makes later is given to late.
func callWithin[T any](ctx context.Context, f func() (T, error), late func(T)) (T, error) {
	var (
		made T
		err  error
	)
	g := callAsync(func() { made, err = f() })
	if g.wait(ctx, returnMargin) {
		return made, err
	}
	go func() {
		<-g.done
		if g.Returned && err == nil {
			late(made)
		}
	}()
	var none T
	return none, context.Cause(ctx)
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
	_, err := callWithin(ctx, func() (struct{}, error) { c.cfg.BeforeClose(p.pgx()); return struct{}{}, nil }, func(struct{}) {})
	if err != nil {
		c.log.Error("BeforeClose has not returned within CloseTimeout: the connection is cut")
	}
	return err
}

// beforeAcquire asks the user whether to lend a connection. An error says that
// BeforeAcquire has not returned at the end of ctx.
func (c *Cluster) beforeAcquire(ctx context.Context, p *physical) (bool, error) {
	return callWithin(ctx, func() (bool, error) { return c.cfg.BeforeAcquire(ctx, p.pgx()), nil }, func(bool) {})
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
	}, func(struct{}) {})
	return err
}
