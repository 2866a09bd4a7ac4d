package session

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/bind"
)

// Arrow's library for Rust makes NULL of what it cannot convert, and DuckDB an error.
func TestAValueThatDoesNotFitItsColumnIsFound(t *testing.T) {
	p, f := arrow.PrimitiveTypes, arrow.FixedWidthTypes
	price, uuid := &arrow.Decimal128Type{Precision: 6, Scale: 2}, &arrow.FixedSizeBinaryType{ByteWidth: 16}
	for _, c := range []struct {
		v    any
		told arrow.DataType
		fits bool
	}{
		{70_000, p.Int16, false}, {-32_768, p.Int16, true}, {70_000, p.Int32, true}, {int64(math.MaxInt64), p.Int32, false}, {-1, p.Uint64, false}, {uint64(math.MaxUint64), p.Int64, false},
		{1.5, p.Int32, false}, {3.0, p.Int32, true}, {1e6, p.Int32, true}, {1e300, p.Int64, false}, {math.NaN(), p.Int64, false}, {1.5, p.Float32, true},
		{"12", p.Int32, true}, {"twelve", p.Int32, false}, {"", p.Int32, false}, {"1e3", p.Float64, true}, {"x", p.Float64, false},
		{"yes", f.Boolean, true}, {"maybe", f.Boolean, false}, {1, f.Boolean, true}, {7, f.Boolean, true},
		{"2026-01-02", f.Date32, true}, {"2.1.2026", f.Date32, false}, {"2026-01-02 03:04:05", f.Timestamp_us, true}, {"soon", f.Timestamp_us, false}, {"03:04:05.5", f.Time64us, true}, {"3 o'clock", f.Time64us, false},
		{"9999.99", price, true}, {"10000.00", price, false}, {10_000, price, false}, {9_999, price, true}, {math.Inf(1), price, false}, {"ten", price, false},
		{[]byte("0123456789abcdef"), uuid, true}, {[]byte("0"), uuid, false}, {[]byte("0"), arrow.BinaryTypes.String, true},
		{time.Unix(0, 0), f.Date32, true}, {"x", arrow.BinaryTypes.Binary, true}, {5, arrow.BinaryTypes.String, true}, {nil, p.Int32, true},
	} {
		values, err := bind.Of([]any{c.v})
		require.NoError(t, err)
		rows, err := values.Batch(nil)
		require.NoError(t, err)
		told := arrow.NewSchema([]arrow.Field{{Name: "a", Type: c.told}}, nil)
		err = storedOtherwise([]string{"a"}, told, rows)
		require.Equal(t, c.fits, err == nil, "%v as %s: %v", c.v, c.told, err)
		require.NoError(t, storedOtherwise([]string{"a"}, arrow.NewSchema([]arrow.Field{{Name: "$1", Type: c.told}}, nil), rows), "it is told of no column")
		rows.Release()
	}
}

// They come in batches of the caller's alone.
func TestANumberOfSinglePrecisionFitsAsItIsWritten(t *testing.T) {
	b := array.NewFloat32Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]float32{3, 0.1, 1.5}, nil)
	values := b.NewArray()
	defer values.Release()
	require.Equal(t, 1, misfit(values, arrow.PrimitiveTypes.Int32))
	require.Equal(t, -1, misfit(values, &arrow.Decimal128Type{Precision: 2, Scale: 1}))
	require.Equal(t, -1, misfit(values, arrow.PrimitiveTypes.Float64))
}

func TestColumnsThatAServerPutsTogetherByTheirNamesAreInTheirPlaces(t *testing.T) {
	for _, c := range []struct {
		columns, given, told, want string
	}{
		{"a b", "a b", "a b", ""}, {"a b", "1 2", "a b", ""}, {"a b", "1 2", "$1 $2", ""}, {"a b", "x y", "", ""}, {"a b", "1 2 3 4", "a b a b", ""},
		{"a b", "b a", "", `parameter 1 is for column "a", and called "b"`}, {"a b", "b a", "$1 $2", `called "b"`}, {"a b", "a b", "a B", `write "B" instead of "b"`}, {"A b", "1 2 3 4", "a b a b", `write "a" instead of "A"`},
		{"a b", "1 2", "id b", ""}, {"a b", "1 2", "a", ""}, {"a b", "a", "", ""}, {"a b", "b", "a", `called "b"`},
	} {
		fields := func(names string) *arrow.Schema {
			var fields []arrow.Field
			for _, name := range strings.Fields(names) {
				fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
			}
			return arrow.NewSchema(fields, nil)
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, fields(c.given))
		for i := range b.Schema().Fields() {
			b.Field(i).(*array.Int64Builder).Append(1)
		}
		rows := b.NewRecordBatch()
		told := fields(c.told)
		if c.told == "" { // as of a server that tells nothing
			told = nil
		}
		if err := storedOtherwise(strings.Fields(c.columns), told, rows); c.want == "" {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, c.want, c)
		}
		rows.Release()
		b.Release()
	}
}

// The row is one of those that the caller has sent, from 1, as the parameter is.
func TestAValueThatDoesNotFitIsToldByItsParameterAndRow(t *testing.T) {
	names := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, names)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, nil)
	b.Field(1).(*array.Int64Builder).AppendValues([]int64{1, 2, 300}, nil)
	rows := b.NewRecordBatch()
	defer rows.Release()
	told := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int8}}, nil)
	require.ErrorContains(t, storedOtherwise([]string{"a", "b"}, told, rows), "parameter 2, row 3: ")
}

func TestWhereATableIsLookedForIsSeenByItsNameAndThePlaceOfTheSession(t *testing.T) {
	const catalogue, schema = "in a catalogue of its own", "in the schema main"
	for _, c := range []struct {
		table, place, want string
	}{
		{"t", "", ""}, {"lake.t", "", ""}, {"lake.sales.t", "", schema},
		{"t", "lake", ""}, // it tells no schema
		{"t", "lake main", ""}, {"t", "lake MAIN", ""}, {"t", "lake sales", schema}, {"t", "memory main", catalogue}, {"t", "Memory sales", catalogue},
		{"lake.t", "lake main", ""}, {"lake.t", "lake sales", schema}, {`"Lake".t`, "lake sales", schema}, {"lake.t", "other sales", ""}, {"lake.t", "memory sales", ""},
		{"memory.t", "memory main", ""}, {"memory.t", "memory sales", schema}, {"lake.sales.t", "lake main", schema},
	} {
		var in *insertion
		if c.place != "" {
			in = &insertion{}
			for _, name := range strings.Fields(c.place) {
				in.namespace = append(in.namespace, cell{text: name})
			}
		}
		if err := storedElsewhere(c.table, in); c.want == "" {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, c.want, c)
		}
	}
	require.NoError(t, storedElsewhere("t", &insertion{}), "the place could not be read")
}
