package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// message is an error for the user: where a statement is wrong, what the server says of it.
func message(err error) string {
	var wrong *flightpool.Error
	if errors.As(err, &wrong) && wrong.Fault == flightpool.FaultStatement {
		if st, ok := status.FromError(wrong.Err); ok && st.Message() != "" {
			return lines(strings.Replace(err.Error(), wrong.Error(), st.Message(), 1))
		}
	}
	return lines(err.Error())
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

// isInterruption reports whether a statement ended because the user, or ctx, said so.
func isInterruption(ctx context.Context, err error) bool {
	return errors.Is(err, errInterrupted) || context.Cause(ctx) != nil && errors.Is(err, context.Canceled)
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
