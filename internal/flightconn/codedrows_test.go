package flightconn

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// codedRows makes columns whose dictionaries are about those before, or the same.
type codedRows struct {
	*rand.Rand
	mem memory.Allocator
}

// codedType is a type in which there is a dictionary.
func (g codedRows) codedType(depth int) arrow.DataType {
	if depth == 0 || g.IntN(3) == 0 {
		return &arrow.DictionaryType{IndexType: []arrow.DataType{arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Int32}[g.IntN(3)], ValueType: g.valueType(depth)}
	}
	of := g.codedType(depth - 1)
	switch g.IntN(6) {
	case 0:
		return arrow.ListOf(of)
	case 1:
		return arrow.FixedSizeListOf(2, of)
	case 2:
		return arrow.LargeListOf(of)
	case 3:
		return arrow.ListViewOf(of)
	case 4:
		return arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: of, Nullable: true}, {Name: "b", Type: g.codedType(depth - 1), Nullable: true}}, []arrow.UnionTypeCode{0, 1})
	default:
		return arrow.StructOf(arrow.Field{Name: "a", Type: of, Nullable: true}, arrow.Field{Name: "b", Type: g.valueType(0), Nullable: true})
	}
}

func (g codedRows) valueType(depth int) arrow.DataType {
	plain := []arrow.DataType{arrow.PrimitiveTypes.Float64, arrow.PrimitiveTypes.Float32, arrow.FixedWidthTypes.Float16, arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeString, arrow.PrimitiveTypes.Int64, &arrow.FixedSizeBinaryType{ByteWidth: 2}}
	if depth > 0 {
		switch g.IntN(4) {
		case 0:
			return arrow.StructOf(arrow.Field{Name: "x", Type: g.valueType(depth - 1), Nullable: true}, arrow.Field{Name: "y", Type: g.codedType(0), Nullable: true})
		case 1:
			return arrow.ListOf(g.valueType(depth - 1))
		}
	}
	return plain[g.IntN(len(plain))]
}

// json is a value of the type. Those of floats and texts are few, and near to each other.
func (g codedRows) json(t arrow.DataType) string {
	if g.IntN(6) == 0 && t.ID() != arrow.SPARSE_UNION {
		return "null"
	}
	switch t := t.(type) {
	case *arrow.ListType, *arrow.LargeListType, *arrow.ListViewType:
		return g.list(t.(arrow.ListLikeType).Elem(), g.IntN(3))
	case *arrow.FixedSizeListType:
		return g.list(t.Elem(), 2)
	case *arrow.StructType:
		return fmt.Sprintf(`{%q:%s,%q:%s}`, t.Field(0).Name, g.json(t.Field(0).Type), t.Field(1).Name, g.json(t.Field(1).Type))
	}
	switch t.ID() {
	case arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64:
		return []string{"0", "-0.0", "1e-6", "2e-6", "1", "1.000001"}[g.IntN(6)]
	case arrow.STRING, arrow.LARGE_STRING:
		return []string{`""`, `"a"`, `"a\u0000"`, `"b"`}[g.IntN(4)]
	case arrow.BINARY:
		return []string{`""`, `"YQ=="`, `"YQA="`, `"Yg=="`}[g.IntN(4)]
	case arrow.FIXED_SIZE_BINARY:
		return []string{`"YQA="`, `"YWE="`}[g.IntN(2)]
	default:
		return strconv.Itoa(g.IntN(2))
	}
}

func (g codedRows) list(of arrow.DataType, n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = g.json(of)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// column has n rows of the type. Their dictionaries are as long as those of others, more often than not.
func (g codedRows) column(t arrow.DataType, n int) arrow.Array {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		values := g.column(t.ValueType, 1+g.IntN(2))
		at := make([]string, n)
		for i := range at {
			if at[i] = strconv.Itoa(g.IntN(values.Len())); g.IntN(6) == 0 {
				at[i] = "null"
			}
		}
		index := g.parse(t.IndexType, "["+strings.Join(at, ",")+"]")
		return array.NewDictionaryArray(t, index, values)
	case *arrow.StructType:
		return g.wrap(t, n, nil, g.column(t.Field(0).Type, n), g.column(t.Field(1).Type, n))
	case *arrow.FixedSizeListType:
		return g.wrap(t, n, nil, g.column(t.Elem(), 2*n))
	case *arrow.SparseUnionType:
		codes := make([]byte, n)
		for i := range codes {
			codes[i] = byte(g.IntN(2))
		}
		return g.wrap(t, n, [][]byte{codes}, g.column(t.Fields()[0].Type, n), g.column(t.Fields()[1].Type, n))
	case *arrow.ListType:
		ends := g.ends(n)
		return g.wrap(t, n, [][]byte{arrow.Int32Traits.CastToBytes(ends)}, g.column(t.Elem(), int(ends[n])))
	case *arrow.LargeListType:
		ends := g.ends(n)
		long := make([]int64, n+1)
		for i := range ends {
			long[i] = int64(ends[i])
		}
		return g.wrap(t, n, [][]byte{arrow.Int64Traits.CastToBytes(long)}, g.column(t.Elem(), int(ends[n])))
	case *arrow.ListViewType:
		ends := g.ends(n)
		sizes := make([]int32, n)
		for i := range sizes {
			sizes[i] = ends[i+1] - ends[i]
		}
		return g.wrap(t, n, [][]byte{arrow.Int32Traits.CastToBytes(ends[:n]), arrow.Int32Traits.CastToBytes(sizes)}, g.column(t.Elem(), int(ends[n])))
	default:
		return g.parse(t, g.list(t, n))
	}
}

