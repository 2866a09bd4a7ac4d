package adbcpool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
)

// hostile is a reader of a user's that does something else after some batches.
type hostile struct {
	array.RecordReader
	good int
	then func() bool
	err  error
}

func (h *hostile) Next() bool {
	if h.good--; h.good >= 0 {
		return h.RecordReader.Next()
	}
	return h.then()
}

func (h *hostile) Err() error { return h.err }

// column is a batch of one column of a type.
func column(of arrow.DataType) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: of, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).AppendNull()
	return b.NewRecordBatch()
}

// hostiles are what a reader may do in the middle, and what its caller sees.
var hostiles = map[string]struct {
	then func() bool
	sees string // "context", "panic", "goexit"
}{
	"blocks":  {func() bool { time.Sleep(time.Minute); return false }, "context"},
	"endless": {func() bool { time.Sleep(50 * time.Millisecond); return true }, "context"},
	"panics":  {func() bool { panic("reader") }, "panic"},
	"exits":   {func() bool { runtime.Goexit(); return false }, "goexit"},
}

// seen runs call in a goroutine and says how it ended.
func seen(call func() error) string {
	how := make(chan string)
	go func() {
		is := "goexit"
		defer func() {
			if v := recover(); v != nil {
				is = "panic"
			}
			how <- is
		}()
		switch err := call(); {
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errWhy):
			is = "context"
		default:
			is = fmt.Sprint(err)
		}
	}()
	return <-how
}

// Whatever a reader of the user's does, its caller is back with its context, and
// hears of a panic, and the pool goes on.
func TestAReaderOfTheUsersHoldsNobodyUp(t *testing.T) {
	calls := map[string]func(ctx context.Context, r rig, p *flightpool.FlightSQLPool, rows array.RecordReader) error{
		"Ingest": func(ctx context.Context, _ rig, p *flightpool.FlightSQLPool, rows array.RecordReader) error {
			_, err := p.Ingest(ctx, "t", rows, flightpool.IngestOptions{Mode: backend.IngestAppend})
			return err
		},
		"BindStream": func(ctx context.Context, r rig, p *flightpool.FlightSQLPool, rows array.RecordReader) error {
			cn, err := Database(p).Open(ctx)
			require.NoError(r, err)
			defer func() { require.NoError(r, cn.Close()) }()
			st := r.stmt(cn, "INSERT INTO t VALUES (?)")
			require.NoError(r, st.BindStream(ctx, rows))
			_, err = st.ExecuteUpdate(ctx)
			return err
		},
	}
	for _, kind := range kinds {
		for name, h := range hostiles {
			for what, call := range calls {
				inBubble(t, testserver.Strict(), func(r rig) {
					p := r.pool(kind)
					r.update(p, "CREATE TABLE t (v BIGINT)")
					inner, err := array.NewRecordReader(ints(1).Schema(), []arrow.RecordBatch{ints(1), ints(2)})
					require.NoError(r, err)
					ctx, cancel := context.WithTimeoutCause(r.Context(), time.Second, errWhy)
					defer cancel()
					began := time.Now()
					got := seen(func() error { return call(ctx, r, p, &hostile{RecordReader: inner, good: 1, then: h.then}) })
					require.Equal(r, h.sees, got, "%s, %s, %s", kind, name, what)
					require.LessOrEqual(r, time.Since(began), time.Second+50*time.Millisecond, "%s, %s, %s", kind, name, what)
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					require.Zero(r, p.Stats().InUse, "%s, %s, %s", kind, name, what)
					require.NoError(r, p.Ping(r.Context()))
				})
			}
		}
	}
}

func TestADBCAStreamWhoseBatchesDifferIsRefused(t *testing.T) {
	inBubble(t, testserver.Strict(), func(r rig) {
		p := r.pool("native")
		r.update(p, "CREATE TABLE t (v BIGINT)")
		cn, err := Database(p).Open(r.Context())
		require.NoError(r, err)
		defer func() { require.NoError(r, cn.Close()) }()
		st := r.stmt(cn, "INSERT INTO t VALUES (?)")
		other := column(arrow.BinaryTypes.String)
		good, err := array.NewRecordReader(ints(1).Schema(), []arrow.RecordBatch{ints(1)})
		require.NoError(r, err)
		require.NoError(r, st.BindStream(r.Context(), &swapped{good, other}))
		_, err = st.ExecuteUpdate(r.Context())
		require.Equal(r, adbc.StatusInvalidArgument, r.status(err))
		require.ErrorContains(r, err, "schema")
		require.Zero(r, r.count(p, "t"))
	})
}

