package cancel

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Chain is an ordered list of ways to stop one operation. The zero Chain
// confirms nothing.
type Chain struct {
	// Steps are tried in this order.
	Steps []Step

	// Budget bounds the whole chain. Zero or less means no bound but the
	// context's and the steps' own.
	Budget time.Duration

	// Ended, when not nil, is closed when the operation has ended on the
	// server by itself. It confirms the chain at once. A step under way is
	// then left to finish within its time, because a request to stop that
	// was cut off could still take effect later.
	Ended <-chan struct{}
}

// Run tries the steps until one confirms, the budget is used up or ctx ends.
// It runs in the caller's goroutine and starts none.
func (c Chain) Run(ctx context.Context) Report {
	start := time.Now()
	if c.Budget > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Budget)
		defer stop()
	}
	var r Report
	for _, s := range c.Steps {
		if c.ended() {
			r.Confirmed, r.By = true, "ended"
			break
		}
		if ctx.Err() != nil {
			break
		}
		sr := runStep(ctx, s)
		r.Steps = append(r.Steps, sr)
		if sr.Outcome == Confirmed {
			r.Confirmed, r.By = true, s.Name
			break
		}
	}
	if !r.Confirmed && c.ended() {
		r.Confirmed, r.By = true, "ended"
	}
	r.Elapsed = time.Since(start)
	return r
}

func (c Chain) ended() bool {
	select {
	case <-c.Ended: // a nil channel never is
		return true
	default:
		return false
	}
}

func runStep(ctx context.Context, s Step) StepReport {
	start := time.Now()
	ctx, stop := context.WithTimeout(ctx, s.Timeout)
	defer stop()
	out, err := s.Do(ctx)
	if out == Failed && err != nil && ctx.Err() != nil {
		// The time ran out on a request, so nobody knows where it is.
		out = Unanswered
	}
	return StepReport{Name: s.Name, Outcome: out, Err: err, Elapsed: time.Since(start)}
}

// Report tells what a chain achieved.
type Report struct {
	Steps     []StepReport  // the steps that ran, in order
	Confirmed bool          // the operation is known to have ended on the server
	By        string        // the step that confirmed, "ended" for the outside sign, or empty
	Elapsed   time.Duration // from the start of Run to its end
}

// StepReport tells what one step achieved.
type StepReport struct {
	Name    string
	Outcome Outcome
	Err     error // why it failed, nil otherwise
	Elapsed time.Duration
}

// Safe reports whether what carried the operation may be used again: the end
// is confirmed and every request to stop it was answered.
//
// INVARIANT: an unanswered request makes a report unsafe for good, whatever a
// later step found out.
func (r Report) Safe() bool {
	for _, s := range r.Steps {
		if s.Outcome == Unanswered {
			return false
		}
	}
	return r.Confirmed
}

// String is one line for a log: "confirmed by probe in 12ms (rpc requested,
// CancelFlightInfo unsupported, probe confirmed)".
func (r Report) String() string {
	var b strings.Builder
	switch {
	case r.Confirmed:
		fmt.Fprintf(&b, "confirmed by %s", r.By)
	default:
		b.WriteString("unconfirmed")
	}
	fmt.Fprintf(&b, " in %s", r.Elapsed.Round(time.Microsecond))
	for i, s := range r.Steps {
		sep := ", "
		if i == 0 {
			sep = " ("
		}
		fmt.Fprintf(&b, "%s%s %s", sep, s.Name, s.Outcome)
	}
	if len(r.Steps) > 0 {
		b.WriteString(")")
	}
	return b.String()
}
