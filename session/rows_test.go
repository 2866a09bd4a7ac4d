package session

import (
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

type arrowBatch = arrow.RecordBatch

func jsonRows(s string) io.Reader { return strings.NewReader(s) }

// batchStream gives out batches that exist.
type batchStream struct {
	schema  *arrow.Schema
	batches []arrow.RecordBatch
}

func (s *batchStream) Schema() *arrow.Schema       { return s.schema }
func (s *batchStream) RowsAffected() (int64, bool) { return 0, false }
func (s *batchStream) Close()                      {}
func (s *batchStream) Next() (arrow.RecordBatch, error) {
	if len(s.batches) == 0 {
		return nil, io.EOF
	}
	b := s.batches[0]
	s.batches = s.batches[1:]
	return b, nil
}

func resultOf(t *testing.T, b arrow.RecordBatch) *QueryResult {
	r := newRig(t, &fakeConn{})
	c, err := r.handle.begin(t.Context(), "Query", QueryOptions{}, cancelWhenLeft)
	require.NoError(t, err)
	return newResult(c, &batchStream{b.Schema(), []arrow.RecordBatch{b}}, nil, nil)
}

type flight struct {
	Day     time.Time `arrow:"date"`
	Delay   *int16    `arrow:"delay"`
	Origin  string
	Fare    float64
	Exact   string         `arrow:"fare"`
	Legs    []int32        `arrow:"legs"`
	Plane   plane          `arrow:"plane"`
	Extra   map[string]any `arrow:"extra"`
	Note    sql.NullString `arrow:"note"`
	Any     any            `arrow:"seats"`
	Seats   uint8
	Open    time.Duration `arrow:"open"`
	Raw     []byte        `arrow:"raw"`
	Skipped chan int      `arrow:"-"`
	hidden  int
}

type plane struct {
	Model string
	Year  int
}

func flightsBatch(t *testing.T) arrow.RecordBatch {
	fields := []arrow.Field{
		{Name: "date", Type: arrow.FixedWidthTypes.Timestamp_us},
		{Name: "DELAY", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
		{Name: "origin", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}},
		{Name: "fare", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}},
		{Name: "legs", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "plane", Type: arrow.StructOf(arrow.Field{Name: "model", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "year", Type: arrow.PrimitiveTypes.Int16})},
		{Name: "extra", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64)},
		{Name: "note", Type: arrow.BinaryTypes.LargeString, Nullable: true},
		{Name: "seats", Type: arrow.PrimitiveTypes.Int64},
		{Name: "open", Type: arrow.FixedWidthTypes.Time64us},
		{Name: "raw", Type: arrow.BinaryTypes.Binary},
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	for i := range 2 {
		b.Field(0).(*array.TimestampBuilder).AppendTime(time.Date(2001, 1, 1+i, 12, 0, 0, 0, time.UTC))
		if i == 0 {
			b.Field(1).(*array.Int16Builder).Append(-7)
			b.Field(7).(*array.LargeStringBuilder).Append("late")
		} else {
			b.Field(1).AppendNull()
			b.Field(7).AppendNull()
		}
		require.NoError(t, b.Field(2).(*array.BinaryDictionaryBuilder).AppendString("SFO"))
		b.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(12345))
		l := b.Field(4).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
		s := b.Field(5).(*array.StructBuilder)
		s.Append(true)
		s.FieldBuilder(0).(*array.StringBuilder).Append("B737")
		s.FieldBuilder(1).(*array.Int16Builder).Append(1999)
		m := b.Field(6).(*array.MapBuilder)
		m.Append(true)
		m.KeyBuilder().(*array.StringBuilder).Append("km")
		m.ItemBuilder().(*array.Float64Builder).Append(1.5)
		b.Field(8).(*array.Int64Builder).Append(200)
		b.Field(9).(*array.Time64Builder).Append(arrow.Time64(90 * time.Second / time.Microsecond))
		b.Field(10).(*array.BinaryBuilder).Append([]byte{1, 2})
	}
	return b.NewRecordBatch()
}

