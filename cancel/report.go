package cancel

import (
	"fmt"
	"strings"
	"time"
)

// Report tells what a chain achieved.
type Report struct {
	Steps       []StepReport  // the steps that ran, in order
	Confirmed   bool          // the operation is known to have ended on the server
	ConfirmedBy string        // the step that confirmed, "ended" for Chain.Ended, or empty
	Elapsed     time.Duration // from the start of Run to its end
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
	if r.Confirmed {
		fmt.Fprintf(&b, "confirmed by %s", r.ConfirmedBy)
	} else {
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
