package flightconn

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
	"github.com/flightpool/flightpool/rowscan"
)

// arrayOf is an array of buffers and children.
func arrayOf(t arrow.DataType, n int, children []arrow.Array, buffers ...[]byte) arrow.Array {
	all := []*memory.Buffer{nil}
	for _, b := range buffers {
		all = append(all, memory.NewBufferBytes(b))
	}
	var of []arrow.ArrayData
	for _, c := range children {
		of = append(of, c.Data())
	}
	return array.MakeFromData(array.NewData(t, n, all, of, 0, 0))
}

// oneOf is a result of one column, read here.
func oneOf(t *testing.T, column arrow.Array) (arrow.Array, error) {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: column.DataType(), Nullable: true}}, nil)
	e := &Endpoint{cfg: Config{Allocator: memory.DefaultAllocator, MaxMessage: 1 << 20}}
	messages := send(t, array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len())))
	require.Less(t, len(messages[len(messages)-1].GetDataBody()), 1<<20)
	rd, err := openReader(t.Context(), scriptedRows(messages), nil, e, nil)
	require.NoError(t, err)
	t.Cleanup(rd.release)
	batch, err := rd.next()
	if err != nil {
		return nil, err
	}
	return batch.Column(0), nil
}

// upToInt32 are the numbers from 0 to n.
func upToInt32(n int32) (numbers []int32) {
	for i := range n + 1 {
		numbers = append(numbers, i)
	}
	return numbers
}

// TestAValueThatUnfoldsToAnyMemoryIsRefused: of a message of some hundred bytes a value of
// billions of elements would be made, in memory of Go's.
func TestAValueThatUnfoldsToAnyMemoryIsRefused(t *testing.T) {
	const most = math.MaxInt32
	i32, text := arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	null, long := array.NewNull(most), arrayOf(text, 1, nil, i32s(0, 1<<19), []byte(strings.Repeat("x", 1<<19)))
	runs := func(n int32, values arrow.Array) arrow.Array {
		return arrayOf(arrow.RunEndEncodedOf(i32, values.DataType()), int(n), []arrow.Array{arrayOf(i32, 1, nil, i32s(n)), values})
	}
	dictionary := func(n int, values arrow.Array) arrow.Array {
		indices := arrayOf(arrow.PrimitiveTypes.Int8, n, nil, make([]byte, n))
		return array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values.DataType()}, indices, values)
	}
	list := func(of arrow.Array) arrow.Array {
		return arrayOf(arrow.ListOf(of.DataType()), 1, []arrow.Array{of}, i32s(0, int32(of.Len())))
	}
	// views are n lists, each of all of the elements.
	views := func(n int, of arrow.Array) arrow.Array {
		sizes := slices.Repeat([]int32{int32(of.Len())}, n)
		return arrayOf(arrow.ListViewOf(of.DataType()), n, []arrow.Array{of}, i32s(make([]int32, n)...), i32s(sizes...))
	}
	// union is a dense one, of whose rows each has the text that offsets names.
	union := func(texts arrow.Array, offsets []int32) arrow.Array {
		t := arrow.DenseUnionOf([]arrow.Field{{Name: "t", Type: text, Nullable: true}}, []arrow.UnionTypeCode{0})
		return arrayOf(t, len(offsets), []arrow.Array{texts}, make([]byte, len(offsets)), i32s(offsets...))
	}
	few := arrayOf(i32, 1000, nil, i32s(make([]int32, 1000)...))
	for name, column := range map[string]arrow.Array{
		"nulls": list(null), "lists of lists": list(list(null)), "lists of a fixed size": arrayOf(arrow.FixedSizeListOf(most, arrow.Null), 1, []arrow.Array{null}),
		"structs":         list(arrayOf(arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null, Nullable: true}), most, []arrow.Array{null})),
		"runs":            list(runs(most, few.(*array.Int32))),
		"runs of texts":   list(runs(1<<16, long)),
		"a list of lists": list(dictionary(1<<16, list(arrayOf(i32, 1<<16, nil, make([]byte, 4<<16))))),
		"a dictionary":    list(dictionary(1<<18, long)),
		"views of views":  views(1, views(1<<10, views(1<<10, views(1, few)))),
		"a union":         list(union(long, make([]int32, 1<<10))),
		"run of lists":    list(runs(1<<20, list(few))),
	} {
		_, err := oneOf(t, column)
		require.ErrorIs(t, err, errMalformed, name)
		require.ErrorContains(t, err, `column "c": one value`, name)
	}
	late := &lateType{arrow.ExtensionBase{Storage: list(null).DataType()}}
	extended := array.NewExtensionArrayWithStorage(late, list(null))
	err := new(Validator).Check(array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "c", Type: late}}, nil), []arrow.Array{extended}, 1))
	require.ErrorContains(t, err, `column "c": one value`)
	got, err := oneOf(t, views(1<<10, few)) // many rows of one list are what a server may send
	require.NoError(t, err)
	require.Len(t, rowscan.Value(got, 1<<10-1), 1000)
	got, err = oneOf(t, runs(most, list(few)))
	require.NoError(t, err)
	require.Len(t, rowscan.Value(got, most-1), 1000)
	got, err = oneOf(t, arrayOf(arrow.ListOf(dictionary(1, long).DataType()), 64, []arrow.Array{dictionary(64, long)}, i32s(upToInt32(64)...)))
	require.NoError(t, err, "each is within the bound")
	require.Len(t, rowscan.Value(got, 63), 1)
	codes := make([]byte, 1<<10)
	codes[7] = 1
	both := arrayOf(text, 2, nil, i32s(0, 1, 1<<19), []byte(strings.Repeat("x", 1<<19)))
	got, err = oneOf(t, list(array.NewDictionaryArray(dictionary(1, long).DataType(), arrayOf(arrow.PrimitiveTypes.Int8, len(codes), nil, codes), both)))
	require.NoError(t, err, "one of the texts is long")
	require.Len(t, rowscan.Value(got, 0), 1<<10)
	many := arrayOf(text, 1<<10, nil, i32s(append(make([]int32, 1<<10), 1<<19)...), []byte(strings.Repeat("x", 1<<19)))
	got, err = oneOf(t, list(union(many, upToInt32(1<<10-1))))
	require.NoError(t, err, "one of the texts is long")
	require.Len(t, rowscan.Value(got, 0), 1<<10)
	_, err = oneOf(t, list(arrayOf(arrow.FixedWidthTypes.Boolean, 1<<22, nil, make([]byte, 1<<19))))
	require.NoError(t, err, "nothing in it is shared")
	got, err = oneOf(t, list(dictionary(1<<8, list(few))))
	require.NoError(t, err)
	require.Len(t, rowscan.Value(got, 0), 1<<8)
}

