package adbcpool

import (
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// badArgument is the error of a call that was given something impossible.
func badArgument(op string, err error) error {
	return &flightpool.Error{Op: op, Stage: session.StageArgument, Fault: flightpool.FaultUsage, Unsent: true, Err: err}
}
