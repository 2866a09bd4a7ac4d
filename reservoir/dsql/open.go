package dsql

import (
	"context"
	"errors"
	"time"
)

// ask waits for the permission of one open.
func (c *Cluster) ask(ctx context.Context) (func(), error) {
	<-c.started
	if c.res.Stats().Idle >= c.cfg.LowWatermark {
		select {
		case c.gentle <- struct{}{}:
			defer func() { <-c.gentle }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
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
		p, err := dial(ctx)
		if err == nil {
			c.brake.succeeded()
			c.mu.Lock()
			c.open[p] = struct{}{}
			c.mu.Unlock()
			return p, nil
		}
		var refused *OpenError
		if !errors.As(err, &refused) {
			return nil, err
		}
		if ctx.Err() != nil && refusal != nil {
			return nil, refusal // it tells more than that the rest of the time was too short
		}
		c.brake.failed(refused.verdict, refused)
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
		if c.brake.wait(ctx) != nil || c.fleet.limiter.Wait(ctx) != nil || c.fleet.valid() != nil {
			return nil, refusal
		}
	}
}
