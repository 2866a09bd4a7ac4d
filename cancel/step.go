package cancel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// ErrStepStuck is the error of a step that did not return after its context had
// ended.
var ErrStepStuck = errors.New("the step did not return after its context had ended")

// errStepExited is the error of a step that ended its goroutine by
// runtime.Goexit.
var errStepExited = errors.New("the step ended its goroutine (runtime.Goexit)")

// PanicError is a panic of a step, caught.
type PanicError struct {
	Value any    // what the step panicked with
	Stack []byte // where, as debug.Stack prints it; not in Error
}

func (e *PanicError) Error() string { return fmt.Sprintf("the step panicked: %v", e.Value) }

// Unwrap reaches the panic's value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

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
	timeout := s.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	results := make(chan StepReport, 1)
	go s.attempt(ctx, results)
	r, returned = awaitResult(ctx, results)
	if !returned {
		r = StepReport{Outcome: Unanswered, Err: fmt.Errorf("%w: %w", ErrStepStuck, context.Cause(ctx))}
	}
	r.Name, r.Elapsed = s.Name, time.Since(start)
	return r, returned
}

func awaitResult(ctx context.Context, results <-chan StepReport) (r StepReport, returned bool) {
	select {
	case r = <-results:
		return r, true
	case <-ctx.Done():
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case r = <-results:
		return r, true
	case <-grace.C:
		return StepReport{}, false
	}
}

// attempt calls Do and sends its result, also when Do panics or ends its
// goroutine. Nobody knows then what was sent, so the outcome is Unanswered.
func (s Step) attempt(ctx context.Context, results chan<- StepReport) {
	r := StepReport{Outcome: Unanswered, Err: errStepExited}
	defer func() {
		if p := recover(); p != nil {
			r.Err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		results <- r
	}()
	out, err := s.Do(ctx)
	if out == Failed && err != nil && ctx.Err() != nil {
		out = Unanswered // the request was cut off on its way
	}
	r.Outcome, r.Err = out, err
}
