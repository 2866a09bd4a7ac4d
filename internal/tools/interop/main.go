// Command interop runs clients and servers of other makers against this
// project's, and prints what holds:
//
//	pool       -> Arrow's reference servers in Java and Go, DazzleDuck, roapi, Sail
//	              on demand Deephaven and BenoStreamDB
//	              ADBC's drivers in C for SQLite and PostgreSQL
//	ADBC, JDBC -> duckserver  Apache's drivers on testserver/duckdb
//
// Beside it, arrow-go's bare client and ADBC's driver do the same as the
// pool: what one of them can do, the pool has to do. The table of servers and
// features in docs/servers.md has to be what was measured; -write writes it.
//
// make interop installs what it needs. What a side cannot do is a check too: it
// has to say so. The exit status is 1 when anything does not hold.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// config is where the things are that make interop has installed.
type config struct {
	venv       string // Python's virtual environment
	duckserver string // the program
	flightpool string // the program
	jdbc       string // the driver's jar; empty: leave JDBC out
	data       string // examples/data
	clients    string // the clients' sources
	servers    string // the sources of servers that need a few lines of ours
	derby      string // the jars of Arrow's Java reference server; empty: leave it out
	sqlite     string // the program of Arrow's Go example server; empty: leave it out
	dazzleDuck string // the jars of DazzleDuck; empty: leave it out
	drivers    string // the program of drivers; empty: leave ADBC's drivers in C out
	more       string // virtual environment with servers/requirements.txt; empty: leave its servers out
	doc        string // docs/servers.md
	write      bool   // write its table
	only       string // the one product to run, for development
}

func main() {
	var cfg config
	flag.StringVar(&cfg.venv, "venv", "", "virtual environment with clients/requirements.txt")
	flag.StringVar(&cfg.duckserver, "duckserver", "", "the program of testserver/duckdb/cmd/duckserver")
	flag.StringVar(&cfg.flightpool, "flightpool", "", "the program of cmd/flightpool")
	flag.StringVar(&cfg.jdbc, "jdbc", "", "jar of the JDBC driver for Flight SQL (none: JDBC is left out)")
	flag.StringVar(&cfg.data, "data", "../../../examples/data", "folder of the sample data")
	flag.StringVar(&cfg.clients, "clients", "clients", "folder of the clients' sources")
	flag.StringVar(&cfg.servers, "servers", "servers", "folder of the servers' sources")
	flag.StringVar(&cfg.derby, "derby", "", "folder of the jars of Arrow's Java reference server (none: it is left out)")
	flag.StringVar(&cfg.sqlite, "sqlite", "", "program of Arrow's Go example server (none: it is left out)")
	flag.StringVar(&cfg.dazzleDuck, "dazzleduck", "", "folder of DazzleDuck's jars (none: it is left out)")
	flag.StringVar(&cfg.drivers, "drivers", "", "program that runs ADBC's drivers in C (none: they are left out)")
	flag.StringVar(&cfg.more, "more", "", "virtual environment with servers/requirements.txt (none: its servers are left out)")
	flag.StringVar(&cfg.doc, "doc", "../../../docs/servers.md", "the document with the table of servers and features")
	flag.BoolVar(&cfg.write, "write", false, "write the table")
	flag.StringVar(&cfg.only, "only", "", "run this product alone")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // ADBC's driver logs what it returns anyway
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// run runs everything and returns how many checks failed.
func run(ctx context.Context, cfg config) (failed int, err error) {
	for _, path := range []*string{&cfg.data, &cfg.servers, &cfg.derby, &cfg.sqlite, &cfg.dazzleDuck, &cfg.more, &cfg.venv} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return 0, err
		}
	}
	var report report
	if err := onProducts(ctx, cfg, &report); err != nil || cfg.only != "" {
		return report.failed, err
	}
	if err := onDrivers(ctx, cfg, &report); err != nil {
		return 0, err
	}
	duck, err := startDuck(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer duck.stop()
	if err := poolOnSail(ctx, cfg, duck.uri(), &report); err != nil {
		return 0, err
	}
	if err := foreigners(ctx, cfg, duck, &report); err != nil {
		return 0, err
	}
	fmt.Printf("\n%d checks, %d failed\n", report.checks, report.failed)
	return report.failed, ctx.Err()
}

// foreigners runs the clients of other makers.
func foreigners(ctx context.Context, cfg config, duck *server, report *report) error {
	adbc := command(ctx, filepath.Join(cfg.venv, "bin", "python"), filepath.Join(cfg.clients, "adbc.py"), duck.uri())
	if err := foreign("ADBC (Python)", adbc, duck, report); err != nil {
		return err
	}
	if cfg.jdbc == "" {
		return nil
	}
	java := command(ctx, "java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", cfg.jdbc, filepath.Join(cfg.clients, "Jdbc.java"), duck.addr)
	return foreign("JDBC (Java)", java, duck, report)
}

// onProducts runs the pool on the servers of other makers and compares their
// columns of the document's table with what it saw. A server of which a check
// failed has no column to compare.
func onProducts(ctx context.Context, cfg config, report *report) error {
	measured := table{}
	for _, p := range products() {
		if cfg.only != "" && cfg.only != p.name {
			continue
		}
		if missing := p.missing(cfg); missing != "" {
			fmt.Printf("\n%s is left out: %s\n", p.name, missing)
			continue
		}
		failed := report.failed
		cells, err := runProduct(ctx, cfg, p, report)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if report.failed == failed {
			measured[p.name] = cells
		}
	}
	if len(measured) == 0 {
		return nil
	}
	report.heading("docs/servers.md", "what was measured")
	err := document(cfg.doc, measured, cfg.write)
	note := ""
	if err != nil {
		note = err.Error()
	}
	report.add("its table says the same", err == nil, note)
	return nil
}
