package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

// The exit codes, as rootHelp tells them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitConnect     = 3
	exitInterrupted = 130 // as a shell has it for a program that SIGINT ended
)

var errInterrupted = errors.New("interrupted")

// A failure is an error whose exit code is known.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *failure) Unwrap() error { return f.err }

func usageError(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// unreadable says that a file which the command line names cannot be read.
func unreadable(err error) error {
	var at *fs.PathError
	switch {
	case errors.As(err, &at) && errors.Is(err, syscall.EISDIR):
		return usageError("%s is a folder, not a file of statements", at.Path)
	case errors.As(err, &at):
		return usageError("%s: %w", at.Path, at.Err)
	}
	return usageError("%w", err)
}

// interruption is how a run ends when its context, which has no deadline, has ended: by
// Ctrl-C or by a signal.
func interruption(ctx context.Context) error {
	return &failure{exitInterrupted, context.Cause(ctx)}
}

func exitCode(err error) int {
	var known *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &known):
		return known.code
	}
	return exitFailed
}

// message is an error for the user: where a statement is wrong, what the server says of
// it, else the pool's words without the names of Go calls.
func message(err error) string {
	var wrong *flightpool.Error
	if !errors.As(err, &wrong) {
		return lines(err.Error())
	}
	text := strings.TrimPrefix(strings.TrimPrefix(wrong.Error(), wrong.Op), " ")
	st, told := status.FromError(wrong.Err)
	cause := abortedBy(wrong.Err)
	switch {
	case cause != nil:
		text = abortedText(wrong, cause)
	case wrong.Fault == flightpool.FaultStatement && told && st.Message() != "":
		text = st.Message()
	case wrong.Fault == flightpool.FaultUsage && wrong.Err != nil:
		text = forTheShell(wrong.Err.Error())
	default:
		text = forTheShell(text)
	}
	return lines(strings.Replace(err.Error(), wrong.Error(), text, 1))
}

// abortedBy is what has aborted a transaction, if err says that it is aborted.
func abortedBy(err error) error {
	if both, ok := err.(interface{ Unwrap() []error }); ok {
		if all := both.Unwrap(); len(all) == 2 && errors.Is(all[0], flightpool.ErrTxAborted) {
			return all[1]
		}
	}
	return nil
}

// abortedText is of a statement or COMMIT in a transaction that cause has aborted. Of
// the error of an earlier statement, which was told then, it has the first line.
func abortedText(wrong *flightpool.Error, cause error) string {
	var earlier *flightpool.Error
	reason := message(cause)
	switch {
	case wrong.Fault != flightpool.FaultUsage: // of the COMMIT itself
		return "nothing of the transaction is stored: the server has refused the COMMIT: " + wordsOf(cause)
	case !errors.As(cause, &earlier):
		reason = "has failed: " + wordsOf(cause)
	case errors.Is(cause, context.Canceled):
		reason = "was interrupted"
	default:
		reason, _, _ = strings.Cut(reason, "\n")
		reason = "has failed: " + reason
	}
	if wrong.Op == "Commit" {
		return "nothing of the transaction is stored: a statement of it " + reason
	}
	return "the transaction is aborted, ROLLBACK ends it: a statement of it " + reason
}

// wordsOf is what a server says in an error, without the words of gRPC about it.
func wordsOf(err error) string {
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) && answer.GRPCStatus().Message() != "" {
		return answer.GRPCStatus().Message()
	}
	return err.Error()
}

// forTheShell replaces what a Go program would do by what the shell has for it.
func forTheShell(text string) string {
	for _, r := range []struct{ program, shell string }{
		{": set QueryOptions.Route to RouteQuery for its rows, or use Update for its effect", `: say so by \route or --route: query if it has rows, update if not`},
		{", since the session must know of its transactions: use InTx or BeginTx of the pool, or BeginTransaction, Commit, Rollback and the savepoint calls of a session (with database/sql: BeginTx, Tx.Commit and Tx.Rollback)", `: BEGIN, COMMIT and ROLLBACK alone are, at the prompt and in scripts`},
		{"DialTimeout", "--connect-timeout"},
		{"AcquireTimeout is over; is a result or session not released? set LeakAfter to find its borrower", "acquire_timeout is over: raise it or max_size in the URL, or lower --concurrency"},
	} {
		text = strings.Replace(text, r.program, r.shell, 1)
	}
	return text
}

// report prints an error, and what to do.
func (a *app) report(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(a.err, "flightpool: "+message(err))
	if exitCode(err) == exitUsage {
		fmt.Fprintln(a.err, "  see flightpool help")
	}
}

// lines is a text that a server may have written, of several lines perhaps.
func lines(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i := range all {
		all[i] = output.Printable(strings.TrimRight(all[i], "\r"))
	}
	return strings.Join(all, "\n")
}

// isInterruption reports whether a statement ended because the user, or ctx, said so. The
// error of a statement in an aborted transaction may have an earlier interruption in it.
func isInterruption(ctx context.Context, err error) bool {
	return context.Cause(ctx) != nil && (errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled))
}

// unsent reports whether nothing of what failed was sent to the server.
func unsent(err error) bool {
	var e *flightpool.Error
	return errors.As(err, &e) && e.Unsent
}

// endsSession reports whether nothing more can be done with a session.
func endsSession(err error) bool {
	return errors.Is(err, flightpool.ErrSessionLost) || errors.Is(err, flightpool.ErrCommitUnknown)
}
