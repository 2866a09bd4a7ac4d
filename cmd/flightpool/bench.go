package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightpool/flightpool/cmd/flightpool/internal/load"
)

const benchHelp = `Run statements from many goroutines on one pool, and print how long they took with
all their rows. Each goroutine sends the next statement when the last has ended, so
that a slow server is asked less, and a pause of it counts once for each goroutine
(coordinated omission). Calls under way at the end are waited for. The pool has a connection for each goroutine,
unless the URL says max_size. A statement that cannot be sent ends it. Ctrl-C ends it early, with the figures until then.`

func (a *app) benchCommand() *cobra.Command {
	var opts load.Options
	var texts, files []string
	var route string
	var asJSON bool
	c := &cobra.Command{
		Use: "bench URL", Short: "measure a server under load", Long: benchHelp, Args: oneServer,
		Example: `  flightpool bench grpc://localhost:31337 -c 32 -d 30s -q 'SELECT count(*) FROM flights'`,
		RunE: func(c *cobra.Command, args []string) error {
			var known bool
			if opts.Route, known = routes[route]; !known {
				return usageError("--route: %q is none of auto, query, update", route)
			}
			if opts.Goroutines < 1 || opts.Goroutines > 10000 || opts.Duration <= 0 {
				return usageError("--concurrency must be 1 to 10000, and --duration positive")
			}
			var err error
			if opts.Statements, err = statements(texts, files); err != nil {
				return err
			}
			return a.bench(c.Context(), args, opts, asJSON)
		},
	}
	flags := c.Flags()
	flags.IntVarP(&opts.Goroutines, "concurrency", "c", 8, "goroutines")
	flags.DurationVarP(&opts.Duration, "duration", "d", 10*time.Second, "how long")
	flags.StringArrayVarP(&texts, "query", "q", nil, "statements (SELECT 1); may be repeated")
	flags.StringArrayVarP(&files, "file", "f", nil, "file of statements; may be repeated")
	flags.StringVar(&route, "route", "auto", "how statements are sent: auto (by their text), query or update")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// statements cuts texts and files into statements.
func statements(texts, files []string) (all []string, err error) {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, unreadable(err)
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		var s splitter
		for line := range strings.Lines(text) {
			all = append(all, s.feed(line)...)
		}
		if rest := s.rest(); rest != "" {
			all = append(all, rest)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(texts) > 0:
		return nil, usageError("there is no statement to run")
	}
	return []string{"SELECT 1"}, nil
}

func (a *app) bench(ctx context.Context, args []string, opts load.Options, asJSON bool) error {
	target, cfg, err := a.config(ctx, args)
	if err != nil {
		return err
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = opts.Goroutines
	}
	pool, err := a.open(ctx, target, cfg)
	if err != nil {
		return err
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	ready, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	err = pool.WaitReady(ready, min(opts.Goroutines, cfg.MaxSize))
	cancel()
	var report *load.Report
	if err == nil {
		opts.Text = message
		report = load.Run(ctx, pool, opts)
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	closed := pool.Close(closing)
	switch {
	case report != nil && report.Refused != nil:
		return report.Refused
	case report == nil && ctx.Err() != nil:
		return interruption(ctx)
	case report == nil:
		return &failure{exitConnect, err}
	}
	out := a.reportWriter()
	if asJSON {
		text, _ := json.Marshal(report) // numbers and texts cannot fail
		fmt.Fprintf(out, "%s\n", text)
	} else {
		printLoad(out, report)
	}
	if ctx.Err() != nil {
		return interruption(ctx)
	}
	if report.Failures > 0 {
		return fmt.Errorf("%s failed", count(report.Failures, "call"))
	}
	return errors.Join(out.err, closed)
}

func printLoad(out io.Writer, r *load.Report) {
	fmt.Fprintf(out, "%s in %.1f s: %.0f per second, %s\n", count(r.Calls, "call"), r.Seconds, r.PerSecond, count(r.Rows, "row"))
	if r.Calls > 0 { // a failure is no time
		printTimes(out, r)
	}
	fmt.Fprintf(out, "pool: %d connections, %d opened, %d waits of %.3f s in all, %d repeated\n",
		r.Pool["connections"], r.Pool["opens"], r.Pool["waited"], r.Pool["wait_seconds"], r.Pool["retries"])
	for _, e := range r.Errors {
		fmt.Fprintf(out, "%d failed, %s: %s\n", e.Count, e.Kind, e.Example)
	}
}

func printTimes(out io.Writer, r *load.Report) {
	fmt.Fprintf(out, "  mean   %v\n", round(time.Duration(r.Mean)*time.Microsecond))
	for _, q := range r.Latency {
		fmt.Fprintf(out, "  %-5v%% %v\n", q.Percent, round(time.Duration(q.Micros)*time.Microsecond))
	}
}
