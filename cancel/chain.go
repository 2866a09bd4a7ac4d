package cancel

import (
	"context"
	"time"
)

const (
	// DefaultBudget bounds a chain that names no budget.
	DefaultBudget = 5 * time.Second

	// DefaultTimeout bounds a step that names no timeout.
	DefaultTimeout = time.Second

	// returnGrace is how long a step may take to return after its context has
	// ended.
	returnGrace = 100 * time.Millisecond
)

// endedByItself is what Report.ConfirmedBy says when Chain.Ended confirmed.
const endedByItself = "ended"

// Chain is an ordered list of ways to stop one operation. The zero Chain
// confirms nothing.
type Chain struct {
	// Steps are tried in this order, never two at a time.
	Steps []Step

	// Budget bounds the whole chain. Zero or less means DefaultBudget.
	Budget time.Duration

	// Ended, when not nil, is closed when the operation has ended on the
	// server by itself. It confirms the chain. A step under way is then left
	// to finish within its time, because a request to stop that was cut off
	// could still take effect later. When no step has confirmed, Run waits for
	// Ended until the budget is used up.
	Ended <-chan struct{}
}

// Run tries the steps until one confirms, Ended closes, or the budget is used
// up or ctx ends. It returns at most 100 ms after the budget or ctx has ended,
// whatever a step does: a step that has not returned by then is abandoned. It
// is reported as Unanswered with ErrStepStuck and no later step is run, since
// steps need not be safe beside each other.
//
// Each step runs in a goroutine of its own. That of an abandoned step ends when
// its Do returns. A panic in a step is caught and reported as a *PanicError.
func (c Chain) Run(ctx context.Context) Report {
	start := time.Now()
	ctx, stop := withTimeout(ctx, c.Budget, DefaultBudget)
	defer stop()
	r := c.trySteps(ctx)
	if !r.Confirmed && c.awaitEnded(ctx) {
		r.Confirmed, r.ConfirmedBy = true, endedByItself
	}
	r.Elapsed = time.Since(start)
	return r
}

// withTimeout bounds ctx by limit, or by byDefault where limit is zero or less.
func withTimeout(ctx context.Context, limit, byDefault time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		limit = byDefault
	}
	return context.WithTimeout(ctx, limit)
}

// trySteps runs the steps until one confirms, is abandoned, or there is no
// reason to run another.
func (c Chain) trySteps(ctx context.Context) (r Report) {
	for _, s := range c.Steps {
		if c.hasEnded() || ctx.Err() != nil {
			return r
		}
		step, returned := s.run(ctx)
		r.Steps = append(r.Steps, step)
		if step.Outcome == Confirmed {
			r.Confirmed, r.ConfirmedBy = true, s.Name
			return r
		}
		if !returned {
			return r
		}
	}
	return r
}

// awaitEnded reports whether Ended closes before ctx ends.
func (c Chain) awaitEnded(ctx context.Context) bool {
	if c.Ended == nil {
		return false
	}
	select {
	case <-c.Ended:
		return true
	case <-ctx.Done():
		return c.hasEnded() // both may be ready
	}
}

func (c Chain) hasEnded() bool {
	select {
	case <-c.Ended: // a nil channel is never ready
		return true
	default:
		return false
	}
}
