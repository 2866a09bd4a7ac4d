package cancel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// ErrStepStuck is the error of a step that did not return after its context had
// ended.
var ErrStepStuck = errors.New("the step did not return after its context had ended")

// PanicError is a panic of a step, caught: Value is what it panicked with, and Stack
// where, as debug.Stack prints it. Stack is not part of the error's text. errors.Is and
// errors.As find Value if it is an error.
type PanicError = callback.PanicError

// Step is one way to stop an operation.
type Step struct {
	// Name tells the step in reports, for example "CancelFlightInfo".
	Name string

	// Timeout bounds Do. Zero or less means DefaultTimeout.
	Timeout time.Duration

	// Do tries. It must return soon after ctx ends.
	Do func(ctx context.Context) (Outcome, error)
}

// Outcome is what a step achieved.
type Outcome uint8

// The outcomes of a step. Only Confirmed ends the chain.
const (
	// Failed: the step did nothing that is known.
	Failed Outcome = iota
	// Unsupported: the server does not have this way. It did nothing.
	Unsupported
	// Requested: the server took the request; whether the operation has
	// ended is for a later step to find out.
	Requested
	// Confirmed: the operation has ended on the server.
	Confirmed
	// Unanswered: a request was sent and no reply came. It may still take
	// effect, on whatever runs then. A step that failed when its time had run
	// out, panicked or did not return counts as Unanswered.
	Unanswered
)

func (o Outcome) String() string {
	switch o {
	case Unsupported:
		return "unsupported"
	case Requested:
		return "requested"
	case Confirmed:
		return "confirmed"
	case Unanswered:
		return "unanswered"
	default:
		return "failed"
	}
}

// run calls Do within the step's time and ctx's. It reports false when Do has
// not returned within the grace after that.
func (s Step) run(ctx context.Context) (r StepReport, returned bool) {
	start := time.Now()
	ctx, stop := withTimeout(ctx, s.Timeout, DefaultTimeout)
	defer stop()
	call := callback.Go(func() (Outcome, error) { return s.Do(ctx) })
	r = StepReport{Outcome: Unanswered} // nobody knows what a step sent that panicked or ended its goroutine
	if returned = call.Wait(ctx, returnGrace); !returned {
		r.Err = fmt.Errorf("%w: %w", ErrStepStuck, context.Cause(ctx))
	} else {
		r.Err = call.Failure("the step")
		cutOff := call.Value == Failed && r.Err != nil && ctx.Err() != nil // on its way
		if call.Returned && !cutOff {
			r.Outcome = call.Value
		}
	}
	r.Name, r.Elapsed = s.Name, time.Since(start)
	return r, returned
}
