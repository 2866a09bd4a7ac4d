package flightconn

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/session"
)

// wrapError makes the *session.Error of an RPC's error.
func (r *rpcCall) wrapError(stage session.Stage, err error) error {
	var done *session.Error
	if errors.As(err, &done) {
		return done
	}
	e := &session.Error{Op: r.op, Stage: stage, Target: r.conn.target(), Unsent: r.sends.nothingSent(), Running: r.sends.statementRunning(), Err: err}

	var large *tooLargeError
	var located *locationError
	switch {
	case errors.As(err, &large) && e.Unsent:
		e.Stage, e.Fault = session.StageArgument, session.FaultUsage
		return e
	case errors.Is(err, session.ErrSessionReplaced):
		return r.lostError(stage, nil)
	case errors.As(err, &located) && r.callerErr() == nil:
		if r.conn.Lost() != nil { // a location may be the server itself by another name
			return r.lostError(stage, err)
		}
		e.Fault = session.FaultStatement
		return e
	case errors.Is(err, ErrSchemaMismatch):
		e.Fault = session.FaultStatement
		return e
	case errors.Is(err, errMalformed):
		e.Fault = session.FaultUnknown
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return r.classifyEnded(e, codes.Canceled)
	}

	s, ok := status.FromError(err)
	if !ok {
		e.Fault = session.FaultUnknown
		return e
	}
	e.SQLState = sqlState(s.Message())
	e.Fault = session.FaultOf(s.Code(), s.Message())
	switch {
	case s.Code() == codes.Unauthenticated:
		// The credential of a call's first RPC is looked at before anything
		// else is, so nothing was done.
		e.Unsent = r.sends.count.Load() <= 1 && r.op != "Ingest"
	case e.Fault == session.FaultContext:
		return r.classifyEnded(e, s.Code())
	case e.Fault == session.FaultTransport && r.conn.Lost() != nil:
		return r.lostError(stage, err)
	case isUndefined(s):
		e.Fault = session.FaultUnsupported
	}
	return e
}

// classifyEnded classifies a cancellation or timeout: by the caller's context, by the
// end of the epoch, or else by the server, which ended the statement alone.
func (r *rpcCall) classifyEnded(e *session.Error, code codes.Code) error {
	if cause := r.callerEndedErr(code == codes.DeadlineExceeded); cause != nil {
		e.Fault, e.Ctx = session.FaultContext, cause
		return e
	}
	if r.conn.Lost() != nil {
		return r.lostError(e.Stage, e.Err)
	}
	e.Fault = session.FaultStatement
	return e
}

// isUndefined recognises the answer of servers that lack an action and say
// INVALID_ARGUMENT for it: arrow-flight (Rust) words it so.
func isUndefined(s *status.Status) bool {
	return s.Code() == codes.InvalidArgument && strings.Contains(s.Message(), "defined request is invalid")
}

// isUnsupported reports whether err says that the server lacks the call.
func isUnsupported(err error) bool {
	s, _ := status.FromError(err) // codes.Unknown if it is none
	return s.Code() == codes.Unimplemented || isUndefined(s)
}

var (
	namedState     = regexp.MustCompile(`(?i:sql ?state)[ :=(\["']*([0-9A-Z]{5})\b`)
	bracketedState = regexp.MustCompile(`\[([0-9A-Z]{5})\]`)
)

// sqlState finds the SQLSTATE that many servers put in the text, having no
// field for it. A bare bracket counts only with a digit, which every SQLSTATE
// has and most words have not.
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
