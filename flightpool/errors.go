package flightpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flightpool/flightpool/backend"
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
	// running, and that nobody waits for it: see HealthCheck.FailureThreshold.
	// errors.As with an *UnhealthyError gives the reason.
	ErrUnhealthy = errors.New("server unhealthy")

	// ErrSessionLost says that the transport or the server session under the
	// call is gone.
	ErrSessionLost = backend.ErrSessionLost

	// ErrTxAborted says that a statement of the transaction failed. Nothing
	// of it is stored.
	ErrTxAborted = backend.ErrTxAborted

	// ErrCommitUnknown says that the outcome of a commit cannot be known.
	ErrCommitUnknown = backend.ErrCommitUnknown

	// ErrNoTx says that no transaction is open.
	ErrNoTx = session.ErrNoTx

	// ErrTxOpen says that a transaction is open already. It is untouched.
	ErrTxOpen = session.ErrTxOpen

	// ErrBusy says that another call of the same session or transaction is under
	// way or its result is still open. Finish or release that first.
	ErrBusy = backend.ErrBusy

	// ErrHandleClosed says that the session, transaction, prepared statement or
	// result was closed or ended before the call.
	ErrHandleClosed = backend.ErrHandleClosed

	// ErrAmbiguousRoute says that a text does not tell how to send it so that
	// it is executed once and its rows are not lost: see QueryOptions.Route.
	ErrAmbiguousRoute = session.ErrAmbiguousRoute

	// ErrEndpointExpired says that a part of a result was read too late.
	ErrEndpointExpired = backend.ErrEndpointExpired
)

// Error is any failure of a call: the call, how far it had come, whose fault it
// was and the cause. Its chain reaches the gRPC status or driver error, and the
// context's error when a deadline or cancellation brought it about.
type Error = backend.Error

// Fault tells whose fault an Error is.
type Fault = backend.Fault

// The kinds of fault.
const (
	FaultUnknown     = backend.FaultUnknown
	FaultUsage       = backend.FaultUsage
	FaultStatement   = backend.FaultStatement
	FaultUnsupported = backend.FaultUnsupported
	FaultAuth        = backend.FaultAuth
	FaultLimit       = backend.FaultLimit
	FaultContext     = backend.FaultContext
	FaultTransport   = backend.FaultTransport
	FaultSession     = backend.FaultSession
)

// SafeToRetry reports whether the call that failed with err may be repeated:
// nothing of it reached the server, or it was a read of which no batch was
// delivered. Where a call was repeated and both attempts failed, it is true only
// if it is for both. It is false of an Ingest that has read some of its reader's rows, of which a second call would store the rest alone.
func SafeToRetry(err error) bool { return backend.SafeToRetry(err) }

// IsConflict reports whether a transaction failed because another was faster, and is
// known not to be stored: it may run again as a whole, which InTx does by itself.
func IsConflict(err error) bool { return backend.IsConflict(err) }

// acquireError is the error of a call that got no connection.
func (p *FlightSQLPool) acquireError(ctx context.Context, op string, err error) error {
	ended := ctxerr.Of(ctx)
	if p.endedByCause(ended, err) {
		return &Error{Op: op, Stage: backend.StageAcquire, Fault: FaultContext, Target: p.target, Unsent: true, Ctx: ended, Err: inPoolsWords(err)}
	}
	e := &Error{Op: op, Stage: backend.StageAcquire, Target: p.target, Unsent: true, Err: poolError(err)}
	var failed *reservoir.OpenError
	var full *reservoir.ExhaustedError
	var inner *Error
	var rangeErr *reservoir.RangeError
	switch {
	case errors.Is(err, ErrClosed):
		e.Fault = FaultUsage
	case errors.As(err, &rangeErr):
		e.Stage, e.Fault = backend.StageArgument, FaultUsage
	case errors.As(err, &full):
		e.Fault = FaultLimit
		if errors.As(full.LastOpen, &inner) {
			e.Stage, e.Fault, e.SQLState = inner.Stage, inner.Fault, inner.SQLState
		} else if full.InUse >= full.MaxSize {
			e.Err = fmt.Errorf("%w; %s", e.Err, p.leakHint())
		}
	case errors.Is(err, ErrUnhealthy):
		e.Fault = FaultTransport
		if _, refused := err.(*UnhealthyError); !refused && errors.As(err, &inner) { //nolint:errorlint // bare: the call has waited for no open
			e.Stage, e.SQLState = inner.Stage, inner.SQLState
		}
	case errors.As(err, &failed) && errors.As(failed.Err, &inner):
		// The open that failed says more; the outer error would repeat the inner one's
		// text.
		e.Stage, e.Fault, e.SQLState, e.Err = inner.Stage, inner.Fault, inner.SQLState, &rewordedError{inner.Err.Error(), err}
	case errors.As(err, &inner):
		e.Stage, e.Fault, e.SQLState, e.Err = inner.Stage, inner.Fault, inner.SQLState, err
	}
	if ended != nil {
		e.Ctx, e.Fault = ended, FaultContext
	}
	e.Err = inPoolsWords(e.Err)
	return e
}

