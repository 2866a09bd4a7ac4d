package cancel

import (
	"context"
	"time"
)

// Step is one way to stop an operation.
type Step struct {
	// Name tells the step in reports, for example "CancelFlightInfo".
	Name string

	// Timeout bounds Do. It must be positive.
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
	// effect, on whatever runs then. A Failed step whose time ran out counts
	// as Unanswered.
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