// TestAListOfAnyLengthMayComeOfADriver: what no message has bounded may be as large as it is.
func TestAListOfAnyLengthMayComeOfADriver(t *testing.T) {
	const most = maxInflationFactor * DefaultMaxMessage
	bits := make([]byte, 1<<20)
	sets := arrayOf(arrow.FixedWidthTypes.Boolean, 8<<20, nil, bits)
	shared := make([]arrow.Field, most>>20+1)
	members := make([]arrow.Array, len(shared))
	for i := range shared { // 1 MiB each, all the same
		shared[i], members[i] = arrow.Field{Name: "m", Type: arrow.FixedWidthTypes.Boolean}, sets
	}
	structs := arrayOf(arrow.StructOf(shared...), 8<<20, members)
	lists := arrayOf(arrow.ListOf(structs.DataType()), 1, []arrow.Array{structs}, i32s(0, 8<<20))
	require.Greater(t, unfold(lists.Data(), lists.DataType(), true).one, float64(most))
	require.NoError(t, checkUnfolded(lists.Data(), lists.DataType(), 0))
	require.Error(t, checkUnfolded(lists.Data(), lists.DataType(), most))
}

// TestNoValueUnfoldsToMoreThanWasFound has random columns of every type, nested and encoded.
func TestNoValueUnfoldsToMoreThanWasFound(t *testing.T) {
	var size func(v any) float64 // of which unfold counts at least as much: a bit for what has no parts
	size = func(v any) (sum float64) {
		switch v := v.(type) {
		case string:
			return float64(len(v)) / 8 // a UUID has fewer bytes than its text
		case []byte:
			return float64(len(v))
		case []any:
			for _, e := range v {
				sum += size(e)
			}
			return sum
		case map[string]any:
			for _, e := range v {
				sum += size(e)
			}
			return sum
		default:
			return 1.0 / 8
		}
	}
	nested := 0
	for seed := range uint64(3000) {
		g := valuegen.New(seed)
		column, _ := g.Column(1+g.IntN(6), int(seed%5))
		if !holdsLists(column.DataType()) {
			continue
		}
		nested++
		coarse, found := unfold(column.Data(), column.DataType(), false), unfold(column.Data(), column.DataType(), true)
		require.LessOrEqual(t, found.one, coarse.one+1e-9, "%d: %v", seed, column.DataType())
		for row := range column.Len() {
			require.LessOrEqual(t, size(rowscan.Value(column, row)), found.one+1e-9, "%d: %v", seed, column)
		}
	}
	require.Greater(t, nested, 400)
}