// endedByCause reports whether a wait has failed since the caller's context has ended, with a cause of its own: that may be
// what another call has failed with, on another pool, and says nothing of this one.
func (p *FlightSQLPool) endedByCause(ended, err error) bool {
	if ended == nil || ended == context.Canceled || ended == context.DeadlineExceeded { //nolint:errorlint // bare: there is no cause
		return false
	}
	_, exhausted := err.(*reservoir.ExhaustedError) //nolint:errorlint // of this pool, whose numbers it tells
	return !exhausted && !p.closing.Load() && errors.Is(err, ended)
}

// leakHint tells what to look at when every connection is in use.
func (p *FlightSQLPool) leakHint() string {
	if p.cfg.LeakAfter > 0 {
		return "is a result or session not released? Hooks.Connections.Leaked and the Logger name its borrower"
	}
	return "is a result or session not released? set LeakAfter to find its borrower"
}

// poolError rewords an error of the reservoir for a pool's caller, without naming the
// server twice.
func poolError(err error) error {
	var full *reservoir.ExhaustedError
	var unhealthy *UnhealthyError
	var closing *reservoir.CloseError
	var rangeErr *reservoir.RangeError
	switch {
	case errors.As(err, &full):
		what := "pool exhausted after"
		if full.Opening > 0 && full.InUse < full.MaxSize { // the wait was for the server, not for a borrower
			what = "no connection was opened within"
		}
		text := fmt.Sprintf(what+" %v: %d of %d connections, %d in use, %d idle, %d opening, %d waiting: %v",
			full.Waited, full.Total, full.MaxSize, full.InUse, full.Idle, full.Opening, full.Waiting, full.Cause)
		if full.LastOpen != nil {
			text += " (last open: " + causeOf(full.LastOpen) + ")"
		}
		return &rewordedError{text, err}
	case errors.As(err, &unhealthy):
		return &rewordedError{fmt.Sprintf("%v since %s: %s", ErrUnhealthy, unhealthy.Since.Format(time.RFC3339), causeOf(unhealthy.Reason)), err}
	case errors.As(err, &closing):
		return &rewordedError{fmt.Sprintf("%d connections closed under their borrowers, %d remain: %v", closing.Forced, closing.Remaining, closing.Cause), err}
	case errors.As(err, &rangeErr):
		return &rewordedError{fmt.Sprintf("%d is not %s", rangeErr.Value, rangeErr.Bounds), err}
	case errors.Is(err, ErrClosed):
		return &rewordedError{"the pool is closed", err}
	default:
		return inPoolsWords(err)
	}
}

// inPoolsWords is an error without the name of the reservoir, which users do not know.
func inPoolsWords(err error) error {
	text := err.Error()
	if words := strings.ReplaceAll(text, "reservoir: ", ""); words != text {
		return &rewordedError{words, err}
	}
	return err
}

// causeOf is the text of what an error of an open was caused by.
func causeOf(err error) string {
	var inner *Error
	if errors.As(err, &inner) && inner.Err != nil {
		return inner.Err.Error()
	}
	return err.Error()
}

// rewordedError is an error with another text.
type rewordedError struct {
	text string
	err  error
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.err }

func badArgument(op, target, format string, args ...any) error {
	return &Error{Op: op, Stage: backend.StageArgument, Fault: FaultUsage, Target: target, Unsent: true, Err: fmt.Errorf(format, args...)}
}

// onConnectError is what OnConnect has failed with. Where that is no error of a call it says nothing
// of the server, whatever the time was.
type onConnectError struct{ err error }

func isOwnOfOnConnect(err error) bool {
	var e *onConnectError
	return errors.As(err, &e) && !errors.As(e.err, new(*Error))
}

func (e *onConnectError) Error() string { return "OnConnect: " + e.err.Error() }
func (e *onConnectError) Unwrap() error { return e.err }

// ownTimeError is of an open that a shorter time has ended than DialTimeout: a resolver's, that for one of several addresses, one of
// the client of a token endpoint or of OnConnect. errors.Is finds no error of a context in it, since no caller's has ended.
type ownTimeError struct{ err error }

func (e *ownTimeError) Error() string { return e.err.Error() }

func (e *ownTimeError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.err, target)
}

func (e *ownTimeError) As(target any) bool { return errors.As(e.err, target) }

// noAnswerError says that DialTimeout is over.
type noAnswerError struct {
	ownTimeError
	limit time.Duration
}

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("no answer within DialTimeout %v: %v", e.limit, e.err)
}

// Timeout is true, for net.Error's users.
func (e *noAnswerError) Timeout() bool { return true }
