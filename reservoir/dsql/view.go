package dsql

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// View is what one pool may have of a Cluster's connections.
type View struct {
	// Max bounds the connections in use at once: the Cluster's MaxOpen by
	// default, which is also the most.
	Max int
	// Reserve is how many of them no other view can take: none by default. The
	// reserves of all views together are at most MaxOpen.
	Reserve int
}

// A view borrows for one pool.
type view struct {
	cluster *Cluster
	member  *member
}

// acquire borrows a connection that was alive a moment ago.
func (v *view) acquire(ctx context.Context) (*loan, error) {
	l, err := v.borrow(ctx)
	if err != nil {
		v.cluster.count.failures.Add(1)
		return nil, err
	}
	v.cluster.count.checkouts.Add(1)
	return l, nil
}

func (v *view) borrow(ctx context.Context) (*loan, error) {
	if err := ctx.Err(); err != nil {
		return nil, v.cluster.empty(0, context.Cause(ctx))
	}
	admitted, err := v.member.try()
	if err != nil {
		return nil, err
	}
	if admitted {
		if l := v.ready(); l != nil {
			return l, nil
		}
		if v.cluster.cfg.NoWait {
			v.member.give()
		}
	}
	v.cluster.count.empty.Add(1)
	if v.cluster.cfg.NoWait {
		return nil, v.cluster.empty(0, errNoWait)
	}
	return v.wait(ctx, admitted)
}

// ready borrows an idle connection if there is one.
func (v *view) ready() *loan {
	for {
		l, ok := v.cluster.res.TryAcquire()
		if !ok {
			return nil
		}
		if sound := v.sound(l); sound != nil {
			return sound
		}
	}
}

// sound makes a loan of a connection, or gets rid of it when it is dead.
func (v *view) sound(l reservoir.Loan[*physical]) *loan {
	p := l.Value()
	if !p.user.CompareAndSwap(nobody, borrower) {
		return nil // a Close by force was faster
	}
	if !p.alive() {
		p.user.Store(nobody)
		_ = l.Discard(errGone) // as above
		return nil
	}
	return &loan{Loan: l, member: v.member}
}

// wait borrows a connection as soon as one comes free or is opened. admitted
// says that the member has been allowed one already.
func (v *view) wait(ctx context.Context, admitted bool) (*loan, error) {
	began := time.Now()
	c := v.cluster
	defer func() { c.count.waited.Add(int64(time.Since(began))) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limit := c.cfg.AcquireTimeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errAcquireTimeout) })
		defer timer.Stop()
	}
	// While nothing is open and nothing can be opened, waiting is for nothing.
	defer c.brake.watch(func(err error) {
		if c.barren() {
			cancel(err)
		}
	})()
	if !admitted {
		if err := v.member.take(ctx); err != nil {
			return nil, v.failed(ctx, err, time.Since(began))
		}
	}
	for {
		l, err := c.res.Acquire(ctx)
		switch {
		case limited(err) && ctx.Err() == nil:
			// Wait on: the brake and the reservoir's back-off see to the pace.
		case err != nil:
			v.member.give()
			return nil, v.failed(ctx, err, time.Since(began))
		default:
			if sound := v.sound(l); sound != nil {
				return sound, nil
			}
		}
	}
}

// limited says whether an open failed because of the cluster's limits.
func limited(err error) bool {
	var open *OpenError
	return errors.As(err, &open) && (open.verdict == tooFast || open.verdict == tooMany)
}

// abandon ends a view for callers without a context.
func (v *view) abandon() error { return v.cluster.bounded(v.member.leave) }

// failed says why a wait was in vain.
func (v *view) failed(ctx context.Context, err error, waited time.Duration) error {
	var open *OpenError
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.As(cause, &open): // the brake's watcher
		return open
	case cause != nil:
		return v.cluster.empty(waited, cause)
	case errors.As(err, &open):
		return open
	}
	return v.cluster.empty(waited, err) // no permission to open one, for example
}
