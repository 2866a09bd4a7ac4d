package flightconn

import (
	"math/bits"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/endian"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/rowscan"
)

// numberBeside are three structs of an empty value of a type, and the number 1, 2 or 3. swapped
// has the number's bytes in the other order.
func numberBeside(t arrow.DataType, swapped bool) arrow.Array {
	b := array.NewStructBuilder(memory.DefaultAllocator, arrow.StructOf(arrow.Field{Name: "v", Type: t, Nullable: true}, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}))
	defer b.Release()
	for n := range int64(3) {
		number := n + 1
		if swapped {
			number = int64(bits.ReverseBytes64(uint64(number)))
		}
		b.Append(true)
		b.FieldBuilder(0).AppendEmptyValue()
		b.FieldBuilder(1).(*array.Int64Builder).Append(number)
	}
	return b.NewArray()
}

// numbersRead are what is read of the numbers of numberBeside.
func numbersRead(t *testing.T, messages []*pb.FlightData) (numbers []any, err error) {
	e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
	rd, err := openReader(t.Context(), scriptedRows(messages), nil, e, nil)
	if err != nil {
		return nil, err
	}
	defer rd.release()
	batch, err := rd.next()
	if err != nil {
		return nil, err
	}
	for row := range 3 {
		numbers = append(numbers, rowscan.Value(batch.Column(0), row).(map[string]any)["n"])
	}
	return numbers, nil
}

// TestNumbersOfTheOtherByteOrderArriveOrAreRefused: Arrow's reader leaves what it cannot turn round
// as it is, with all that is behind it in a struct, and has no error.
func TestNumbersOfTheOtherByteOrderArriveOrAreRefused(t *testing.T) {
	text, want := arrow.BinaryTypes.String, []any{int64(1), int64(2), int64(3)}
	for kind, readable := range map[arrow.DataType]bool{
		text: true, &arrow.Decimal128Type{Precision: 9}: true, arrow.ListOf(text): true,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: text}: true,
		arrow.BinaryTypes.StringView: false, arrow.BinaryTypes.BinaryView: false, arrow.ListViewOf(text): false, arrow.LargeListViewOf(text): false,
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, text): false, arrow.ListOf(arrow.BinaryTypes.StringView): false,
	} {
		for _, other := range []bool{false, true} {
			column := numberBeside(kind, other)
			schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: column.DataType(), Nullable: true}}, nil)
			if other {
				schema = schema.WithEndianness(endian.NonNativeEndian)
			}
			messages := send(t, array.NewRecordBatch(schema, []arrow.Array{column}, 3))
			got, err := numbersRead(t, messages)
			if !other || readable {
				require.NoError(t, err, "%v", kind)
				require.Equal(t, want, got, "%v", kind)
				continue
			}
			require.ErrorIs(t, err, errMalformed, "%v: %v", kind, got)
			require.ErrorContains(t, err, `column "c"`)
			require.ErrorContains(t, err, "byte order")
			require.ErrorContains(t, handOver(t, messages), "byte order", "to another client")
		}
	}
	views := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.StringView}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: views}}, nil)
	require.NoError(t, unreadable(schema))
	require.Error(t, unreadable(schema.WithEndianness(endian.NonNativeEndian)))
}

// TestADictionaryThatArrowsReaderTakesForAnotherIsRefused: it looks for bitmaps in those of unions and
// of run-ends, which have none, and so takes one buffer for another.
func TestADictionaryThatArrowsReaderTakesForAnotherIsRefused(t *testing.T) {
	i32 := arrow.PrimitiveTypes.Int32
	union := arrow.SparseUnionOf([]arrow.Field{{Name: "i", Type: i32, Nullable: true}}, []arrow.UnionTypeCode{0})
	for kind, values := range map[arrow.DataType]string{
		union:                           `[[0,1],[0,2],[0,3]]`,
		arrow.RunEndEncodedOf(i32, i32): `[1,1,2]`,
		arrow.StructOf(arrow.Field{Name: "u", Type: union}): `[{"u":[0,1]},{"u":[0,2]},{"u":[0,3]}]`,
	} {
		dictionary, _, err := array.FromJSON(memory.DefaultAllocator, kind, strings.NewReader(values))
		require.NoError(t, err)
		indices := array.NewInt8Builder(memory.DefaultAllocator)
		indices.AppendValues([]int8{0, 1, 2}, nil)
		column := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: kind}, indices.NewArray(), dictionary)
		schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: column.DataType(), Nullable: true}}, nil)
		_, err = numbersRead(t, send(t, array.NewRecordBatch(schema, []arrow.Array{column}, 3)))
		require.ErrorIs(t, err, errMalformed, "%v", kind)
		require.ErrorContains(t, err, `column "c": a dictionary of`)
	}
}
