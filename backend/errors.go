package backend

import (
	"context"
	"errors"
	"strings"

	"github.com/flightpool/flightpool/internal/eof"
)

// What a session's calls fail with beside *Error. All of them are reached by
// errors.Is through any wrapping.
var (
	// ErrSessionLost says that the transport or the server session under a
	// handle is gone, with everything that lived in it: transaction, temp
	// tables, settings, prepared statements.
	ErrSessionLost = errors.New("session lost")

	// ErrSessionReplaced says that the server has put another session in the
	// place of the handle's. Errors with it are ErrSessionLost as well.
	ErrSessionReplaced = errors.New("the server has replaced the session, and what was in it is gone: transaction, temporary objects, settings, prepared statements")

	// ErrTxAborted says that a statement of the transaction failed, so that
	// only Rollback can end it. Nothing of it is stored.
	ErrTxAborted = errors.New("transaction aborted")

	// ErrCommitUnknown says that a commit was sent and its outcome cannot be
	// known: it may or may not be stored. Check the data before you repeat the
	// transaction.
	ErrCommitUnknown = errors.New("commit outcome unknown")

	// ErrBusy says that another call of the same session is under way or its
	// result is still open. Finish or release that first.
	ErrBusy = errors.New("session busy: a call is under way or a result is still open")

	// ErrHandleClosed says that the SessionHandle, PreparedQuery or result
	// was closed before the call.
	ErrHandleClosed = errors.New("the session, transaction or result has been closed")

	// ErrEndpointExpired says that a part of a result was asked for after the
	// time until which the server had promised it, because the parts before
	// were read slowly and the server did not renew it.
	ErrEndpointExpired = errors.New("a part of the result has expired on the server")
)

// Stage is how far a call had come when it failed.
type Stage uint8

// The stages of a call, in their order.
const (
	StageNone     Stage = iota
	StageArgument       // checking the call's arguments
	StageAcquire        // waiting for a connection
	StageDial           // making the transport
	StageAuth           // presenting the credentials
	StageProbe          // the first round trip of a new connection, or a health check
	StagePrepare        // making or binding a prepared statement
	StageExecute        // the server executes or plans (GetFlightInfo, DoPut, DoAction)
	StageFetch          // reading rows (DoGet)
	StageClose
)

func (s Stage) String() string {
	names := [...]string{"", "argument", "acquire", "dial", "auth", "probe", "prepare", "execute", "fetch", "close"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// Error is any failure of a call. It answers whose fault it was (Fault), how
// far the call had come (Stage) and whether it may be repeated (SafeToRetry).
// Its chain reaches the cause, a gRPC status or driver error among them, and
// the context's error when a deadline or cancellation brought it about.
type Error struct {
	Op       string // the call, for example "Query"
	Stage    Stage
	Fault    Fault
	Target   string // the server's address
	SQLState string // five characters where the server told, else empty
	Err      error  // the cause

	// Unsent says that nothing of the call reached the server, or that the
	// server refused the credential of its first request and did nothing.
	Unsent bool

	// Running says that the server may be at work on the statement still: an RPC
	// was ended before the server has told its end, by the end of its stream, or by
	// this side, because of what another of the result's endpoints has answered, a
	// malformed batch or a reader of the caller's that failed. Where the session is
	// not lost, the statement is cancelled in the background.
	Running bool

	// Partial says that the call was to change several things outside of a transaction,
	// by the statements of a text or the rows of its parameters, and that the server may
	// have stored some of it before it refused the rest; or that it was a change with rows, such
	// as INSERT … RETURNING, and that the server failed when it gave them, or did not know
	// them any more: what they tell of may be stored; or that it was a change without any, sent as a
	// query, which some servers execute before they refuse it for that, or execute twice; or that it was an
	// INSERT with parameters on a server that tries one that fails once more (SwanLake).
	Partial bool

	// RowsTaken says that an ingestion has read some of its rows: its reader has no more than the rest.
	RowsTaken bool

	// Read says that the statement only reads, that no batch of its result
	// was delivered, and that it was not run for its effect, as Update does.
	Read bool

	// Ctx is the error of the context that ended the call, or nil.
	Ctx error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Target != "" {
		b.WriteString(" ")
		b.WriteString(e.Target)
	}
	if s := e.Stage.String(); s != "" {
		b.WriteString(": ")
		b.WriteString(s)
	}
	if e.SQLState != "" {
		b.WriteString(" [")
		b.WriteString(e.SQLState)
		b.WriteString("]")
	}
	if e.Ctx != nil && !errors.Is(e.Err, e.Ctx) {
		b.WriteString(": ")
		b.WriteString(e.Ctx.Error())
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(unframed(e.Err.Error()))
	}
	return b.String()
}

// unframed is a text with gRPC's statuses as "NotFound: no such table", where gRPC writes
// "rpc error: code = NotFound desc = no such table".
func unframed(text string) string {
	const frame, behindCode = "rpc error: code = ", " desc = "
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, frame)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		code := rest[:max(0, strings.IndexByte(rest, ' '))]
		said, found := strings.CutPrefix(rest[len(code):], behindCode)
		if !found || code == "" { // it only looks like gRPC's
			out.WriteString(frame)
			text = rest
			continue
		}
		out.WriteString(code)
		if said != "" {
			out.WriteString(": ")
		}
		text = said
	}
}

// Unwrap reaches the cause and the context's error. It never leads to io.EOF,
// which is the word for a regular end: a reader that looks for it in the chain
// must not take a failure for one.
func (e *Error) Unwrap() []error {
	var out []error
	if e.Err != nil {
		out = append(out, eof.Hide(e.Err))
	}
	if e.Ctx != nil {
		out = append(out, e.Ctx)
	}
	return out
}

// SafeToRetry reports whether the same call may be made again without a
// statement taking effect twice, or in part.
func (e *Error) SafeToRetry() bool {
	if e.Fault == FaultUsage || e.RowsTaken || errors.Is(e.Err, ErrCommitUnknown) {
		return false
	}
	return e.Unsent || e.Read
}

// SafeToRetry reports whether the call that failed with err may be repeated:
// nothing of it reached the server, or it was a read of which no batch was
// delivered. Where several errors are joined, each attempt's and each call's,
// it is true only if every one of them says so; errors that are not this
// module's say nothing. It is false for nil, where none is this module's, and where the
// outcome of a commit is unknown.
func SafeToRetry(err error) bool {
	safe, known := retrySafety(err)
	return known && safe && !errors.Is(err, ErrCommitUnknown)
}

// retrySafety asks the outermost errors that can tell. known is false when
// there is none.
func retrySafety(err error) (safe, known bool) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return false, false
	case interface{ SafeToRetry() bool }:
		return e.SafeToRetry(), true
	case interface{ Unwrap() error }:
		return retrySafety(e.Unwrap())
	case interface{ Unwrap() []error }:
		safe = true
		for _, one := range e.Unwrap() {
			if s, k := retrySafety(one); k {
				safe, known = safe && s, true
			}
		}
		return safe, known
	default:
		return false, false
	}
}

// FaultIn returns the fault of the first *Error in err's chain; an error of a
// context is FaultContext, any other is FaultUnknown.
func FaultIn(err error) Fault {
	var e *Error
	if errors.As(err, &e) {
		return e.Fault
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return FaultContext
	}
	return FaultUnknown
}
