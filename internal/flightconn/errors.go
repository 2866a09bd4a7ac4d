package flightconn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
)

// wrapError makes the *backend.Error of an RPC's error. stage is how far the
// call had come. An error that is one already, such as that of ownTxLost, stays
// as it is.
//
// Causes of our own are looked for first, in the order of how much they say:
// what the caller has given, a session that is gone, a location of another
// server, a reply that breaks the protocol. Then the caller's context. Only
// what is left is judged by its gRPC status, since most of the former have one
// in their chain too.
func (r *rpcCall) wrapError(stage backend.Stage, err error) error {
	var done *backend.Error
	if errors.As(err, &done) {
		return done
	}
	e := r.newError(stage, backend.FaultUnknown, err)
	e.Running = r.sends.statementRunning()

	var large *tooLargeError
	var unencodable *unencodableError
	var located *locationError
	switch {
	case e.Unsent && (errors.As(err, &large) || errors.As(err, &unencodable)):
		e.Stage, e.Fault = backend.StageArgument, backend.FaultUsage
		return e
	case errors.Is(err, backend.ErrSessionReplaced):
		return r.lostError(stage, nil)
	case errors.As(err, &located) && r.callerEndedErr(status.Code(err) == codes.DeadlineExceeded) == nil:
		if r.conn.Lost() != nil { // a location may be the server itself by another name
			return r.lostError(stage, err)
		}
		e.Fault = backend.FaultStatement
		return e
	case errors.Is(err, ErrSchemaMismatch):
		e.Fault = backend.FaultStatement
		return e
	case errors.Is(err, errNotExecuted):
		e.Fault = backend.FaultUnsupported
		return e
	case errors.Is(err, errMalformed):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return r.classifyEnded(e, codes.Canceled)
	}

	s, ok := status.FromError(err)
	if !ok {
		return e
	}
	e.SQLState = sqlState(s.Message())
	e.Fault = backend.FaultOf(s.Code(), s.Message())
	switch {
	case s.Code() == codes.Unauthenticated && e.Unsent:
		e.Stage = backend.StageAuth // gRPC's client had no credential to send
	case backend.RefusesToken(s.Code(), s.Message()):
		// The credential of a call's first RPC is looked at before anything
		// else is, so nothing was done. A proxy's page may stand in place of another answer.
		e.Unsent = r.sends.count.Load() <= 1 && r.op != "Ingest" && !effect.IsPage(err)
	case e.Fault == backend.FaultContext:
		return r.classifyEnded(e, s.Code())
	case e.Fault == backend.FaultTransport && r.conn.Lost() != nil:
		return r.lostError(stage, err)
	}
	return e
}

// refusesToken is backend.RefusesToken of an error.
func refusesToken(err error) bool {
	s, ok := status.FromError(err)
	return ok && backend.RefusesToken(s.Code(), s.Message())
}

// classifyEnded classifies a cancellation or timeout: by the caller's context, by the
// end of the transport or of the stream, or else by the server, which ended the statement
// alone.
//
// DEADLINE_EXCEEDED may be of the caller's deadline, which the server is told
// too.
//
// A server's own limit on the time of a statement ends like this too, and must
// not look like the caller's deadline: the caller would take it for its own.
func (r *rpcCall) classifyEnded(e *backend.Error, code codes.Code) error {
	if cause := r.callerEndedErr(code == codes.DeadlineExceeded); cause != nil {
		e.Fault, e.Ctx = backend.FaultContext, cause
		return e
	}
	if r.conn.Lost() != nil {
		return r.lostError(e.Stage, e.Err)
	}
	e.Fault = backend.FaultOf(codes.Unknown, status.Convert(e.Err).Message())
	return e
}

// isUnsupported reports whether err says that the server lacks the call. nil is
// no such answer, and neither is an error that has no status.
func isUnsupported(err error) bool {
	s, ok := status.FromError(err)
	return ok && backend.FaultOf(s.Code(), s.Message()) == backend.FaultUnsupported
}

var (
	namedState     = regexp.MustCompile(`(?i:sql ?state)[ :=(\["']*([0-9A-Z]{5})\b`)
	bracketedState = regexp.MustCompile(`\[([0-9A-Z]{5})\]`)
)

// sqlState finds the SQLSTATE that many servers put in the text, having no
// field for it. A bare bracket counts only with a digit, which every SQLSTATE
// has and most words have not. It is empty where the text has none, and a guess
// where it has: nothing is decided by it here.
func sqlState(text string) string {
	if m := namedState.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	for _, m := range bracketedState.FindAllStringSubmatch(text, -1) {
		if strings.ContainsAny(m[1], "0123456789") {
			return m[1]
		}
	}
	return ""
}

// LostError is backend.ErrSessionLost with the reason for which a connection
// ended, and what the call heard of it. A call's RPCs are cancelled when the
// connection ends: that is no cause, and must not pass for the caller's doing.
func LostError(reason, cause error) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		cause = nil
	}
	return &lostError{reason, cause}
}

// lostError shows the reason and the cause, where there are any, and leads to
// both and to backend.ErrSessionLost.
type lostError struct{ reason, cause error }

func (e *lostError) Error() string {
	s := backend.ErrSessionLost.Error()
	if e.reason != nil {
		s += ": " + e.reason.Error()
	}
	if e.cause != nil {
		s = withHeard(s, e.cause.Error())
	}
	return s
}

// withHeard adds what a call has heard to the reason for which its transport has ended. Of a
// transport of our own that is the reason.
func withHeard(reason, heard string) string {
	if strings.HasSuffix(reason, heard) {
		return reason
	}
	return reason + " (" + heard + ")"
}

func (e *lostError) Unwrap() []error {
	out := []error{backend.ErrSessionLost}
	for _, err := range []error{e.reason, e.cause} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// errMalformed begins the errors of replies that break the protocol. What the
// server does next cannot be known, so they put the connection in doubt.
var errMalformed = errors.New("malformed reply")

// malformed makes an error that errMalformed is found in. The fault is
// FaultUnknown by it (wrapError).
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errMalformed, fmt.Errorf(format, args...))
}
