package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
)

// sail is the pool on Sail, and what its checks need besides.
type sail struct {
	cfg    config
	server *server
	pool   *flightpool.FlightSQLPool
	duck   string // the other server, which has the same data
}

const poolSize = 8

// poolOnSail runs the pool's checks on a Sail server of their own.
func poolOnSail(ctx context.Context, cfg config, duck string, report *report) (err error) {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	s := &sail{cfg: cfg, duck: duck}
	if s.server, err = startSail(ctx, cfg, addr); err != nil {
		return err
	}
	defer func() { s.server.stop() }()
	if s.pool, err = flightpool.New(ctx, s.server.uri(), flightpool.Config{MaxSize: poolSize}); err != nil {
		return err
	}
	report.heading("pool", "Sail")
	for _, c := range []struct {
		name string
		run  func(context.Context) (note string, err error)
	}{
		{"real data: the rows that DuckDB has", s.realData},
		{"rows as structs", s.structRows},
		{"a large result comes whole, its first batch early", s.large},
		{"a statement's error keeps the connection", s.statementError},
		{"many goroutines share few connections", s.goroutines},
		{"what Sail has not is a clear error, and keeps the connection", s.unsupported},
		{"the server is killed: ErrSessionLost, and the pool serves again", s.killed},
		{"Close leaves nothing", func(ctx context.Context) (string, error) { return "", s.pool.Close(ctx) }},
	} {
		limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
		note, err := c.run(limit)
		cancel()
		if err != nil {
			note = err.Error()
		}
		report.add(c.name, err == nil, note)
	}
	return ctx.Err()
}

// A busy origin of the sample data.
type origin struct {
	Code    string
	City    string
	Flights int64
	Delay   float64
}

const originsFrom = `SELECT a.%[1]s AS code, a.%[2]s AS city, count(*) AS flights, avg(f.delay) AS delay
	FROM %[3]s f JOIN %[4]s a ON a.%[1]s = f.origin GROUP BY a.%[1]s, a.%[2]s ORDER BY flights DESC LIMIT 20`

func (s *sail) origins(ctx context.Context) ([]origin, error) {
	// Sail reads files by their names; a CSV's columns have numbers then.
	sql := fmt.Sprintf(originsFrom, "_c0", "_c2", s.file("parquet", "flights.parquet"), s.file("csv", "airports.csv"))
	return structs[origin](ctx, s.pool, sql)
}

func (s *sail) file(kind, name string) string {
	return fmt.Sprintf("%s.`%s/%s`", kind, s.cfg.data, name)
}

func (s *sail) realData(ctx context.Context) (string, error) {
	got, err := s.origins(ctx)
	if err != nil {
		return "", err
	}
	other, err := flightpool.New(ctx, s.duck, flightpool.Config{})
	if err != nil {
		return "", err
	}
	want, err := structs[origin](ctx, other, fmt.Sprintf(originsFrom, "iata", "city", "flights", "airports"))
	if err := errors.Join(err, other.Close(ctx)); err != nil {
		return "", err
	}
	if len(got) != 20 || len(want) != 20 {
		return "", fmt.Errorf("%d rows, DuckDB has %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if difference := g.Delay - w.Delay; difference > 1e-9 || difference < -1e-9 {
			return "", fmt.Errorf("row %d is %v, DuckDB has %v", i, g, w)
		}
		if g.Delay = w.Delay; g != w { // but for the order of the sum
			return "", fmt.Errorf("row %d is %v, DuckDB has %v", i, g, w)
		}
	}
	return fmt.Sprintf("%s %s first, %d flights", got[0].Code, got[0].City, got[0].Flights), nil
}

