package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/cmd/flightpool/internal/output"
	"github.com/flightpool/flightpool/flightpool"
)

const rootHelp = `flightpool runs statements on a Flight SQL server, all on one session: at a prompt,
from -e, from the files of -f, or from standard input. Targets are those of the
pool: grpc://host:port in plain text, grpc+tls://host:port, flightsql://host:port
(TLS unless the host is this machine), with the pool's options behind a ?.

The URL may also be in FLIGHTPOOL_URL, a password in FLIGHTPOOL_PASSWORD, a token
in FLIGHTPOOL_TOKEN. None of them is printed or kept.

Exit codes:
  0    done
  1    a statement failed, and those after it were not run, or the last
       transaction was not committed, or there is no result to write as
       Arrow or Parquet
  2    the command line is wrong
  3    no connection, or no session that works
  130  interrupted, or ended by a signal; what became of the statement is told`

// A job is what the command line says of statements and results.
type job struct {
	statements, files []string
	format, out       string
	route             string
	timing, noPager   bool
}

func (a *app) command() *cobra.Command {
	var j job
	root := &cobra.Command{
		Use: "flightpool URL", Short: "a shell for Flight SQL servers", Long: rootHelp,
		Example: `  flightpool grpc://localhost:31337
  flightpool grpc+tls://db.example.com:443 --user app -e 'SELECT * FROM flights' --format parquet -o flights.parquet
  echo 'SELECT 1;' | flightpool grpc://localhost:31337 --format csv`,
		Args: oneServer, SilenceUsage: true, SilenceErrors: true, SuggestionsMinimumDistance: 2, Version: version(),
		PersistentPreRun: func(*cobra.Command, []string) { a.parsed = true },
		RunE:             func(c *cobra.Command, args []string) error { return a.shell(c.Context(), args, j) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	a.target.bind(root)
	flags := root.Flags()
	flags.StringArrayVarP(&j.statements, "execute", "e", nil, "statements to run; may be repeated")
	flags.StringArrayVarP(&j.files, "file", "f", nil, "file of statements to run, - for standard input; may be repeated")
	flags.StringVar(&j.format, "format", "table", "table, csv, json (an object on each line), arrow (IPC stream) or parquet")
	flags.StringVarP(&j.out, "output", "o", "", "file for the results; it is there when they are whole")
	flags.StringVar(&j.route, "route", "auto", "how statements are sent: auto (by their text), query or update")
	flags.BoolVar(&j.timing, "timing", false, "tell how long each statement takes")
	flags.BoolVar(&j.noPager, "no-pager", false, "print long results at once, too")
	root.AddCommand(a.doctorCommand(), a.benchCommand())
	return root
}

// oneServer refuses more than a URL, and what was meant to be a command. It prints no
// argument: there may be a password in it.
func oneServer(c *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] != "" && !c.HasParent() {
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			return usageError("there is no such command; did you mean %s?", strings.Join(near, " or "))
		}
	}
	if len(args) > 1 {
		return usageError("%d arguments where one URL is taken; statements are given by -e", len(args))
	}
	return nil
}

// flagError says what a flag takes where it was given something else. Of what is no flag it
// prints no more than a name: -p with a password behind it is one elsewhere.
func flagError(err error) error {
	var unknown *pflag.NotExistError
	var malformed *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return usageError("unknown flag: -%s", unknown.GetSpecifiedName())
	case errors.As(err, &malformed):
		return usageError("bad flag syntax: no name behind --")
	}
	wanted := map[string]string{"int": "a whole number", "duration": "a duration such as 10s", "bool": "true or false"}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && wanted[invalid.GetFlag().Value.Type()] != "" {
		return usageError("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), wanted[invalid.GetFlag().Value.Type()])
	}
	return err
}

// version is that of the module that this program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(info.Main.Version, "(devel)")
	}
	return "(devel)"
}

// shell runs a job, or reads statements from the terminal.
func (a *app) shell(ctx context.Context, args []string, j job) (err error) {
	s := &shell{app: a, timing: j.timing, tx: txNone}
	if s.format, err = output.Parse(j.format); err != nil {
		return usageError("--format: %w", err)
	}
	route, known := routes[j.route]
	if s.route = route; !known {
		return usageError("--route: %q is none of auto, query, update", j.route)
	}
	server, cfg, err := a.config(ctx, args)
	if err != nil {
		return err
	}
	s.server = server[strings.LastIndex(server, "/")+1:]
	cfg.Hooks.Cancelled = func(_ string, r cancel.Report) { s.stopped.Store(&r) }
	prompt := len(j.statements)+len(j.files) == 0 && a.isTerminal()
	a.prompt = prompt
	if s.terminal = a.newTerminal(prompt && !j.noPager); s.terminal != nil && !prompt {
		s.terminal.pager = nil
	}
	s.out = a.standardSink(s.terminal)
	if s.pool, err = a.open(ctx, server, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if j.out != "" {
		if s.out, err = fileSink(j.out); err != nil {
			s.out = a.standardSink(s.terminal)
			return usageError("--output: %w", err)
		}
	}
	if prompt {
		err = s.interactive(ctx)
	} else {
		err = s.scripts(ctx, j.statements, j.files)
	}
	if err == nil || errors.Is(err, errQuit) {
		err = nil
		if s.tx != txNone {
			err = errors.New("the statements end within a transaction: it is not stored")
		} else if !prompt && output.Binary(s.format) && !s.gave {
			err = errNoResult
		}
	}
	return errors.Join(err, s.closeOut(err == nil))
}

// isTerminal reports whether somebody types.
func (a *app) isTerminal() bool {
	in, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(in.Fd()))
}

// close gives everything back. Statements that were stopped are waited for.
func (s *shell) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if s.session != nil {
		_ = s.session.Close() // the connection goes with the pool
	}
	if err := s.pool.Close(ctx); err != nil && !errors.Is(err, flightpool.ErrClosed) {
		return err
	}
	return nil
}
