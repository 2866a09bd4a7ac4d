package backend

import (
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// IsConflict reports whether a transaction failed because another was faster, as the
// server says by SQLSTATE 40001 or 40P01, ABORTED, or in words, and is known not to be
// stored: it may run again as a whole. What SwanLake says of any COMMIT that its database refuses, that no
// transaction is active, counts as one, since it hides conflicts. Of joined errors one has to say so, and none
// that the outcome of a commit is unknown, that a part may be stored (Error.Partial) or
// that the connection is lost.
func IsConflict(err error) bool {
	conflict, known := conflictIn(err)
	return conflict && known && !errors.Is(err, ErrCommitUnknown)
}

// conflictIn looks at every *Error of the tree. known is false where one of them says
// that the connection or its session is gone, or may be, and where what came before the
// failure is stored, or may be.
func conflictIn(err error) (conflict, known bool) {
	known = true
	if e, ok := err.(*Error); ok { //nolint:errorlint // it walks the tree itself
		conflict, known = e.isConflict(), e.Fault.KeepsConn() && !e.Partial
	}
	if e, ok := err.(interface{ PartlyDone() bool }); ok { // a batch
		known = !e.PartlyDone()
	}
	var inner []error
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, one := range inner {
		c, k := conflictIn(one)
		conflict, known = conflict || c, known && k
	}
	return conflict, known
}

// isConflict judges by the server's words where it has no code for it: those of its own, since it may
// repeat the statement, whose table may be named conflicts.
func (e *Error) isConflict() bool {
	if e.Fault != FaultStatement || e.Err == nil {
		return false
	}
	if e.SQLState == "40001" || e.SQLState == "40P01" || status.Code(e.Err) == codes.Aborted {
		return true
	}
	text := e.Err.Error()
	lower := strings.ToLower(text)
	if errors.Is(e.Err, ErrTxAborted) && strings.Contains(lower, refusedCommit) {
		return true
	}
	if strings.HasPrefix(e.SQLState, "22") || strings.HasPrefix(e.SQLState, "42") || // a value, or a name, is wrong
		otherErrors.MatchString(lower) && !strings.Contains(lower, "transactioncontext error") {
		return false
	}
	lower = otherConflicts.ReplaceAllString(quotedName.ReplaceAllString(lower, ""), "")
	return conflictWords.MatchString(lower) || conflictTypes.MatchString(quotedName.ReplaceAllString(text, ""))
}

// refusedCommit is what SwanLake answers to a COMMIT that DuckDB has refused, whatever the reason: it rolls back and sends
// the COMMIT once more.
const refusedCommit = "cannot commit - no transaction is active"

var (
	// otherErrors are the classes of what DuckDB finds wrong with a statement, which it shows; those of
	// conflicts have another.
	otherErrors = regexp.MustCompile(`\b(parser|syntax|binder|catalog|conversion|out of range|mismatch type|invalid input) error:`)
	// quotedName is a name or word of the statement. A text in quotes may be the server's.
	quotedName = regexp.MustCompile("[\"'`][^\\s\"'`]*[\"'`]")
	// otherConflicts are what servers say of ON CONFLICT in a statement, and of a constraint.
	otherConflicts = regexp.MustCompile(`\bon conflict\b|\bconflict target\b|\bconflicted with the\b`)
	// conflictWords are whole words, since names have them in them. In conflictTypes they are written as one.
	conflictWords = regexp.MustCompile(`\bconflict(ed|ing)?\b|\bconflicts with\b|\bwrite_conflict\b|could not serialize|\bserialization[ _]failure\b|\bdeadlock(s|ed|_detected)?\b`)
	conflictTypes = regexp.MustCompile(`[a-z]Conflict\b|\b[A-Za-z]*Conflict[A-Z]|\b[A-Za-z]*Deadlock[A-Z]|\b[A-Z][A-Z_]*_CONFLICT\b|\bCONFLICT_[A-Z]`)
)
