// Command flightpool is a shell for Flight SQL servers. It runs statements, finds
// out what a server can do (flightpool doctor) and measures it under load
// (flightpool bench). See flightpool help, and docs/shell.md.
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
	ctx, stop := signal.NotifyContext(context.Background(), ending()...)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	// What does not heed a signal writes to a pipe that nobody reads. One that comes at once is the same: a terminal that closes tells so
	// twice, and a parent passes on what its group was told.
	letEnd := func() {
		time.AfterFunc(time.Second, func() { signal.Reset(append(ending(), os.Interrupt)...) })
	}
	context.AfterFunc(ctx, letEnd)
	code := run(ctx, os.Args[1:], environment{os.Stdin, os.Stdout, os.Stderr, os.Getenv, interrupts, letEnd})
	stop()
	os.Exit(code)
}

// ending are the signals that end a run: the closing of its terminal among them, unless
// whoever started it (nohup) has that ignored.
func ending() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
}

// An environment is what a run reads and where it writes.
type environment struct {
	in         io.Reader
	out, err   io.Writer
	getenv     func(string) string
	interrupts chan os.Signal
	letEnd     func() // has the next signal end the process; nil: it does not
}

// run is the command as a function. It returns its exit code.
func run(ctx context.Context, args []string, env environment) int {
	a := &app{environment: env}
	root := a.command()
	root.SetArgs(args)
	root.SetIn(env.in)
	root.SetOut(env.out)
	root.SetErr(env.err)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil && !a.parsed:
		err = &failure{exitUsage, err}
	case err != nil && ctx.Err() != nil: // whatever has failed by then
		err = &failure{exitInterrupted, err}
	}
	a.report(err)
	return exitCode(err)
}

// An app is one run of the command.
type app struct {
	environment
	parsed bool // the command line was understood
	prompt bool // statements are typed: an interruption ends one, and not the run
	target target
}

// interruptible is ctx, which ends at an interruption as well, with errInterrupted as
// its cause: also at one that came before, and that nothing has answered.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	select {
	case <-a.interrupts:
		cancel(errInterrupted)
		a.interrupted()
	default:
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case signal := <-a.interrupts:
			if cancel(errInterrupted); context.Cause(ctx) == errInterrupted { //nolint:errorlint // as it was given
				a.interrupted()
				return
			}
			select {
			case a.interrupts <- signal: // what comes next is to be interrupted
			default:
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended // the next interruption is the prompt's
	}
}

// interrupted has the next signal end a run that this one is to end.
func (a *app) interrupted() {
	if !a.prompt && a.letEnd != nil {
		a.letEnd()
	}
}