// swapped gives another batch than its schema has.
type swapped struct {
	array.RecordReader
	batch arrow.RecordBatch
}

func (s *swapped) RecordBatch() arrow.RecordBatch { return s.batch }

// Arrow joins run-ends, and dictionaries, otherwise where one of the arrays is empty: values are others, or it fails.
func TestADBCABatchWithoutRowsInAStreamChangesNoValue(t *testing.T) {
	for _, values := range []arrow.DataType{
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64), arrow.PrimitiveTypes.Int64,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "1", Type: values, Nullable: true}}, nil)
		batchOf := func(json string) arrow.RecordBatch {
			column, _, err := array.FromJSON(memory.DefaultAllocator, values, strings.NewReader(json))
			require.NoError(t, err)
			batch := array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
			if json == "[7, 7]" { // none of them
				return batch.NewSlice(1, 1)
			}
			return batch
		}
		for _, batches := range [][]string{{"[7, 7]", "[7]", "[7, 7]", "[null]"}, {"[]", "[7, null]"}, {"[7]", "[]", "[null]"}, {"[7, null]", "[]"}, {"[]", "[]", "[7]", "[null]", "[]"}} {
			var all []arrow.RecordBatch
			for _, json := range batches {
				all = append(all, batchOf(json))
			}
			stream, err := array.NewRecordReader(schema, all)
			require.NoError(t, err)
			joined, err := readAll(t.Context(), stream)
			require.NoError(t, err, "%v of %v", batches, values)
			require.EqualValues(t, 2, joined.NumRows())
			require.Equal(t, []any{int64(7), nil}, []any{rowscan.Value(joined.Column(0), 0), rowscan.Value(joined.Column(0), 1)}, "%v of %v", batches, values)
			joined.Release()
		}
		none, err := array.NewRecordReader(schema, []arrow.RecordBatch{batchOf("[]"), batchOf("[]")})
		require.NoError(t, err)
		joined, err := readAll(t.Context(), none)
		require.NoError(t, err)
		require.Zero(t, joined.NumRows())
		require.True(t, joined.Schema().Equal(schema))
	}
}

// Nor does a row of no values, or NULL, within a list.
func TestADBCAnEmptyListInAStreamChangesNoValue(t *testing.T) {
	for _, inner := range []arrow.DataType{
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64), arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64},
		arrow.StructOf(arrow.Field{Name: "s", Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int64), Nullable: true}),
	} {
		values := arrow.ListOf(inner)
		item, isOther := map[arrow.Type]string{arrow.STRUCT: `{"s": %d}`, arrow.STRING: `"%d"`}[inner.ID()]
		if !isOther {
			item = "%d"
		}
		schema := arrow.NewSchema([]arrow.Field{{Name: "1", Type: values, Nullable: true}}, nil)
		for _, rows := range [][]string{{"[]", "[7, 8]"}, {"null", "[7, 8]"}, {"[7]", "[]", "[8, 9]"}, {"[7, 8]", "[]"}, {"[7]", "[]", "[8]", "null", "[8, 9, 9]"}} {
			var all []arrow.RecordBatch
			want, got := []any{}, []any{}
			for _, row := range rows {
				for _, digit := range "789" {
					row = strings.ReplaceAll(row, string(digit), fmt.Sprintf(item, digit))
				}
				column, _, err := array.FromJSON(memory.DefaultAllocator, values, strings.NewReader("["+row+"]"))
				require.NoError(t, err, row)
				all = append(all, array.NewRecordBatch(schema, []arrow.Array{column}, 1))
				want = append(want, rowscan.Value(column, 0))
			}
			stream, err := array.NewRecordReader(schema, all)
			require.NoError(t, err)
			joined, err := readAll(t.Context(), stream)
			require.NoError(t, err, "%v of %v", rows, values)
			for i := range rows {
				got = append(got, rowscan.Value(joined.Column(0), i))
			}
			require.Equal(t, want, got, "%v of %v", rows, values)
			joined.Release()
		}
	}
}
