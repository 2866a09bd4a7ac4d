package dsql

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/reservoir"
)

// View is what one pool may have of a Cluster's connections.
type View struct {
	// Max bounds the connections in use at once: the Cluster's MaxSize by
	// default, which is also the most.
	Max int
	// Reserve is how many of them no other view can take: none by default. The
	// reserves of all views together are at most MaxSize.
	Reserve int
}

// A view borrows for one pool.
type view struct {
	cluster *Cluster
	quota   *viewQuota
}

// acquire borrows a connection that was alive a moment ago.
func (v *view) acquire(ctx context.Context) (*loan, error) {
	tracer := v.cluster.cfg.AcquireTracer
	if tracer == nil {
		return v.acquireCounted(ctx)
	}
	traced, err := callWithin(ctx, func() (context.Context, error) {
		return tracer.TraceAcquireStart(ctx, TraceAcquireStartData{Cluster: v.cluster}), nil
	}, nil)
	if err != nil {
		return nil, v.cluster.emptyError(0, err)
	}
	l, err := v.acquireCounted(traced)
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
	_, late := callWithin(ctx, func() (struct{}, error) { tracer.TraceAcquireEnd(traced, data); return struct{}{}, nil }, nil)
	told = true
	if late != nil && l != nil {
		l.abandon(late)
		return nil, v.cluster.emptyError(0, late)
	}
	return l, err
}

// acquireCounted borrows a connection and counts that.
func (v *view) acquireCounted(ctx context.Context) (*loan, error) {
	l, err := v.borrow(ctx)
	if err != nil {
		v.cluster.counters.failures.Add(1)
		return nil, err
	}
	v.cluster.counters.checkouts.Add(1)
	return l, nil
}

func (v *view) borrow(ctx context.Context) (l *loan, err error) {
	if err := ctx.Err(); err != nil {
		return nil, v.cluster.emptyError(0, ctxerr.Of(ctx))
	}
	admitted, err := v.quota.tryAcquire()
	if err != nil {
		return nil, err
	}
	defer func() {
		if admitted && l == nil { // also when a function of the user's panics
			v.quota.release()
		}
	}()
	if admitted {
		if l = v.borrowIdle(ctx); l != nil {
			return l, nil
		}
	}
	v.cluster.counters.empty.Add(1)
	if v.cluster.cfg.NoWait {
		return nil, v.cluster.emptyError(0, errNoWait)
	}
	return v.borrowWaiting(ctx, &admitted)
}

// borrowIdle borrows an idle connection if there is one.
func (v *view) borrowIdle(ctx context.Context) *loan {
	// BeforeAcquire may refuse them all, but only one for the end of ctx.
	for n := 0; n <= v.cluster.cfg.MaxSize && ctx.Err() == nil; n++ {
		l, ok := v.cluster.res.TryAcquire()
		if !ok {
			return nil
		}
		if usable := v.newLoan(ctx, l); usable != nil {
			return usable
		}
	}
	return nil
}

// newLoan makes a loan of a connection, or gets rid of it when it is dead or when
// BeforeAcquire does not want it.
func (v *view) newLoan(ctx context.Context, l reservoir.Loan[*physical]) *loan {
	p := l.Value()
	if !p.owner.CompareAndSwap(ownedByNone, ownedByBorrower) {
		return nil // a Close by force was faster
	}
	reason := errGone
	kept, hangs := false, false
	defer func() {
		if kept {
			return
		}
		if !hangs { // else it may still use the connection, which is cut
			p.owner.Store(ownedByNone)
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
		if reason = p.checkIdle(); reason != nil {
			return nil
		}
	}
	kept = true
	return &loan{Loan: l, quota: v.quota, cluster: v.cluster}
}

// borrowWaiting borrows a connection as soon as one comes free or is opened. admitted
// says that the quota has granted one, before or by this wait.
func (v *view) borrowWaiting(ctx context.Context, admitted *bool) (*loan, error) {
	began := time.Now()
	c := v.cluster
	defer func() { c.counters.waited.Add(int64(time.Since(began))) }()
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if limit := c.cfg.AcquireTimeout; limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errAcquireTimeout) })
		defer timer.Stop()
	}
	// While nothing is open and nothing can be opened, waiting is for nothing.
	defer c.breaker.onPermanent(func(err error) {
		if c.noneAvailable() && c.waitIsUseless() {
			cancel(err)
		}
	})()
	if !*admitted {
		if err := v.quota.acquire(ctx); err != nil {
			return nil, v.waitError(caller, ctx, err, time.Since(began))
		}
		*admitted = true
	}
	for unwanted := 0; ; {
		l, err := c.res.Acquire(ctx)
		switch {
		case isLimitError(err) && ctx.Err() == nil:
			// Wait on: the breaker and the reservoir's back-off limit the rate.
		case err != nil:
			return nil, v.waitError(caller, ctx, err, time.Since(began))
		default:
			if usable := v.newLoan(caller, l); usable != nil {
				return usable, nil
			}
			// Each is opened anew, at the cost of a permit of the fleet.
			if unwanted++; c.cfg.BeforeAcquire != nil && unwanted > c.cfg.MaxSize {
				return nil, c.emptyError(time.Since(began), errUnwanted)
			}
		}
	}
}

// isLimitError says whether an open failed because of the cluster's limits.
func isLimitError(err error) bool {
	var open *OpenError
	return errors.As(err, &open) && (open.kind == rateLimited || open.kind == connLimited)
}

// closeWithTimeout ends a view for callers without a context.
func (v *view) closeWithTimeout() error { return v.cluster.withCloseTimeout(v.quota.close) }

// waitError says why a wait was in vain. caller is its caller's context, and ctx that of
// the wait.
func (v *view) waitError(caller, ctx context.Context, err error, waited time.Duration) error {
	var open *OpenError
	ended, cause := ctxerr.Of(caller), context.Cause(ctx)
	switch {
	case errors.Is(err, ErrClosed) && !errors.Is(ended, ErrClosed): // else it may be another's, by which the context has ended
		return err
	case ended != nil:
		return v.cluster.emptyError(waited, ended)
	case errors.As(cause, &open): // the breaker's watcher
		return open
	case cause != nil:
		return v.cluster.emptyError(waited, cause)
	case errors.As(err, &open):
		return open
	}
	return v.cluster.emptyError(waited, err) // no permission to open one, for example
}
