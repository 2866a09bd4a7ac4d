// Command drivers runs a pool of adbcpool.New over a driver in C, which ADBC's
// driver manager loads. It prints one line of JSON for each check, as
// interop's clients do: its name, whether it holds, and a note.
//
//	drivers sqlite     libadbc_driver_sqlite.so      on a file of its own
//	drivers postgresql libadbc_driver_postgresql.so  on a server of its own
//
// It is a program of its own since a driver in C that goes wrong ends its process.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/drivermgr"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver/localdeps"
)

// maxTime is how long a check may take, and poolSize how many connections it has.
const (
	maxTime  = 30 * time.Second
	poolSize = 2
)

// A database is one of a driver's.
type database struct {
	db     adbc.Database
	setup  string // a statement to begin with, or empty
	schema string // the one in which tables are made

	// state is a statement that leaves something in its session, and seen a query for the number of what is left.
	state, seen string

	// clients counts the connections to the database, but the one that it counts with.
	clients func(context.Context) (int64, error)

	own       int64 // those that the driver has for itself
	oneWriter bool  // at a time: others are refused

	more []check // of this database alone
}

// A check raises what does not hold, and may return a note.
type check struct {
	name string
	run  func(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (note string, err error)

	costs uint64 // connections that it may cost
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "drivers:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context) (ok bool, err error) {
	if len(os.Args) != 3 {
		return false, errors.New("usage: drivers sqlite|postgresql LIBRARY")
	}
	dir, err := os.MkdirTemp("", "interop-drivers-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the folder is temporary anyway
	d, uri := sqlite(filepath.Join(dir, "sqlite.db"))
	if os.Args[1] == "postgresql" {
		server, err := localdeps.StartPostgres(ctx, localdeps.PostgresOptions{Settings: []string{"default_transaction_isolation=repeatable read"}})
		if err != nil {
			return false, err
		}
		defer server.Close()
		d, uri = postgres(), server.DSN()
	}
	var manager drivermgr.Driver
	if d.db, err = manager.NewDatabase(map[string]string{"driver": os.Args[2], adbc.OptionKeyURI: uri}); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.db.Close()) }()
	if err := d.prepare(ctx); err != nil {
		return false, err
	}
	ok = true
	for _, c := range append(checks(), d.more...) {
		note, err := d.with(ctx, c)
		if err != nil {
			ok, note = false, err.Error()
		}
		line := map[string]any{"check": c.name, "ok": err == nil, "note": note}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			return false, err
		}
	}
	return ok, ctx.Err()
}

// prepare runs setup, without a pool.
func (d *database) prepare(ctx context.Context) (err error) {
	if d.setup == "" {
		return nil
	}
	c, err := d.db.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stmt, err := c.NewStatement()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	if err := stmt.SetSqlQuery(d.setup); err != nil {
		return err
	}
	_, err = stmt.ExecuteUpdate(ctx)
	return err
}

// with runs a check with a pool of its own, which loses no connection by it and leaves none.
func (d *database) with(ctx context.Context, c check) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	pool, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: poolSize, AcquireTimeout: maxTime / 3})
	if err != nil {
		return "", err
	}
	note, err = c.run(ctx, d, pool)
	if err := cmp.Or(err, pool.Close(ctx)); err != nil {
		return "", err
	}
	s := pool.Stats()
	lost := s.Closed[reservoir.Discarded] + s.Closed[reservoir.Unhealthy] + s.Closed[reservoir.Lost]
	if s.Total != 0 || lost > c.costs {
		return "", fmt.Errorf("%d connections are left in the pool, %d were given up", s.Total, lost)
	}
	return note, d.alone(ctx)
}

// alone waits until no connection is left: the opening of one that nobody waits for, and a server that has not
// seen an end yet, take their time.
func (d *database) alone(ctx context.Context) error {
	var left int64
	for range 50 {
		n, err := d.clients(ctx)
		if left = n - d.own; err != nil || left == 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%d connections are left", left)
}
