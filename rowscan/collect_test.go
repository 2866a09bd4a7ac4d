package rowscan

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
)

// twoBatches are rows (1, "one"), (2, "two") and (3, NULL), after a batch without rows.
func twoBatches(t *testing.T) *memoryResult {
	return resultOf(
		batchOf(t, `[]`, `[]`), batchOf(t, `[1, 2]`, `["one", "two"]`), batchOf(t, `[3]`, `[null]`))
}

func batchOf(t *testing.T, ids, names string) arrow.RecordBatch {
	id, name := columnOf(t, arrow.PrimitiveTypes.Int64, ids), columnOf(t, arrow.BinaryTypes.String, names)
	schema := arrow.NewSchema([]arrow.Field{{Name: "flight_id", Type: id.DataType()}, {Name: "carrier_name", Type: name.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{id, name}, int64(id.Len()))
}

type carrier struct {
	FlightID    int64
	CarrierName *string
}

func TestCollectReadsAllRowsOrNone(t *testing.T) {
	rows, err := Collect[carrier](twoBatches(t))
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.EqualValues(t, 3, rows[2].FlightID)
	require.Equal(t, "two", *rows[1].CarrierName)
	require.Nil(t, rows[2].CarrierName)

	rows, err = Collect[carrier](resultOf(batchOf(t, `[]`, `[]`)))
	require.NoError(t, err)
	require.NotNil(t, rows, "no rows are a list that is empty, as in JSON")
	require.Empty(t, rows)

	_, err = Collect[struct {
		FlightID    int64
		CarrierName string
	}](twoBatches(t))
	require.ErrorContains(t, err, `row 2: column "carrier_name"`)
}

func TestCollectOneReadsTheFirstRow(t *testing.T) {
	row, err := CollectOne[carrier](twoBatches(t))
	require.NoError(t, err)
	require.EqualValues(t, 1, row.FlightID)
	_, err = CollectOne[carrier](resultOf(batchOf(t, `[]`, `[]`)))
	require.ErrorIs(t, err, ErrNoRows)
	require.ErrorIs(t, err, sql.ErrNoRows)
	_, err = CollectOne[chan int](twoBatches(t))
	require.ErrorContains(t, err, "chan int")
}

// roapi gives whatever has no rows without its columns. It is no other result for whoever asks for rows.
func TestAResultWithoutColumnsHasNoRows(t *testing.T) {
	none := arrow.NewSchema(nil, nil)
	r := &memoryResult{schema: none}
	rows, err := Collect[carrier](r)
	require.NoError(t, err)
	require.Equal(t, []carrier{}, rows)
	require.Equal(t, 1, r.released)
	empty := array.NewRecordBatch(none, nil, 0)
	_, err = CollectOne[int](&memoryResult{schema: none, batches: []arrow.RecordBatch{empty, empty}})
	require.ErrorIs(t, err, ErrNoRows)

	r = &memoryResult{schema: none, err: errors.New("broken")}
	_, err = Collect[carrier](r)
	require.EqualError(t, err, "broken")
	require.Equal(t, 1, r.released)
	r = &memoryResult{schema: none, batches: []arrow.RecordBatch{empty, array.NewRecordBatch(none, nil, 2)}}
	_, err = Collect[carrier](r)
	require.ErrorContains(t, err, `no column "FlightID"`, "there are rows")
	require.Equal(t, 1, r.released)
}

func TestScanOneSetsAllOrNothing(t *testing.T) {
	id, name := int64(-1), "before"
	require.NoError(t, ScanOne(twoBatches(t), &id, &name))
	require.EqualValues(t, 1, id)
	require.Equal(t, "one", name)
	require.NoError(t, ScanOne(twoBatches(t), nil, &name))

	var small int8
	id, name = -1, "before"
	require.ErrorContains(t, ScanOne(twoBatches(t), &id, &small), `column "carrier_name"`)
	require.EqualValues(t, -1, id, "a failed Scan has set a destination")

	for want, dest := range map[string][]any{
		"given 1 destination for 2 columns":            {&id},
		"destination 2 is of type string: give a poin": {&id, name},
		"destination 1 is of type *int64":              {(*int64)(nil), &name},
		"destination 1: type chan int":                 {new(chan int), &name},
	} {
		r := twoBatches(t)
		require.ErrorContains(t, ScanOne(r, dest...), want)
		require.Equal(t, 1, r.released, want)
	}
	require.ErrorIs(t, ScanOne(resultOf(batchOf(t, `[]`, `[]`)), &id, &name), ErrNoRows)
	require.ErrorIs(t, ScanOne(&memoryResult{schema: arrow.NewSchema(nil, nil)}, &id), ErrNoRows)
}

// into is a Scan method that sets a variable of its user's.
type into struct{ to *string }

func (i *into) Scan(src any) error {
	*i.to, _ = src.(string)
	return nil
}

// intoValue has its Scan method on the value.
type intoValue struct{ to *string }

func (i intoValue) Scan(src any) error { return (*into)(&i).Scan(src) }

func TestScanOneKeepsWhereAScanMethodSetsItsValue(t *testing.T) {
	for i, scanner := range []func(*string) any{
		func(s *string) any { return &into{s} },
		func(s *string) any { return intoValue{s} },
		func(s *string) any { return &intoValue{s} },
	} {
		got := "before"
		require.NoError(t, ScanOne(twoBatches(t), nil, scanner(&got)), i)
		require.Equal(t, "one", got, i)
	}
	require.ErrorContains(t, ScanOne(twoBatches(t), nil, (*into)(nil)), "destination 2 is of type *rowscan.into")
	id := sql.NullInt64{Int64: 9}
	for range 2 {
		require.NoError(t, ScanOne(twoBatches(t), &id, nil))
		require.Equal(t, sql.NullInt64{Int64: 1, Valid: true}, id)
	}
}

// Rows that are kept must not share the memory of a batch, which a driver in C frees.
func TestCollectedRowsOwnTheirMemory(t *testing.T) {
	type scanned struct {
		Origin string `arrow:"origin"`
		Note   any    `arrow:"note"`
		Plane  map[string]any
		Extra  map[string]float64
		Model  sql.NullString `arrow:"NOTE"`
	}
	batch := flightsBatch(t)
	rows, err := Collect[scanned](resultOf(batch))
	require.NoError(t, err)
	var again string
	require.NoError(t, ScanOne(resultOf(batch), nil, nil, &again, nil, nil, nil, nil, nil, nil, nil, nil))
	for _, col := range batch.Columns() {
		wipe(col.Data())
	}
	require.Equal(t, scanned{"SFO", "late", map[string]any{"model": "B737", "year": int16(1999)}, map[string]float64{"km": 1.5}, sql.NullString{String: "late", Valid: true}}, rows[0])
	require.Equal(t, "SFO", again)
}

// wipe overwrites an array's memory.
func wipe(data arrow.ArrayData) {
	for _, b := range data.Buffers() {
		if b != nil {
			clear(b.Bytes())
		}
	}
	for _, child := range data.Children() {
		wipe(child)
	}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		wipe(d)
	}
}

func TestAColumnIsFoundWithoutItsUnderscores(t *testing.T) {
	one := columnOf(t, arrow.PrimitiveTypes.Int64, `[1]`)
	two := columnOf(t, arrow.PrimitiveTypes.Int64, `[2]`)
	for names, want := range map[string]int64{
		"flight_no,FLIGHTNO": 2, // in another case before another spelling
		"FlightNo,flight_no": 1,
		"x,FLIGHT_NO":        2,
		"_flight__no_,x":     1,
	} {
		first, second, _ := strings.Cut(names, ",")
		schema := arrow.NewSchema([]arrow.Field{{Name: first, Type: one.DataType()}, {Name: second, Type: one.DataType()}}, nil)
		row, err := CollectOne[struct{ FlightNo int64 }](resultOf(array.NewRecordBatch(schema, []arrow.Array{one, two}, 1)))
		require.NoError(t, err, names)
		require.Equal(t, want, row.FlightNo, names)
	}
}