func TestRowsFillStructs(t *testing.T) {
	var got []flight
	for f, err := range Rows[flight](resultOf(t, flightsBatch(t))) {
		require.NoError(t, err)
		got = append(got, f)
	}
	delay := int16(-7)
	want := flight{
		Day: time.Date(2001, 1, 1, 12, 0, 0, 0, time.UTC), Delay: &delay, Origin: "SFO", Fare: 123.45, Exact: "123.45", Legs: []int32{1, 2},
		Plane: plane{"B737", 1999}, Extra: map[string]any{"km": 1.5}, Note: sql.NullString{String: "late", Valid: true},
		Any: int64(200), Seats: 200, Open: 90 * time.Second, Raw: []byte{1, 2},
	}
	require.Len(t, got, 2)
	require.Equal(t, want, got[0])
	require.Nil(t, got[1].Delay)
	require.False(t, got[1].Note.Valid)
	require.Zero(t, got[1].hidden)
}

func rowsError[T any](t *testing.T) error {
	for _, err := range Rows[T](resultOf(t, flightsBatch(t))) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRowsTellWhatDoesNotFit(t *testing.T) {
	require.ErrorContains(t, rowsError[struct{ Missing, Absent int }](t), `no column "Absent"`)
	require.ErrorContains(t, rowsError[struct{ Missing, Absent int }](t), `no column "Missing"`)
	require.ErrorContains(t, rowsError[struct{ Origin chan int }](t), "cannot hold")
	require.ErrorContains(t, rowsError[struct{ Delay int }](t), `row 1: column "Delay": NULL does not fit int`)
	require.ErrorContains(t, rowsError[struct{ Seats int8 }](t), `row 0: column "Seats": 200 (int64) does not fit int8`)
	require.ErrorContains(t, rowsError[struct{ Origin int }](t), "does not fit int")
	require.ErrorContains(t, rowsError[struct{ Legs map[string]int }](t), "does not fit")
	require.ErrorContains(t, rowsError[struct{ Delay uint16 }](t), "does not fit uint16")
	require.ErrorContains(t, rowsError[int](t), "11 columns, and int takes one")
}

func TestRowsReleaseTheResultHoweverTheLoopEnds(t *testing.T) {
	alloc := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer alloc.AssertSize(t, 0)
	b := array.NewInt64Builder(alloc)
	b.AppendValues([]int64{1, 2, 3}, nil)
	col := b.NewArray()
	b.Release()
	batch := array.NewRecordBatch(fakeSchema, []arrow.Array{col}, 3)
	col.Release()
	for range Rows[struct{ N int }](resultOf(t, batch)) {
		break
	}
	batch.Release()
}

// A function that defers Release and returns its result, and a second loop over
// one, have lost the rows: that must not look like a result without any.
func TestAReleasedResultIsNotAnEmptyOne(t *testing.T) {
	type flight struct{ Origin string }
	reads := map[string]func(r *QueryResult) error{
		"Rows": func(r *QueryResult) (err error) {
			for _, err = range Rows[flight](r) {
			}
			return err
		},
		"Maps": func(r *QueryResult) (err error) {
			for _, err = range Maps(r) {
			}
			return err
		},
		"Batches": func(r *QueryResult) (err error) {
			for _, err = range r.Batches() {
			}
			return err
		},
		"ReadAll": func(r *QueryResult) error {
			table, err := r.ReadAll(t.Context())
			if err == nil {
				table.Release()
			}
			return err
		},
	}
	gone := map[string]func(r *QueryResult){
		"released": func(r *QueryResult) { r.Release() },
		"closed":   func(r *QueryResult) { _ = r.Close() },
		"read":     func(r *QueryResult) { _ = reads["Maps"](r) },
	}
	for name, read := range reads {
		for how, end := range gone {
			r := resultOf(t, flightsBatch(t))
			end(r)
			err := read(r)
			require.ErrorIs(t, err, backend.ErrHandleClosed, "%s of a result that was %s", name, how)
			require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
			require.NoError(t, r.Err(), "it is the reader's own doing")
		}
		r := resultOf(t, flightsBatch(t))
		for r.Next() {
		}
		require.NoError(t, read(r), "%s of what is left: nothing", name)
	}
}