func (s *sail) structRows(ctx context.Context) (string, error) {
	type row struct {
		B  bool
		I  int32
		D  float64
		S  string
		X  []byte
		Ts time.Time
		N  *int32
	}
	got, err := structs[row](ctx, s.pool, `SELECT true AS b, 7 AS i, 2.5D AS d, 'zoë' AS s, X'AA' AS x,
		TIMESTAMP '2001-02-03 04:05:06 UTC' AS ts, CAST(NULL AS INT) AS n`)
	if err != nil {
		return "", err
	}
	r := got[0]
	if !r.B || r.I != 7 || r.D != 2.5 || r.S != "zoë" || string(r.X) != "\xaa" || r.N != nil ||
		!r.Ts.Equal(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)) {
		return "", fmt.Errorf("got %+v", r)
	}
	return "", nil
}

func (s *sail) large(ctx context.Context) (string, error) {
	const n = 20_000_000
	began := time.Now()
	result, err := s.pool.Query(ctx, fmt.Sprintf("SELECT id, id * 2 AS twice FROM range(%d)", n))
	if err != nil {
		return "", err
	}
	defer result.Release()
	var first time.Duration
	var count, sum int64
	for result.Next() {
		if first == 0 {
			first = time.Since(began)
		}
		batch := result.RecordBatch()
		count += batch.NumRows()
		for _, v := range batch.Column(1).(*array.Int64).Int64Values() {
			sum += v
		}
	}
	took := time.Since(began)
	if err := result.Err(); err != nil {
		return "", err
	}
	if count != n || sum != n*(n-1) {
		return "", fmt.Errorf("%d rows with the sum %d", count, sum)
	}
	if first > took/4 {
		return "", fmt.Errorf("the first batch came after %v of %v", first, took)
	}
	return fmt.Sprintf("%d rows, first batch after %d of %d ms", n, first.Milliseconds(), took.Milliseconds()), nil
}

func (s *sail) statementError(ctx context.Context) (string, error) {
	before := s.pool.Stats().Opens
	for _, sql := range []string{"SELECT * FROM missing", "SELECT FROM WHERE", "SELECT unknown_function(1)"} {
		_, err := s.pool.Query(ctx, sql)
		if err := want(sql, err, backend.FaultStatement); err != nil {
			return "", err
		}
		if err := s.one(ctx); err != nil {
			return "", err
		}
	}
	if opens := s.pool.Stats().Opens - before; opens > 0 {
		return "", fmt.Errorf("%d connections were opened anew", opens)
	}
	return "", nil
}

func (s *sail) goroutines(ctx context.Context) (string, error) {
	const callers, calls = 32, 20
	began := time.Now()
	faults := make(chan error, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for call := range calls {
				n := int64(caller*calls + call)
				type row struct{ N int64 }
				got, err := structs[row](ctx, s.pool, fmt.Sprintf("SELECT count(*) AS n FROM range(%d)", n))
				if err == nil && got[0].N != n {
					err = fmt.Errorf("count is %d, not %d", got[0].N, n)
				}
				if err != nil {
					faults <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if total := s.pool.Stats().Total; total > poolSize {
		return "", fmt.Errorf("%d connections", total)
	}
	select {
	case err := <-faults:
		return "", err
	default:
		return fmt.Sprintf("%d queries on %d connections, %.0f per second", callers*calls, s.pool.Stats().Total, callers*calls/took.Seconds()), nil
	}
}

// one asks for a 1.
func (s *sail) one(ctx context.Context) error {
	type row struct{ One int32 }
	got, err := structs[row](ctx, s.pool, "SELECT 1 AS one")
	if err == nil && (len(got) != 1 || got[0].One != 1) {
		err = fmt.Errorf("SELECT 1 gives %v", got)
	}
	return err
}

// structs reads all rows of a query.
func structs[T any](ctx context.Context, pool *flightpool.FlightSQLPool, sql string) ([]T, error) {
	result, err := pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	var all []T
	for row, err := range rowscan.Rows[T](result) {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	if len(all) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	return all, nil
}

// want is nil when err is of the fault that it should be.
func want(what string, err error, fault backend.Fault) error {
	if err == nil {
		return fmt.Errorf("%s: no error", what)
	}
	if got := backend.FaultIn(err); got != fault {
		return fmt.Errorf("%s: the error is %v's, not %v's: %w", what, got, fault, err)
	}
	return nil
}

// numbers is a batch of one column of numbers.
func numbers(values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}
