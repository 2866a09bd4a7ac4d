package rowscan

import (
	"database/sql"
	"iter"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// memoryResult is a result of batches that exist.
type memoryResult struct {
	schema   *arrow.Schema
	batches  []arrow.RecordBatch
	err      error // after the batches
	released int
}

func (r *memoryResult) Schema() *arrow.Schema { return r.schema }
func (r *memoryResult) Release()              { r.released++ }

func (r *memoryResult) Batches() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		defer r.Release()
		for _, b := range r.batches {
			if !yield(b, nil) {
				return
			}
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

func resultOf(batches ...arrow.RecordBatch) *memoryResult {
	return &memoryResult{schema: batches[0].Schema(), batches: batches}
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
	for f, err := range Rows[flight](resultOf(flightsBatch(t))) {
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
	for _, err := range Rows[T](resultOf(flightsBatch(t))) {
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
	require.ErrorContains(t, rowsError[struct{ Delay int }](t), `row 1: column "DELAY": NULL does not fit int`)
	require.ErrorContains(t, rowsError[struct{ Seats int8 }](t), `row 0: column "seats": 200 (int64) does not fit int8`)
	require.ErrorContains(t, rowsError[struct{ Origin int }](t), "does not fit int")
	require.ErrorContains(t, rowsError[struct{ Legs map[string]int }](t), "does not fit")
	require.ErrorContains(t, rowsError[struct{ Delay uint16 }](t), "does not fit uint16")
	require.ErrorContains(t, rowsError[struct{ origin string }](t), "no exported field")
	require.ErrorContains(t, rowsError[*struct{}](t), "no exported field")
	require.ErrorContains(t, rowsError[int](t), "11 columns, and int takes one")
}

// A field without a column is a fault unless its tag says otherwise.
func TestOptionalFieldsMayBeWithoutAColumn(t *testing.T) {
	batch := flightsBatch(t)
	type embedded struct {
		Also *string `arrow:"nosuch2,optional"`
	}
	type flight struct {
		Delay *int64 `arrow:"DELAY,optional"`
		Gate  string `arrow:"gate,optional"`
		Seat  int    `arrow:",optional"`
		embedded
	}
	rows, err := Collect[flight](resultOf(batch))
	require.NoError(t, err)
	require.EqualValues(t, -7, *rows[0].Delay)
	require.Zero(t, rows[0].Gate)
	require.Zero(t, rows[0].Seat)
	require.Nil(t, rows[0].Also)
	type strict struct {
		Gate string `arrow:"gate"`
		Seat int    `arrow:",optional"`
	}
	_, err = Collect[strict](resultOf(flightsBatch(t)))
	require.ErrorContains(t, err, `field Gate: the result has no column "gate"`)
	require.NotContains(t, err.Error(), "Seat")
}

// A map takes the whole row, of one column too, and a map type of another kind a value.
func TestAMapTakesTheRow(t *testing.T) {
	rows, err := Collect[map[string]any](resultOf(flightsBatch(t)))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.EqualValues(t, -7, rows[0]["DELAY"])
	one, err := CollectOne[map[string]any](resultOf(flightsBatch(t)))
	require.NoError(t, err)
	require.Equal(t, rows[0], one)
}
