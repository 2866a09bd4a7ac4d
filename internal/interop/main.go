// Command interop runs clients and servers of other makers against this
// project's, and prints what holds:
//
//	pool       -> Sail        the pool on Sail's Flight SQL server (Python package pysail)
//	ADBC, JDBC -> duckserver  Apache's drivers on testserver/duckdb
//
// make interop installs what it needs. What a side cannot do is a check too: it
// has to say so. The exit status is 1 when anything does not hold.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// config is where the things are that make interop has installed.
type config struct {
	venv       string // Python's virtual environment
	duckserver string // the program
	jdbc       string // the driver's jar; empty: leave JDBC out
	data       string // examples/data
	clients    string // the clients' sources
}

func main() {
	var cfg config
	flag.StringVar(&cfg.venv, "venv", "", "virtual environment with clients/requirements.txt")
	flag.StringVar(&cfg.duckserver, "duckserver", "", "the program of testserver/duckdb/cmd/duckserver")
	flag.StringVar(&cfg.jdbc, "jdbc", "", "jar of the JDBC driver for Flight SQL (none: JDBC is left out)")
	flag.StringVar(&cfg.data, "data", "../../examples/data", "folder of the sample data")
	flag.StringVar(&cfg.clients, "clients", "clients", "folder of the clients' sources")
	flag.Parse()
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
	if cfg.data, err = filepath.Abs(cfg.data); err != nil {
		return 0, err
	}
	duck, err := startDuck(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer duck.stop()
	var report report
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
