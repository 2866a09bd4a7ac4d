package dsql

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// admitOpen waits for the permission of one open.
func (c *Cluster) admitOpen(ctx context.Context) (func(), error) {
	<-c.started
	leave, err := c.watermark.waitSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.breaker.waitPause(ctx); err != nil {
		return nil, err
	}
	release, err := c.admitByBudgets(ctx)
	if err != nil && ctx.Err() == nil {
		c.counters.unpermitted.Add(1)
	}
	return release, err
}

// openRetrying opens a connection, and tries again for as long as ctx lasts when the
// cluster refuses it for its limits: that is no answer to give to a caller. When ctx
// does not last, those who wait go on waiting (view.borrowWaiting) for the next open.
func (c *Cluster) openRetrying(ctx context.Context, dial func(context.Context) (*physical, error)) (*physical, error) {
	var refusal error
	for {
		p, err := c.openOnce(ctx, dial, refusal != nil)
		if err == nil {
			c.mu.Lock()
			c.openConns[p] = struct{}{}
			c.mu.Unlock()
			return p, nil
		}
		var refused *OpenError
		switch made := errors.As(err, &refused); {
		case refusal != nil && (!made || ctx.Err() != nil):
			return nil, refusal // it tells more than that the rest of the time was too short
		case !made:
			return nil, cmp.Or(c.breaker.lastRefusal(), c.notAttemptedError(err))
		}
		if refused.kind != transient {
			c.log.WarnContext(ctx, "open refused", "error", err, "pause", c.breaker.pauseLeft())
		}
		if refused.kind == rateLimited {
			c.budgets.limiter.Refused()
		}
		if refused.kind != rateLimited && refused.kind != connLimited {
			return nil, err
		}
		refusal = err
		if end, bounded := ctx.Deadline(); bounded && time.Now().Add(c.breaker.pauseLeft()).After(end) {
			return nil, err
		}
	}
}

// notAttemptedError is the error of an open that made no attempt.
func (c *Cluster) notAttemptedError(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &OpenError{Host: c.cfg.Host, User: c.cfg.User, Region: c.cfg.Region, Check: "OpenTimeout: others were before it", Err: err}
}

// openOnce makes one attempt at an open when the breaker allows it, and reports the
// outcome to the breaker. The permission for the first attempt has been granted, but
// expires; another attempt needs another permit.
func (c *Cluster) openOnce(ctx context.Context, dial func(context.Context) (*physical, error), again bool) (*physical, error) {
	leave, waited, err := c.breaker.beginAttempt(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if again || waited {
		if err := c.budgets.limiter.Wait(ctx); err != nil {
			return nil, err
		}
		if err := c.budgets.valid(); err != nil {
			return nil, err
		}
	}
	p, err := dial(ctx)
	var failed *OpenError
	switch {
	case err == nil:
		c.breaker.succeeded()
	case errors.As(err, &failed) && (!again || ctx.Err() == nil):
		c.breaker.failed(failed.kind, failed)
	}
	return p, err
}
