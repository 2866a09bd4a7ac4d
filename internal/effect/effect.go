// Package effect says what the answer to an RPC that changes a server's state tells
// of that state. Servers and the proxies before them answer before an RPC has taken
// effect, and after it has.
package effect

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Meaning is what an answer tells.
type Meaning uint8

// Meanings. Whoever relies on what is NotKnown gives the session up.
const (
	Done     Meaning = iota
	Refused          // nothing has changed
	NotKnown         // it may have taken effect
)

// Change is what was asked for.
type Change uint8

// Changes: each is refused in words of its own.
const (
	Commit    Change = iota
	Begin            // of a transaction
	Statement        // one statement of the caller's, or its preparing
)

// Of tells what err says of a change. A status that names a reason is a refusal:
// servers give it before they do anything. INTERNAL and UNKNOWN are not by
// themselves: most servers answer so for what their database refuses, but also when
// they fail after it has done it. CANCELLED and DEADLINE_EXCEEDED are answers to
// what may have been done as well, and those of proxies that end a stream. There the
// server's own text has to speak of a refusal, and of no connection that it has lost
// itself. UNAVAILABLE, DATA_LOSS and RESOURCE_EXHAUSTED say nothing. An error without
// a status is of a driver that has classified it: a refusal. A status that is made of a page
// of HTTP is no answer of the server's, whatever it names.
//
// A Begin is refused by every status when the server says that a transaction is
// open already, and nothing is known all the same: nobody has the id of that one.
func Of(change Change, err error) Meaning {
	if err == nil {
		return Done
	}
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return Refused
	}
	text := strings.ToLower(answer.GRPCStatus().Message()) // without ours, in which the server's name stands
	speaks := func(word string) bool { return strings.Contains(text, word) }
	if change == Begin && slices.ContainsFunc(openWords, speaks) {
		return NotKnown
	}
	if IsPage(err) {
		return NotKnown
	}
	switch answer.GRPCStatus().Code() {
	case codes.Internal, codes.Unknown, codes.Canceled, codes.DeadlineExceeded:
	case codes.Unavailable, codes.DataLoss, codes.ResourceExhausted:
		return NotKnown
	default:
		return Refused
	}
	refused := slices.ContainsFunc(refusalWords[change], speaks) || change == Commit && speaks("abort") && slices.ContainsFunc(txWords, speaks)
	if refused && !slices.ContainsFunc(lossWords, speaks) {
		return Refused
	}
	return NotKnown
}

// CommitFailed reports whether err says, in the words of DuckDB, that an engine has tried a COMMIT, and rolled back what it
// could not store. The status does not matter: GizmoSQL gives that of a wrong statement.
func CommitFailed(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) || IsPage(err) {
		return false
	}
	text := strings.ToLower(answer.GRPCStatus().Message())
	return strings.Contains(text, "transactioncontext error: failed to commit") &&
		!slices.ContainsFunc(lossWords, func(word string) bool { return strings.Contains(text, word) })
}

// IsPage reports whether err is what our transport, or gRPC's, makes of a page of HTTP, whose
// status gives the code: a proxy may have put it in place of the server's answer.
func IsPage(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return false
	}
	text := strings.ToLower(answer.GRPCStatus().Message())
	return slices.ContainsFunc(proxyWords, func(word string) bool { return strings.Contains(text, word) })
}

// NoVerdict reports whether err is no judgement of what was asked, though it leaves the connection as good as before: a
// page of HTTP (IsPage), or the status of an RPC that has taken too long, or was ended, on the server or on the way to it.
func NoVerdict(err error) bool {
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.GRPCStatus().Code()
	return code == codes.Canceled || code == codes.DeadlineExceeded || IsPage(err)
}

// txWords name what was aborted, in a refusal of a COMMIT. Connections, streams and requests are
// aborted too.
var txWords = []string{"transaction", "txn", "already aborted"}

// proxyWords are in the text of a page of HTTP: see IsPage.
var proxyWords = []string{"answered with http status", "unexpected http status code"}

// refusalWords are what databases say of what they refuse.
var refusalWords = map[Change][]string{
	Commit: {
		"failed to commit", "cannot commit", "can't commit", "could not commit", "unable to commit", "commit failed", "not committed",
		"transactioncontext error", "no transaction", "no active transaction", "not in a transaction",
		"conflict", "constraint", "rolled back", "rollback", "serializ", "deadlock", "locked", "refus", "reject",
	},
	Begin: {
		"cannot start", "cannot begin", "could not start", "could not begin", "failed to start", "failed to begin", "unable to start", "unable to begin",
		"not support", "unsupported", "not implement", "unimplemented", "read-only", "read only", "denied", "refus", "reject",
	},
	Statement: {
		"parser error", "binder error", "catalog error", "syntax", "parse", "conversion error", "constraint", "invalid input", "invalid argument", "permission error",
		"not implement", "unimplemented", "not support", "unsupported", "does not exist", "do not exist", "doesn't exist", "already exist", "not found", "no such", "not recognized", "unrecognized",
		"transactioncontext error", "current transaction is aborted", "denied", "read-only", "read only", "refus", "reject",
	},
}

// openWords are what databases say of a BEGIN in a transaction.
var openWords = []string{"within a transaction", "already", "transaction is aborted"}

// lossWords are what servers say when they do not know themselves what has become
// of a change, for example because their own database has not answered it.
var lossWords = []string{
	"connection refused", "connection reset", "connection closed", "connection was closed", "connection has been closed", "connection is closed", "connection aborted",
	"connection lost", "lost connection", "connection to server", "connection failure", "connection not open", "no connection", "closed the connection",
	"terminating connection", "server terminated", "broken pipe", "timed out", "timeout", "could not receive", "could not send", "unexpected eof", "eof detected",
	"connection abort", "stream abort", "request abort", "request was abort", "gone away", "unavailable", "gateway", "upstream", "response",
	"internal server error", "context canceled", "context cancelled", "deadline exceeded", "network", "socket", "io error", "i/o error", "after the commit", "after commit", "outcome unknown", "in doubt",
}
