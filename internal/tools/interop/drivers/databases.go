package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
)

// sqlite is a file at path, to be used by its URI.
func sqlite(path string) (d *database, uri string) {
	return &database{
		// What reads, as the opening of a connection does, stops no writer then.
		setup: "PRAGMA journal_mode = WAL",
		state: "CREATE TEMP TABLE mine (n INTEGER)",
		seen:  "SELECT count(*) FROM sqlite_temp_master",
		clients: func(context.Context) (int64, error) {
			return openFiles(path)
		},
		own:  1,
		more: []check{{name: "a writer beside another is refused, and stores nothing", run: busy, costs: 1}},
	}, "file:" + path
}

// openFiles counts the handles that this process has on the file at path.
func openFiles(path string) (n int64, err error) {
	all, err := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if target, err := os.Readlink(fd); err == nil && target == path { // Glob's own is gone
			n++
		}
	}
	return n, err
}

var errTaken = errors.New("what had to be refused was not")

// busy has a change meet the lock of a transaction.
func busy(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if _, err := pool.Update(ctx, "CREATE TABLE busy (n BIGINT)"); err != nil {
		return "", err
	}
	var refused error
	err := pool.InTx(ctx, flightpool.TxOptions{Attempts: 1}, func(txCtx context.Context, tx *flightpool.Tx) error {
		if _, err := tx.Update(txCtx, "INSERT INTO busy VALUES (1)"); err != nil {
			return err
		}
		if _, refused = pool.Update(ctx, "INSERT INTO busy VALUES (2)"); refused == nil {
			return errTaken
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if _, err := pool.Update(ctx, "INSERT INTO busy VALUES (3)"); err != nil {
		return "", err
	}
	return refused.Error(), holds(ctx, pool, "busy", 1, 3)
}

// postgres is the database of a server.
func postgres() *database {
	d := &database{
		schema: "public",
		state:  "SET application_name = 'mine'",
		seen:   "SELECT count(*) FROM pg_settings WHERE name = 'application_name' AND setting = 'mine'",
		more: []check{
			{name: "what has lost a conflict (40001) is run again, and keeps its connection", run: conflict},
			{name: "an exception keeps its SQLSTATE, and is no loss of the session", run: exception, costs: 1},
			{name: "a statement with a time that fails leaves no transaction to the next caller", run: ownTransaction},
		},
	}
	d.watch()
	return d
}

// watch sets clients: the server counts them, where another pool asks.
func (d *database) watch() {
	d.clients = func(ctx context.Context) (n int64, err error) {
		pool, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, pool.Close(ctx)) }()
		const others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
		return flightpool.CollectOneRow[int64](pool.Query(ctx, others))
	}
}

// conflict has another session change the row that a transaction has read, on a server of which REPEATABLE READ
// is the default.
func conflict(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "counter", 0); err != nil {
		return "", err
	}
	runs := 0
	err := pool.InTx(ctx, flightpool.TxOptions{}, func(txCtx context.Context, tx *flightpool.Tx) error {
		runs++
		n, err := flightpool.CollectOneRow[int64](tx.Query(txCtx, "SELECT n FROM counter"))
		if err != nil {
			return err
		}
		if runs == 1 {
			if _, err := pool.Update(ctx, "UPDATE counter SET n = n + 10"); err != nil {
				return err
			}
		}
		_, err = tx.Update(txCtx, "UPDATE counter SET n = $1", n+1)
		return err
	})
	if err == nil && runs != 2 {
		err = fmt.Errorf("it was run %d times", runs)
	}
	if err != nil {
		return "", err
	}
	return "", holds(ctx, pool, "counter", 11)
}

// ownTransaction has statements with a time with a zone fail, in the server and in the driver, which runs them in a transaction of its own.
func ownTransaction(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (_ string, err error) {
	if _, err := pool.Update(ctx, "CREATE TABLE timed (n BIGINT PRIMARY KEY, at TIMESTAMPTZ)"); err != nil {
		return "", err
	}
	other, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close(ctx)) }()
	for i, at := range []time.Time{{}, time.UnixMicro(math.MinInt64)} { // the second is out of the driver's range
		n := int64(2 * i)
		_, first := pool.Update(ctx, "INSERT INTO timed VALUES ($1)", n)
		if _, refused := pool.Update(ctx, "INSERT INTO timed VALUES ($1, $2)", n, at); refused == nil {
			return "", errTaken
		}
		_, second := pool.Update(ctx, "UPDATE timed SET n = n + 1 WHERE n = $1", n)
		if err := errors.Join(first, second); err != nil {
			return "", err
		}
	}
	return "", holds(ctx, other, "timed", 1, 3)
}

// exception is one of a function's, of which the driver has no code.
func exception(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	_, err := pool.Update(ctx, "DO $$ BEGIN RAISE EXCEPTION 'no'; END $$")
	var e *flightpool.Error
	if !errors.As(err, &e) || e.Fault != backend.FaultStatement || e.SQLState != "P0001" || errors.Is(err, flightpool.ErrSessionLost) {
		return "", cmp.Or(err, errTaken)
	}
	return "", nil
}
