package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
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
		own:       1,
		oneWriter: true,
		more: []check{
			{name: "a writer beside another is refused, and stores nothing", run: busy},
			{name: "a row that cannot be computed is its statement's failure", run: uncomputable},
		},
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

// uncomputable has a query meet a value that it cannot use.
func uncomputable(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	_, err := flightpool.CollectRows[string](pool.Query(ctx, "SELECT json_extract('{bad', '$.a')"))
	if err == nil || errors.Is(err, flightpool.ErrSessionLost) {
		return "", fmt.Errorf("told as %w", err)
	}
	return err.Error(), nil
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
			{name: "a result with a time among its parameters that is left leaves the session's time zone", run: zoneStays},
			{name: "a transaction that a refusal has aborted is not committed, whatever the driver calls it", run: abortedTransactions},
			{name: "a transaction that begins behind a read is one", run: behindReads},
			{name: "rows for arrays, domains and a table behind a temporary one are stored as what they are or not at all", run: otherTypes, costs: 1},
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

// zoneStays leaves a result of a statement for which the driver sets the time zone, by the end of its session.
func zoneStays(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (_ string, err error) {
	const zone, ask = "Asia/Tokyo", "SELECT current_setting('TimeZone')"
	if _, err := pool.Update(ctx, "ALTER ROLE CURRENT_USER SET TimeZone = '"+zone+"'"); err != nil {
		return "", err
	}
	other, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close(ctx)) }()
	s, err := other.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	rows, err := s.Query(ctx, "SELECT n FROM generate_series(1, 100000) AS n WHERE now() >= $1", time.Unix(0, 0))
	if err != nil {
		return "", errors.Join(err, s.Close())
	}
	_ = s.Close() // which says that a result was open
	rows.Release()
	got, err := flightpool.CollectOneRow[string](other.Query(ctx, ask))
	_, undo := pool.Update(ctx, "ALTER ROLE CURRENT_USER RESET TimeZone")
	return "", errors.Join(err, undo, equal("time zone", []string{got}, []string{zone}))
}

// otherTypes ingests into columns whose types are not those of the rows, as is seen at a second look alone.
func otherTypes(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	s, err := pool.AcquireSession(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }() // a temporary table costs the connection here
	const tables = "CREATE DOMAIN inner_number AS BIGINT; CREATE DOMAIN outer_number AS inner_number; CREATE TABLE typed_domain (n outer_number); CREATE TABLE typed_array (n BIGINT[]); " +
		"CREATE TABLE typed_shadow (n BIGINT); CREATE TEMP TABLE typed_shadow (n DOUBLE PRECISION)"
	for sql := range strings.SplitSeq(tables, ";") {
		if _, err := s.Update(ctx, sql); err != nil {
			return "", err
		}
	}
	double := arrow.PrimitiveTypes.Float64
	for name, kind := range map[string]arrow.DataType{"typed_domain": double, "typed_shadow": double, "typed_array": arrow.ListOf(double)} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: kind}}, nil))
		defer b.Release()
		values := b.Field(0)
		if list, ok := values.(*array.ListBuilder); ok {
			list.Append(true)
			values = list.ValueBuilder()
		}
		values.(*array.Float64Builder).Append(0.5)
		batch := b.NewRecordBatch()
		defer batch.Release()
		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
		if err != nil {
			return "", err
		}
		defer rows.Release()
		if _, refused := s.Ingest(ctx, name, rows, flightpool.IngestOptions{Mode: flightpool.IngestAppend}); refused == nil {
			return "", fmt.Errorf("%s: %w", name, errTaken)
		}
	}
	return "", nil
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
