package dsql

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// ask waits for the permission of one open.
func (c *Cluster) ask(ctx context.Context) (func(), error) {
	<-c.started
	leave, err := c.enough.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := c.brake.wait(ctx); err != nil {
		return nil, err
	}
	release, err := c.admit(ctx)
	if err != nil && ctx.Err() == nil {
		c.count.unpermitted.Add(1)
	}
	return release, err
}

// persist opens a connection, and tries again for as long as ctx lasts when the
// cluster refuses it for its limits: that is no answer to give to a caller. When
// ctx does not last, those who wait go on waiting (view.wait) for the next open.
func (c *Cluster) persist(ctx context.Context, dial func(context.Context) (*physical, error)) (*physical, error) {
	var refusal error
	for {
		p, err := c.attempt(ctx, dial, refusal != nil)
		if err == nil {
			c.mu.Lock()
			c.open[p] = struct{}{}
			c.mu.Unlock()
			return p, nil
		}
		var refused *OpenError
		switch made := errors.As(err, &refused); {
		case refusal != nil && (!made || ctx.Err() != nil):
			return nil, refusal // it tells more than that the rest of the time was too short
		case !made:
			return nil, cmp.Or(c.brake.refusal(), c.unmade(err))
		}
		if refused.verdict != passing {
			c.log.WarnContext(ctx, "open refused", "error", err, "pause", c.brake.left())
		}
		if refused.verdict == tooFast {
			c.fleet.limiter.Refused()
		}
		if refused.verdict != tooFast && refused.verdict != tooMany {
			return nil, err
		}
		refusal = err
		if end, bounded := ctx.Deadline(); bounded && time.Now().Add(c.brake.left()).After(end) {
			return nil, err
		}
	}
}

// unmade is the error of an open that made no attempt.
func (c *Cluster) unmade(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &OpenError{Host: c.cfg.Host, User: c.cfg.User, Region: c.cfg.Region, Check: "OpenTimeout: others were before it", Err: err}
}

// attempt makes one attempt at an open when the brake lets it, and tells the
// brake what became of it. The permission for the first attempt is there, but not
// for ever; another attempt needs another permit.
func (c *Cluster) attempt(ctx context.Context, dial func(context.Context) (*physical, error), again bool) (*physical, error) {
	leave, waited, err := c.brake.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if again || waited {
		if err := c.fleet.limiter.Wait(ctx); err != nil {
			return nil, err
		}
		if err := c.fleet.valid(); err != nil {
			return nil, err
		}
	}
	p, err := dial(ctx)
	var failed *OpenError
	switch {
	case err == nil:
		c.brake.succeeded()
	case errors.As(err, &failed) && (!again || ctx.Err() == nil):
		c.brake.failed(failed.verdict, failed)
	}
	return p, err
}
