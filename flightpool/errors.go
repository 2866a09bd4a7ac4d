package flightpool

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// What the calls fail with. errors.Is finds them in every error of this module.
var (
	// ErrClosed says that the pool is closed or closing.
	ErrClosed = reservoir.ErrClosed

	// ErrExhausted says that no connection came free in time. errors.As with
	// a *reservoir.ExhaustedError gives the numbers and the last failed open.
	ErrExhausted = reservoir.ErrExhausted

	// ErrUnhealthy says that the server could not be reached several times
	// running, and that nothing was tried this time. errors.As with an
	// *UnhealthyError gives the reason.
	ErrUnhealthy = errors.New("server unhealthy")

	// ErrSessionLost says that the transport or the server session under the
	// call is gone.
	ErrSessionLost = session.ErrSessionLost

	// ErrTxAborted says that a statement of the transaction failed. Nothing
	// of it is stored.
	ErrTxAborted = session.ErrTxAborted

	// ErrCommitUnknown says that the outcome of a commit cannot be known.
	ErrCommitUnknown = session.ErrCommitUnknown

	// ErrAmbiguousRoute says that a text does not tell how to send it so that
	// it is executed once and its rows are not lost: see QueryOptions.Route.
	ErrAmbiguousRoute = session.ErrAmbiguousRoute

	// ErrEndpointExpired says that a part of a result was read too late.
	ErrEndpointExpired = session.ErrEndpointExpired
)

// Error is any failure of a call: the call, how far it had come, whose fault it
// was and the cause. Its chain reaches the gRPC status or driver error, and the
// context's error when a deadline or cancellation brought it about.
type Error = session.Error

// Fault tells whose fault an Error is.
type Fault = session.Fault

// The kinds of fault.
const (
	FaultUnknown     = session.FaultUnknown
	FaultUsage       = session.FaultUsage
	FaultStatement   = session.FaultStatement
	FaultUnsupported = session.FaultUnsupported
	FaultAuth        = session.FaultAuth
	FaultLimit       = session.FaultLimit
	FaultContext     = session.FaultContext
	FaultTransport   = session.FaultTransport
	FaultSession     = session.FaultSession
)

// SafeToRetry reports whether the call that failed with err may be repeated:
// nothing of it reached the server, or it was a read of which no batch was
// delivered. Where a call was repeated and both attempts failed, it is true only
// if it is for both.
func SafeToRetry(err error) bool { return session.SafeToRetry(err) }

// acquireError is the error of a call that got no connection.
func (p *FlightSQLPool) acquireError(ctx context.Context, op string, err error) error {
	e := &Error{Op: op, Stage: session.StageAcquire, Target: p.target, Unsent: true, Err: err}
	var failed *reservoir.OpenError
	var full *reservoir.ExhaustedError
	var inner *Error
	switch {
	case errors.Is(err, ErrClosed):
		e.Fault = FaultUsage
	case errors.As(err, &failed) && errors.As(failed.Err, &inner):
		// The open that failed says more; its own words for what it was
		// part of would only repeat.
		e.Stage, e.Fault, e.SQLState, e.Err = inner.Stage, inner.Fault, inner.SQLState, &reworded{inner.Err.Error(), err}
	case errors.As(err, &full):
		e.Fault = FaultLimit
		if errors.As(full.LastOpen, &inner) {
			e.Stage, e.Fault, e.SQLState = inner.Stage, inner.Fault, inner.SQLState
		} else if full.InUse >= full.MaxSize {
			e.Err = fmt.Errorf("%w; %s", err, p.leakHint())
		}
	case errors.Is(err, ErrUnhealthy):
		e.Fault = FaultTransport
	case errors.As(err, &inner):
		e.Stage, e.Fault, e.SQLState = inner.Stage, inner.Fault, inner.SQLState
	}
	if ended := ctxerr.Of(ctx); ended != nil {
		e.Ctx, e.Fault = ended, FaultContext
	}
	return e
}

// leakHint tells what to look at when every connection is in use.
func (p *FlightSQLPool) leakHint() string {
	if p.cfg.LeakAfter > 0 {
		return "is a result or session not released? Hooks.Connections.Leaked and the Logger name its borrower"
	}
	return "is a result or session not released? set LeakAfter to find its borrower"
}

// reworded is an error with a shorter text.
type reworded struct {
	text string
	err  error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.err }

func badArgument(op, target, format string, args ...any) error {
	return &Error{Op: op, Stage: session.StageArgument, Fault: FaultUsage, Target: target, Unsent: true, Err: fmt.Errorf(format, args...)}
}
