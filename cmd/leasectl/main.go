// Command leasectl is for the operators of a fleet that shares budgets of
// connections: it shows who holds what, changes a limit, and frees the leases of
// a process that is gone. See leasectl help, and docs/leasectl.md.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}, openStore)
	stop()
	os.Exit(code)
}

// streams are where a run reads answers, and writes output and errors.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// run is the command as a function. It returns its exit code.
func run(ctx context.Context, args []string, std streams, open opener) int {
	std.out = output{std.out}
	a := &app{streams: std, open: open, hidden: connectionStrings(append([]string{os.Getenv(tableVariable)}, args...))}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !a.parsed {
		err = &failure{exitUsage, err}
	}
	a.report(err)
	return exitCode(err)
}

// An app is one run of the command.
type app struct {
	streams
	open   opener
	hidden []string // what the command line has that is never printed
	parsed bool     // the command line was understood

	target  target
	budget  string
	timeout time.Duration
	json    bool
}

// withTimeout bounds what one step may wait for the store.
func (a *app) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
