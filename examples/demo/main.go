// Command demo shows the pool at work on a real database with real data:
// analytic queries in parallel, a transaction, and a query of a minute that is
// cancelled after a second. It checks what it shows; the last line is
// "demo: ok", or "demo: FAILED" with the reason and exit status 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/flightpool/flightpool/examples/data"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// connections is how many the pool may have, and how many queries run at once.
const connections = 12

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Stdout, isTerminal(os.Stdout))
	switch {
	case err == nil:
		fmt.Println("demo: ok")
	case ctx.Err() != nil:
		fmt.Println("demo: interrupted")
		os.Exit(130)
	default:
		fmt.Println("demo: FAILED:", err)
		os.Exit(1)
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// demo is what the acts share.
type demo struct {
	out    io.Writer
	live   bool // out is a terminal
	server *testserver.Server
	pool   *flightpool.FlightSQLPool
}

func run(ctx context.Context, out io.Writer, live bool) (err error) {
	start := time.Now()
	server, err := duckdb.Start(ctx, duckdb.Config{Tables: data.Files}, testserver.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	pool, err := flightpool.New(ctx, "grpc://"+server.Addr(), flightpool.Config{MaxSize: connections, MinIdle: connections})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close(context.WithoutCancel(ctx))) }()
	if err := pool.WaitReady(ctx, connections); err != nil {
		return err
	}
	fmt.Fprintf(out, "server: DuckDB over Flight SQL on %s, ready in %s; pool: %d connections\n", server.Addr(), rounded(time.Since(start)), connections)

	d := &demo{out: out, live: live, server: server, pool: pool}
	for _, act := range []func(context.Context) error{d.parallel, d.transaction, d.cancel, d.settled} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settled checks that nothing is left behind, on the server and in the pool.
func (d *demo) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	idleErr := errors.Join(d.server.Ledger().WaitIdle(ctx), d.returned(ctx))
	s, left := d.pool.Stats(), d.server.Ledger().Snapshot()
	fmt.Fprintf(d.out, "pool: %d calls, %d session, %d failed as it should; %d connections borrowed, %d waits; connections: %d idle, %d in use; cancels: %d confirmed, %d not\n",
		s.Calls, s.Sessions, s.Failures, s.Acquired, s.AcquiredWaited, s.Idle, s.InUse, s.CancelsConfirmed, s.CancelsUnconfirmed)
	fmt.Fprintf(d.out, "server: %d statements run, %d running now, %d transactions open\n", left.Executed, left.Running, left.Transactions)
	if idleErr != nil {
		return fmt.Errorf("something is left behind: %w", idleErr)
	}
	return nil
}

// returned waits until no connection is in use: the one of the cancelled query
// comes back when the pool is sure that the query has stopped.
func (d *demo) returned(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d.pool.Stats().InUse > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("connections in use: %w", ctx.Err())
		}
	}
	return nil
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