func (g codedRows) ends(n int) []int32 {
	ends := make([]int32, n+1)
	for i := range n {
		ends[i+1] = ends[i] + int32(g.IntN(3))
	}
	return ends
}

func (g codedRows) parse(t arrow.DataType, values string) arrow.Array {
	out, _, err := array.FromJSON(g.mem, t, strings.NewReader(values))
	if err != nil {
		panic(fmt.Sprint(t, values, err))
	}
	return out
}

func (g codedRows) wrap(t arrow.DataType, n int, own [][]byte, children ...arrow.Array) arrow.Array {
	buffers := []*memory.Buffer{nil}
	for _, b := range own {
		buffers = append(buffers, memory.NewBufferBytes(b))
	}
	var data []arrow.ArrayData
	for _, c := range children {
		data = append(data, c.Data())
	}
	whole := array.NewData(t, n, buffers, data, 0, 0)
	defer whole.Release()
	out := array.MakeFromData(whole)
	for _, c := range children {
		c.Release()
	}
	return out
}

// exact is a value with every bit of it.
func exact(a arrow.Array, i int) string {
	if u, ok := a.(*array.SparseUnion); ok {
		return fmt.Sprint(u.ChildID(i), exact(u.Field(u.ChildID(i)), i+0))
	}
	if a.IsNull(i) {
		return "null"
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return exact(a.Dictionary(), a.GetValueIndex(i))
	case *array.Float64:
		return strconv.FormatUint(math.Float64bits(a.Value(i)), 16)
	case *array.Float32:
		return strconv.FormatUint(uint64(math.Float32bits(a.Value(i))), 16)
	case *array.Float16:
		return strconv.FormatUint(uint64(a.Value(i).Uint16()), 16)
	case *array.Struct:
		return "{" + exact(a.Field(0), i) + "," + exact(a.Field(1), i) + "}"
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		items := "["
		for at := from; at < to; at++ {
			items += exact(a.ListValues(), int(at)) + ","
		}
		return items + "]"
	case array.BinaryLike:
		return fmt.Sprintf("%q", a.ValueStr(i))
	default:
		return a.ValueStr(i)
	}
}

// sentMessages are what a server receives.
type sentMessages struct{ left []*flight.FlightData }

func (s *sentMessages) Recv() (*flight.FlightData, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	next := s.left[0]
	s.left = s.left[1:]
	return next, nil
}

// Whatever dictionaries the batches of a stream have, and however they are split: the server reads the rows.
func TestRandomRowsAreReadWithTheirOwnDictionaries(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv("PROVE"))
	if err != nil {
		limit = time.Second
	}
	seed, one := uint64(time.Now().UnixNano()), false
	if s := os.Getenv("PROVE_SEED"); s != "" {
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		one = true
	}
	replaced := 0
	for end := time.Now().Add(limit); time.Now().Before(end); seed++ {
		replaced += sendCodedRows(t, seed)
		if one || t.Failed() {
			break
		}
	}
	t.Log("dictionaries:", replaced)
}

func sendCodedRows(t *testing.T, seed uint64) (dictionaries int) {
	g := codedRows{rand.New(rand.NewPCG(seed, 1)), memory.NewGoAllocator()}
	types := []arrow.DataType{g.codedType(g.IntN(4)), g.codedType(g.IntN(2))}
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: types[0], Nullable: true}, {Name: "b", Type: types[1], Nullable: true}}, nil)
	var opts []ipc.Option
	if g.IntN(3) == 0 {
		opts = append(opts, ipc.WithZstd())
	}
	e := newEncoder(describe(&pb.CommandGetCatalogs{}), schema, 1200+g.IntN(4000), opts...)
	defer e.close()
	var sent sentMessages
	var want, got []string
	var columns []arrow.Array
	for range 2 + g.IntN(5) {
		n := 1 + g.IntN(12)
		if columns == nil || g.IntN(4) > 0 {
			columns = []arrow.Array{g.column(types[0], n), g.column(types[1], n)}
		}
		batch := array.NewRecordBatch(schema, columns, int64(columns[0].Len()))
		if from := g.Int64N(batch.NumRows()); g.IntN(2) == 0 {
			batch = batch.NewSlice(from, batch.NumRows())
		}
		for i := range int(batch.NumRows()) {
			want = append(want, exact(batch.Column(0), i)+" "+exact(batch.Column(1), i))
		}
		messages, err := e.flightData(batch)
		if err != nil {
			require.ErrorContains(t, err, "bytes when encoded", "seed %d, %s", seed, types)
			return 0
		}
		sent.left = append(sent.left, messages...)
	}
	dictionaries = len(sent.left)
	rows, err := flight.NewRecordReader(&sent)
	require.NoError(t, err, "seed %d, %s", seed, types)
	defer rows.Release()
	for rows.Next() {
		for i := range int(rows.RecordBatch().NumRows()) {
			got = append(got, exact(rows.RecordBatch().Column(0), i)+" "+exact(rows.RecordBatch().Column(1), i))
		}
	}
	require.NoError(t, rows.Err(), "seed %d, %s", seed, types)
	require.Equal(t, want, got, "seed %d, %s", seed, types)
	return dictionaries
}
