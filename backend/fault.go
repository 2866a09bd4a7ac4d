package backend

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// Fault tells whose fault an error is, and with it what becomes of the
// connection that met it.
type Fault uint8

// The kinds of fault.
const (
	FaultUnknown     Fault = iota // cannot be told: the connection is in doubt
	FaultUsage                    // the caller's: a wrong argument, nothing was sent
	FaultStatement                // the statement's: the server refused or failed it; the connection is fine
	FaultUnsupported              // the server does not have the call; the connection is fine
	FaultAuth                     // the credentials': refused by the server
	FaultLimit                    // a limit of the server: sessions, memory, message size
	FaultContext                  // the caller's context ended
	FaultTransport                // the connection broke, or cannot be made
	FaultSession                  // the server no longer knows the session, transaction or handle
)

func (f Fault) String() string {
	switch f {
	case FaultUsage:
		return "usage"
	case FaultStatement:
		return "statement"
	case FaultUnsupported:
		return "unsupported"
	case FaultAuth:
		return "auth"
	case FaultLimit:
		return "limit"
	case FaultContext:
		return "context"
	case FaultTransport:
		return "transport"
	case FaultSession:
		return "session"
	default:
		return "unknown"
	}
}

// KeepsConn reports whether the connection is as good as before the error.
func (f Fault) KeepsConn() bool {
	switch f {
	case FaultUsage, FaultStatement, FaultUnsupported:
		return true
	default:
		return false
	}
}

// FaultOf classifies a gRPC status of a Flight SQL server. Servers answer
// INTERNAL and UNKNOWN for plain SQL errors, so these are the statement's
// fault unless the text is gRPC's own. arrow-flight (Rust) says INVALID_ARGUMENT
// for an action that it lacks, in words of its own, and so do others. A stream that was reset is no
// answer, whatever code gRPC makes of it; only whether the caller's context has ended
// it is for the caller to say. Some servers refuse everything in a session that is gone by a code
// that others refuse a statement by: see goneTexts.
func FaultOf(code codes.Code, msg string) Fault {
	inMessage := func(text string) bool { return strings.Contains(msg, text) }
	beginsMessage := func(text string) bool { return strings.HasPrefix(msg, text) }
	if code == codes.InvalidArgument && (inMessage("defined request is invalid") || slices.ContainsFunc(lackTexts, beginsMessage)) {
		return FaultUnsupported
	}
	if slices.ContainsFunc(goneTexts[code], inMessage) {
		return FaultSession
	}
	if begins(msg, resetTexts) && code != codes.Canceled && code != codes.DeadlineExceeded {
		return FaultTransport
	}
	switch code {
	case codes.Unavailable, codes.DataLoss:
		return FaultTransport
	case codes.Canceled, codes.DeadlineExceeded:
		return FaultContext
	case codes.Unauthenticated:
		return FaultAuth
	case codes.PermissionDenied, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange:
		return FaultStatement
	case codes.Unimplemented:
		return FaultUnsupported
	case codes.ResourceExhausted:
		return FaultLimit
	case codes.Internal, codes.Unknown:
		if begins(msg, grpcTexts) || begins(msg, resetTexts) {
			return FaultTransport
		}
		return FaultStatement
	default:
		return FaultUnknown
	}
}

// RefusesToken reports whether a status refuses the credential of a call, which servers look at before anything else. GizmoSQL
// has the status of a wrong statement for a token that it has not signed since it was started, or that has expired, its own or
// one of another's that stands for a password.
func RefusesToken(code codes.Code, msg string) bool {
	return code == codes.Unauthenticated || code == codes.InvalidArgument && strings.Contains(msg, tokenText)
}

const tokenText = "Token verification failed with error: "

// lackTexts are how those others begin: Spice, and InfluxDB, which looks at the message of an action
// alone, and cannot decode that of some. Further on it may be the text of a statement that is wrong.
var lackTexts = []string{
	"Unknown action type",
	"Error while planning Flight SQL : Unsupported FlightSQL message type: ", "Error while planning Flight SQL : Invalid protobuf: ",
}

// goneTexts are what servers say of a session that is gone, on every request from then on. What
// they answer without one, such as SqlInfo, most answer still, so that nothing else shows it: sessions
// that an operator has killed (GizmoSQL, StarRocks, Doris), that have ended otherwise (Doris; Arrow's
// adapter for PostgreSQL, where a wrong statement is enough; servers made after DataFusion's example),
// tokens that a server signed before it was started again behind a proxy (GizmoSQL, which makes another secret then),
// and cookies of which the server knows nothing (those with the session middleware of Arrow C++ and Java).
var goneTexts = map[codes.Code][]string{
	codes.InvalidArgument:  {"session has been killed", tokenText, "Invalid or expired arrow_flight_session_id cookie"},
	codes.NotFound:         {"cannot find connect arrow context of the token", "Invalid arrow_flight_session_id cookie"},
	codes.Internal:         {"UserSession expire after access", "Context handle not found: "},
	codes.PermissionDenied: {"invalid Bearer token"},
}

// resetTexts are how the texts of a stream that was reset begin, gRPC's and our transport's.
var resetTexts = []string{"stream terminated by RST_STREAM", "the server, or a proxy before it, has ended the call without an answer"}

// grpcTexts are how the runtime's complaints about a broken stream begin, which come as INTERNAL, as a server's about a
// statement do. A page of HTTP 409 is UNKNOWN, and has the word of a conflict.
var grpcTexts = []string{
	"received the unexpected content-type", "unexpected HTTP status code", "transport:",
	"http2:", "malformed header", "unexpected EOF", "grpc: failed to unmarshal", "server closed the stream without sending trailers",
}

// begins reports whether a status begins with one of the texts, also where it is wrapped. Further on it may be the statement that is
// wrong, or a value, which databases repeat: a search in logs for what Go programs write there.
func begins(msg string, texts []string) bool {
	_, wrapped, _ := strings.Cut(msg, " desc = ")
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(msg, text) || strings.HasPrefix(wrapped, text) })
}
