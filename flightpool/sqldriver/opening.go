package sqldriver

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

// newBound is a timer of an AcquireTimeout, whose negative is none.
func newBound(d time.Duration) *time.Timer {
	if d < 0 {
		d = math.MaxInt64
	}
	return time.NewTimer(d)
}

// openingTooLongError is the error of a call that has waited for the pool to be made for as long as it may
// wait for a connection.
func openingTooLongError(waited time.Duration) error {
	return &flightpool.Error{
		Op: "Connect", Stage: backend.StageAcquire, Fault: flightpool.FaultLimit, Unsent: true,
		Err: noConnError{&reservoir.ExhaustedError{Opening: 1, Waited: waited, Cause: errors.New("AcquireTimeout is over")}},
	}
}

// noConnError is a reservoir's error in a pool's words.
type noConnError struct{ full *reservoir.ExhaustedError }

func (e noConnError) Error() string {
	return fmt.Sprintf("no connection was opened within %v: %v, and the pool is still being opened", e.full.Waited, e.full.Cause)
}
func (e noConnError) Unwrap() error { return e.full }
