package adbcpool

import (
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// badArgument is the error of a call that was given something impossible.
func badArgument(op string, err error) error {
	return &flightpool.Error{Op: op, Stage: backend.StageArgument, Fault: flightpool.FaultUsage, Unsent: true, Err: err}
}
