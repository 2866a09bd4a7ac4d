// Command duckserver serves a DuckDB database over Flight SQL on this machine,
// behaving like one of several real servers. It is for trying things out and
// for tests, not for networks.
//
//	duckserver -addr 127.0.0.1:31337 -profile swanlake -data examples/data
//
// It prints its address once it is ready, runs until SIGINT or SIGTERM, and
// then prints what its ledger counted.
//
// A statement runs in one thread, beside those of other sessions, so that every failure
// says why. With -threads 4 a large query takes four of the processors.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

var profiles = map[string]func() testserver.Profile{
	"clickhouse": testserver.ClickHouse,
	"doris":      testserver.Doris,
	"dremio":     testserver.Dremio,
	"gizmosql":   testserver.GizmoSQL,
	"influxdb":   testserver.InfluxDB,
	"strict":     testserver.Strict,
	"swanlake":   testserver.SwanLake,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "duckserver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("duckserver", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	name := flags.String("profile", "strict", "server to behave like: "+strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	data := flags.String("data", "", "folder whose *.parquet and *.csv files become tables")
	path := flags.String("db", "", "database file (default: in memory)")
	isolated := flags.Bool("isolated", false, "give each session a database of its own")
	threads := flags.Int("threads", 1, "threads of a statement; with more than 1 large queries are faster, but a failure can say \"Interrupted!\" in place of its reason")
	if err := flags.Parse(args); err != nil {
		return err
	}
	profile, ok := profiles[*name]
	if !ok {
		return fmt.Errorf("-profile: %q is unknown", *name)
	}
	var tables fs.FS
	if *data != "" {
		tables = os.DirFS(*data)
	}
	srv, err := duckdb.Start(ctx,
		duckdb.Config{Path: *path, PerSession: *isolated, Tables: tables, Settings: map[string]string{"threads": strconv.Itoa(*threads)}},
		testserver.Options{Listen: *addr, Profile: profile()})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ready: %s (%s)\n", srv.URI(), *name)
	<-ctx.Done()
	err = srv.Close()
	fmt.Fprintln(out, srv.Ledger().Snapshot())
	return err
}
