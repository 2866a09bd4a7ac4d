package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/adbcpool"
)

// numbers is a batch of the column n.
func numbers(all ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(all, nil)
	return b.NewRecordBatch()
}

// twice reads a batch of 1 and 2 two times.
func twice() (array.RecordReader, error) {
	batch := numbers(1, 2)
	defer batch.Release()
	return array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch})
}

func ingest(ctx context.Context, pool *flightpool.FlightSQLPool, name string, mode flightpool.IngestMode, rows array.RecordReader) error {
	_, err := pool.Ingest(ctx, name, rows, flightpool.IngestOptions{Mode: mode})
	return err
}

func ingested(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	for _, mode := range []flightpool.IngestMode{flightpool.IngestCreate, flightpool.IngestAppend} {
		rows, err := twice()
		if err != nil {
			return "", err
		}
		err = ingest(ctx, pool, "ingested", mode, rows)
		rows.Release()
		if err != nil {
			return "", err
		}
	}
	return "", holds(ctx, pool, "ingested", 1, 1, 1, 1, 2, 2, 2, 2)
}

// broken ends in a way of its own where its second batch would come.
type broken struct {
	array.RecordReader
	end  func() error
	read int
	err  error
}

func (r *broken) Next() bool {
	if r.read++; r.read > 1 {
		r.err = r.end()
		return false
	}
	return r.RecordReader.Next()
}

func (r *broken) Err() error { return r.err }

var errReader = errors.New("the reader's own")

func readerFails(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	return "", breaks(ctx, pool, "failed", func() error { return errReader }, func(err error, recovered any) bool {
		return recovered == nil && errors.Is(err, errReader) && !errors.Is(err, flightpool.ErrSessionLost)
	})
}

func replaceFails(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "replaced", 7); err != nil {
		return "", err
	}
	rows, err := twice()
	if err != nil {
		return "", err
	}
	defer rows.Release()
	err = ingest(ctx, pool, "replaced", flightpool.IngestReplace, &broken{RecordReader: rows, end: func() error { return errReader }})
	if !errors.Is(err, errReader) {
		return "", cmp.Or(err, errTaken)
	}
	return "", holds(ctx, pool, "replaced", 7)
}

// appendFails loads rows into a table that is not there on each connection, and changes another behind that, which another pool looks at.
func appendFails(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (_ string, err error) {
	if err := table(ctx, pool, "behind"); err != nil {
		return "", err
	}
	for n := range 2 * poolSize {
		rows, err := twice()
		if err != nil {
			return "", err
		}
		err = ingest(ctx, pool, "nowhere", flightpool.IngestAppend, rows)
		rows.Release()
		if err == nil {
			return "", errTaken
		}
		if _, err := pool.Update(ctx, fmt.Sprintf("INSERT INTO behind VALUES (%d)", n)); err != nil {
			return "", err
		}
	}
	other, err := adbcpool.New(ctx, d.db, flightpool.Config{MaxSize: 1})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, other.Close(ctx)) }()
	n, err := flightpool.CollectOneRow[int64](other.Query(ctx, "SELECT count(*) FROM behind"))
	return "", errors.Join(err, equal("behind", []int64{n}, []int64{2 * poolSize}))
}

// slow is a reader whose ingestion lasts while another begins.
type slow struct{ array.RecordReader }

func (r slow) Next() bool {
	time.Sleep(100 * time.Millisecond)
	return r.RecordReader.Next()
}

// madeAtOnce has several ingestions make one table. A database with one writer at a time refuses some, which have stored nothing then.
func madeAtOnce(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (string, error) {
	const all = poolSize
	stored, refused := make(chan int64, all), make(chan error, all)
	for range all {
		go func() {
			rows, err := twice()
			if err == nil {
				defer rows.Release()
				err = ingest(ctx, pool, "at_once", flightpool.IngestCreateAppend, slow{rows})
			}
			if refused <- err; err == nil {
				stored <- 4
			}
		}()
	}
	var first error
	for range all {
		first = cmp.Or(first, <-refused)
	}
	said := ""
	if first != nil {
		if said = first.Error(); !d.oneWriter {
			return "", first
		}
	}
	n, err := flightpool.CollectOneRow[int64](pool.Query(ctx, "SELECT count(*) FROM at_once"))
	return said, errors.Join(err, equal("at_once", []int64{n}, []int64{4 * int64(len(stored))}))
}

func readerPanics(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	return "", breaks(ctx, pool, "panicked", func() error { panic(errReader) }, func(_ error, recovered any) bool {
		err, _ := recovered.(error)
		return errors.Is(err, errReader)
	})
}

// breaks has the reader of an ingestion end so, and then writes to the same table.
func breaks(ctx context.Context, pool *flightpool.FlightSQLPool, name string, end func() error, good func(err error, recovered any) bool) error {
	if err := table(ctx, pool, name); err != nil {
		return err
	}
	rows, err := twice()
	if err != nil {
		return err
	}
	defer rows.Release()
	var recovered any
	func() {
		defer func() { recovered = recover() }()
		err = ingest(ctx, pool, name, flightpool.IngestAppend, &broken{RecordReader: rows, end: end})
	}()
	if !good(err, recovered) {
		return errors.Join(fmt.Errorf("%v was recovered", recovered), err)
	}
	if _, err := pool.Update(ctx, "INSERT INTO "+name+" VALUES (7)"); err != nil {
		return fmt.Errorf("a change behind it: %w", err)
	}
	return holds(ctx, pool, name, 7)
}

// ingestedByName loads rows whose columns stand in another order than those of the table, and rows of other types.
func ingestedByName(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	if _, err := pool.Update(ctx, "CREATE TABLE named (a BIGINT, b BIGINT, c DOUBLE PRECISION)"); err != nil {
		return "", err
	}
	type row struct {
		B int64   `db:"b"`
		C float64 `db:"c"`
		A int64   `db:"a"`
	}
	type other struct {
		A float64 `db:"a"`
		B int64   `db:"b"`
		C int64   `db:"c"`
	}
	opts := flightpool.IngestOptions{Mode: flightpool.IngestAppend}
	if _, err := flightpool.IngestRows(ctx, pool, "named", slices.Values([]row{{A: 1, B: 2, C: 0.5}}), opts); err != nil {
		return "", err
	}
	want := []string{"1 2 0.5"}
	_, refused := flightpool.IngestRows(ctx, pool, "named", slices.Values([]other{{A: 3, B: 4, C: 5}}), opts)
	if refused == nil {
		want = append(want, "3 4 5")
	}
	type stored struct {
		A int64   `db:"a"`
		B int64   `db:"b"`
		C float64 `db:"c"`
	}
	rows, err := flightpool.CollectRows[stored](pool.Query(ctx, "SELECT a, b, c FROM named ORDER BY a"))
	if err != nil {
		return "", err
	}
	got := make([]string, len(rows))
	for i, r := range rows {
		got[i] = fmt.Sprint(r.A, r.B, r.C)
	}
	return fmt.Sprint(refused), equal("named", got, want)
}
