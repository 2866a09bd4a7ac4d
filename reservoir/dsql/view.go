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
	tracer := v.cluster.cfg.AcquireTracer
	if tracer == nil {
		return v.counted(ctx)
	}
	ctx = tracer.TraceAcquireStart(ctx, TraceAcquireStartData{Cluster: v.cluster})
	l, err := v.counted(ctx)
	data := TraceAcquireEndData{Err: err}
	if err == nil {
		data.Conn = l.Value().pgx()
	}
	told := false
	defer func() {
		if !told && l != nil { // the tracer panicked
			l.end(nil)
		}
	}()
	tracer.TraceAcquireEnd(ctx, data)
	told = true
	return l, err
}

// counted borrows a connection and counts that.
func (v *view) counted(ctx context.Context) (*loan, error) {
	l, err := v.borrow(ctx)
	if err != nil {
		v.cluster.count.failures.Add(1)
		return nil, err
	}
	v.cluster.count.checkouts.Add(1)
	return l, nil
}

func (v *view) borrow(ctx context.Context) (l *loan, err error) {
	if err := ctx.Err(); err != nil {
		return nil, v.cluster.empty(0, context.Cause(ctx))
	}
	admitted, err := v.member.try()
	if err != nil {
		return nil, err
	}
	defer func() {
		if admitted && l == nil { // also when a function of the user's panics
			v.member.give()
		}
	}()
	if admitted {
		if l = v.ready(ctx); l != nil {
			return l, nil
		}
	}
	v.cluster.count.empty.Add(1)
	if v.cluster.cfg.NoWait {
		return nil, v.cluster.empty(0, errNoWait)
	}
	return v.wait(ctx, &admitted)
}

// ready borrows an idle connection if there is one.
func (v *view) ready(ctx context.Context) *loan {
	// BeforeAcquire may refuse them all, but only one for the end of ctx.
	for n := 0; n <= v.cluster.cfg.MaxOpen && ctx.Err() == nil; n++ {
		l, ok := v.cluster.res.TryAcquire()
		if !ok {
			return nil
		}
		if sound := v.sound(ctx, l); sound != nil {
			return sound
		}
	}
	return nil
}

// sound makes a loan of a connection, or gets rid of it when it is dead or when
// BeforeAcquire does not want it.
func (v *view) sound(ctx context.Context, l reservoir.Loan[*physical]) *loan {
	p := l.Value()
	if !p.user.CompareAndSwap(nobody, borrower) {
		return nil // a Close by force was faster
	}
	reason := errGone
	kept, hangs := false, false
	defer func() {
		if kept {
			return
		}
		if !hangs { // else it may still use the connection, which is cut
			p.user.Store(nobody)
		}
		_ = l.Discard(reason) // also when BeforeAcquire panics
	}()
	if !p.alive() {
		return nil
	}
	if v.cluster.cfg.BeforeAcquire != nil {
		reason = errUnwanted
		wanted, err := v.cluster.beforeAcquire(ctx, p)
		if hangs = err != nil; !wanted {
			return nil
		}
		if reason = p.resting(); reason != nil {
			return nil
		}
	}
	kept = true
	return &loan{Loan: l, member: v.member, cluster: v.cluster}
}

// wait borrows a connection as soon as one comes free or is opened. admitted
// says that the member has been allowed one, before or by wait.
func (v *view) wait(ctx context.Context, admitted *bool) (*loan, error) {
	began := time.Now()
	c := v.cluster
	defer func() { c.count.waited.Add(int64(time.Since(began))) }()
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limit := c.cfg.AcquireTimeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errAcquireTimeout) })
		defer timer.Stop()
	}
	// While nothing is open and nothing can be opened, waiting is for nothing.
	defer c.brake.watch(func(err error) {
		if c.barren() && c.inVain() {
			cancel(err)
		}
	})()
	if !*admitted {
		if err := v.member.take(ctx); err != nil {
			return nil, v.failed(ctx, err, time.Since(began))
		}
		*admitted = true
	}
	for unwanted := 0; ; {
		l, err := c.res.Acquire(ctx)
		switch {
		case limited(err) && ctx.Err() == nil:
			// Wait on: the brake and the reservoir's back-off see to the pace.
		case err != nil:
			return nil, v.failed(ctx, err, time.Since(began))
		default:
			if sound := v.sound(caller, l); sound != nil {
				return sound, nil
			}
			// Each is opened anew, at the cost of a permit of the fleet.
			if unwanted++; c.cfg.BeforeAcquire != nil && unwanted > c.cfg.MaxOpen {
				return nil, c.empty(time.Since(began), errUnwanted)
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
