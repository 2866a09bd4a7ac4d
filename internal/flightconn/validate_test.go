package flightconn

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/flightpool/flightpool/rowscan"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// everyType is a batch with a column of each type that can be nested or of
// variable length, and some that cannot.
func everyType(t testing.TB) arrow.RecordBatch {
	i32, str := arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	types := []arrow.DataType{
		i32, arrow.FixedWidthTypes.Boolean, &arrow.Decimal128Type{Precision: 9, Scale: 2}, arrow.FixedWidthTypes.MonthDayNanoInterval,
		&arrow.FixedSizeBinaryType{ByteWidth: 3}, arrow.Null,
		str, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView,
		arrow.ListOf(str), arrow.LargeListOf(i32), arrow.FixedSizeListOf(2, i32), arrow.ListViewOf(i32), arrow.LargeListViewOf(str),
		arrow.MapOf(str, i32), arrow.StructOf(arrow.Field{Name: "a", Type: str, Nullable: true}),
		arrow.SparseUnionOf([]arrow.Field{{Name: "i", Type: i32, Nullable: true}, {Name: "s", Type: str, Nullable: true}}, []arrow.UnionTypeCode{5, 7}),
		arrow.DenseUnionOf([]arrow.Field{{Name: "i", Type: i32, Nullable: true}, {Name: "s", Type: str, Nullable: true}}, []arrow.UnionTypeCode{0, 1}),
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: str}, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint16, ValueType: i32},
		arrow.RunEndEncodedOf(i32, str),
	}
	var fields []arrow.Field
	var columns []arrow.Array
	for _, dt := range types {
		b := array.NewBuilder(memory.DefaultAllocator, dt)
		fields = append(fields, arrow.Field{Name: dt.String(), Type: dt, Nullable: true})
		for _, text := range texts4[dt.ID()] {
			if text == "" {
				b.AppendNull()
				continue
			}
			require.NoError(t, b.AppendValueFromString(text), "%s", dt)
		}
		for b.Len() < 4 {
			b.AppendNull()
		}
		columns = append(columns, b.NewArray())
		b.Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 4)
}

// texts4 are four values of a type as their builders read them; "" is NULL.
var texts4 = map[arrow.Type][]string{
	arrow.INT32: {"1", "", "3", "4"}, arrow.BOOL: {"true", "", "false", "true"}, arrow.DECIMAL128: {"1.25", "", "2.50", "0.01"},
	arrow.STRING: {"a", "", "ccc", "dd"}, arrow.LARGE_BINARY: {"YQ==", "", "Yg==", "Yg=="},
	arrow.STRING_VIEW: {"short", "", "a text that does not fit in place", "x"}, arrow.BINARY_VIEW: {"YQ==", "", "YSB0ZXh0IHRoYXQgZG9lcyBub3QgZml0IGluIHBsYWNl", "YQ=="},
	arrow.LIST: {`["a","b"]`, "", `[]`, `["c"]`}, arrow.LARGE_LIST: {`[1,2]`, "", `[]`, `[3]`}, arrow.FIXED_SIZE_LIST: {`[1,2]`, "", `[3,4]`, `[5,6]`},
	arrow.LIST_VIEW: {`[1,2]`, "", `[]`, `[3]`}, arrow.LARGE_LIST_VIEW: {`["a"]`, "", `[]`, `["b"]`},
	arrow.MAP: {`[{"key":"k","value":1}]`, "", `[]`, `[{"key":"l","value":2}]`}, arrow.STRUCT: {`{"a":"x"}`, "", `{"a":"y"}`, `{"a":null}`},
	arrow.SPARSE_UNION: {`[5,1]`, `[7,"x"]`, `[7,"y"]`, `[5,2]`}, arrow.DENSE_UNION: {`[0,1]`, `[1,"x"]`, `[1,"y"]`, `[0,2]`},
	arrow.DICTIONARY: {"1", "", "2", "1"}, arrow.RUN_END_ENCODED: {"a", "a", "b", "b"},
}

// send makes the messages of a batch, schema and dictionaries first.
func send(t testing.TB, batch arrow.RecordBatch, opts ...ipc.Option) []*pb.FlightData {
	e := newEncoder(nil, batch.Schema(), DefaultRequestLimit, opts...)
	defer e.close()
	out, err := e.flightData(batch)
	require.NoError(t, err)
	return out
}

// readAll reads what a server sends, looks at every value, and returns them as
// text.
func readAll(data []*pb.FlightData) ([]string, error) {
	e := &Endpoint{cfg: Config{Address: here, Allocator: memory.DefaultAllocator, Prefetch: 1, MaxMessage: 1 << 20, RequestLimit: DefaultRequestLimit}}
	rd, err := openReader(context.TODO(), scriptedRows(data), nil, e, nil)
	if err != nil {
		return nil, err
	}
	defer rd.release()
	var out []string
	for {
		batch, err := rd.next()
		if err != nil {
			if err == io.EOF { //nolint:errorlint // next's own
				err = nil
			}
			return out, err
		}
		out = append(out, look(batch)...)
	}
}

// look touches the values of a batch as users do; of a batch that claims to
// have very many rows, the first and the last.
func look(batch arrow.RecordBatch) []string {
	var out []string
	const some = 100
	rows := int(batch.NumRows())
	for _, col := range batch.Columns() {
		if nulls := col.NullN(); nulls < 0 || nulls > col.Len() {
			panic(fmt.Sprintf("%d nulls of %d rows", nulls, col.Len()))
		}
		if rows > 1 && rows <= 2*some {
			rest := array.NewSlice(col, 1, int64(rows))
			rest.NullN()
			_ = rest.String()
			rest.Release()
		}
		for i := 0; i < rows; i++ {
			if i == some && rows > 2*some {
				i = rows - some
			}
			_ = rowscan.Value(col, i)
			out = append(out, strings.Clone(col.ValueStr(i))) // the text of a batch goes with it
		}
	}
	return out
}

func TestEveryTypeIsReadAndFoundValidCompressedOrNot(t *testing.T) {
	batch := everyType(t)
	defer batch.Release()
	want := look(batch)
	for name, opts := range map[string][]ipc.Option{"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}} {
		got, err := readAll(send(t, batch, opts...))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	part := batch.NewSlice(1, 3) // with offsets of its own
	defer part.Release()
	require.NoError(t, new(Validator).Check(part))
}

// TestNoBitOfABodyCanMakeAReaderPanic flips and replaces every part of the
// body of a batch of every type. What comes out may be wrong values or an
// error.
func TestNoByteOfABatchCanMakeAReaderPanic(t *testing.T) {
	batch := everyType(t)
	defer batch.Release()
	clean := send(t, batch)
	last := len(clean) - 1
	refused := 0
	for message := 1; message <= last; message++ {
		body := clean[message].GetDataBody()
		for at := 0; at < len(body); at += 4 {
			for _, value := range []uint32{0x7fffffff, 0xfffffff0} {
				bad := append([]byte(nil), body...)
				if at+4 > len(bad) {
					break
				}
				binary.LittleEndian.PutUint32(bad[at:], value)
				data := append([]*pb.FlightData(nil), clean...)
				data[message] = &pb.FlightData{DataHeader: clean[message].GetDataHeader(), DataBody: bad}
				require.NotPanics(t, func() {
					if _, err := readAll(data); err != nil {
						require.ErrorIs(t, err, errMalformed)
						refused++
					}
				}, "message %d, byte %d, %x", message, at, value)
			}
		}
	}
	require.Greater(t, refused, 100, "most offsets are checked")
}

// TestHeadersThatClaimTooMuchAreRefused changes 8 bytes at a time of the
// header of a compressed batch, which holds lengths, counts and offsets.
func TestNoByteOfAHeaderCanMakeAReaderPanic(t *testing.T) {
	batch := everyType(t)
	defer batch.Release()
	for _, clean := range [][]*pb.FlightData{send(t, batch), send(t, batch, ipc.WithLZ4())} {
		for message := range clean {
			header := clean[message].GetDataHeader()
			for at := 0; at+8 <= len(header); at += 8 {
				for _, value := range []uint64{1 << 33, 0xffffffffffffffff} {
					bad := append([]byte(nil), header...)
					binary.LittleEndian.PutUint64(bad[at:], value)
					data := append([]*pb.FlightData(nil), clean...)
					data[message] = &pb.FlightData{DataHeader: bad, DataBody: clean[message].GetDataBody()}
					require.NotPanics(t, func() { _, _ = readAll(data) }, "message %d, byte %d, %x", message, at, value)
				}
			}
		}
	}
}

func TestCompressedBuffersThatClaimToBeHugeAreRefusedBeforeTheyAreMade(t *testing.T) {
	batch := int64Batch(make([]int64, 1000)...)
	defer batch.Release()
	for _, opt := range []ipc.Option{ipc.WithLZ4(), ipc.WithZstd()} {
		data := send(t, batch, opt)
		for _, claim := range []int64{1 << 40, -2, maxInflationFactor<<20 + 1} {
			body := append([]byte(nil), data[1].GetDataBody()...)
			binary.LittleEndian.PutUint64(body, uint64(claim))
			_, err := readAll([]*pb.FlightData{data[0], {DataHeader: data[1].GetDataHeader(), DataBody: body}})
			require.ErrorIs(t, err, errMalformed)
			require.ErrorContains(t, err, "claims to be")
		}
	}
}

func TestFieldsNestedTooDeepAreRefusedBeforeTheyAreFollowed(t *testing.T) {
	nested := func(depth int) []byte {
		dt := arrow.DataType(arrow.PrimitiveTypes.Int8)
		for range depth {
			dt = arrow.ListOf(dt)
		}
		return flight.SerializeSchema(arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt}}, nil), memory.DefaultAllocator)
	}
	_, err := decodeSchema(nested(maxFieldDepth - 1))
	require.NoError(t, err)
	_, err = decodeSchema(nested(maxFieldDepth))
	require.ErrorContains(t, err, "nested deeper")
	_, err = decodeSchema(nested(10_000)) // it would exhaust the stack
	require.ErrorContains(t, err, "nested deeper")
}

// BenchmarkValidate has 64k rows of a column each.
func BenchmarkValidate(b *testing.B) {
	const rows = 64 << 10
	for _, dt := range []arrow.DataType{
		arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.BinaryTypes.StringView,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, arrow.ListOf(arrow.PrimitiveTypes.Int64),
	} {
		builder := array.NewBuilder(memory.DefaultAllocator, dt)
		for range rows {
			text := "a text that does not fit in place"
			if dt.ID() == arrow.INT64 {
				text = "7"
			} else if dt.ID() == arrow.LIST {
				text = "[1,2]"
			}
			require.NoError(b, builder.AppendValueFromString(text))
		}
		batch := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "x", Type: dt}}, nil), []arrow.Array{builder.NewArray()}, rows)
		var v Validator
		b.Run(dt.Name(), func(b *testing.B) {
			for b.Loop() {
				if err := v.Check(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSizesThatWrapRoundAreNotTakenForSmallOnes has values of every width in as
// many rows as a batch may have, and four bytes for them all.
func TestSizesThatWrapRoundAreNotTakenForSmallOnes(t *testing.T) {
	const most = 1<<31 - 1
	const wrapWidth, wrapRows = 1263665316, 1824726041 // their bits are 2^64 + 32
	widths := []int{most, wrapWidth}
	for w := 1; w < most; w = w*5/4 + 1 {
		widths = append(widths, w)
	}
	for _, width := range widths {
		for _, rows := range []int{most, most - 1, wrapRows, 1 << 30, 5} {
			dt := &arrow.FixedSizeBinaryType{ByteWidth: width}
			d := array.NewData(dt, rows, []*memory.Buffer{nil, memory.NewBufferBytes([]byte("four"))}, nil, 0, 0)
			require.Error(t, new(Validator).array(d, dt), "%d rows of %d bytes", rows, width)
		}
	}
}

// TestWhatFieldsShareIsCountedForEach has a schema of some megabytes whose
// fields all refer to one long text, which Arrow's reader copies for each: some
// gigabytes.
func TestWhatFieldsShareIsCountedForEach(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	const fields = 4096
	children := make([]arrow.Field, 1<<10)
	for i := range children {
		children[i] = arrow.Field{Name: fmt.Sprint(i), Type: arrow.PrimitiveTypes.Int8}
	}
	first := map[string]arrow.Field{
		"name":     {Name: long, Type: arrow.PrimitiveTypes.Int8},
		"value":    {Name: "n", Type: arrow.PrimitiveTypes.Int8, Metadata: arrow.NewMetadata([]string{"key"}, []string{long})},
		"key":      {Name: "n", Type: arrow.PrimitiveTypes.Int8, Metadata: arrow.NewMetadata([]string{long}, []string{"value"})},
		"zone":     {Name: "n", Type: &arrow.TimestampType{TimeZone: long}},
		"children": {Name: "n", Type: arrow.StructOf(children...)},
	}
	for name, field := range first {
		all := []arrow.Field{field}
		for range fields - 1 {
			all = append(all, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int8})
		}
		data := flight.SerializeSchema(arrow.NewSchema(all, nil), memory.DefaultAllocator)
		_, err := decodeSchema(data)
		require.NoError(t, err, name)
		header := data[8:]
		v := &verifier{buf: header, tablesLeft: len(header), bytesLeft: len(header)}
		at, n := v.vector(v.ref(v.table(v.offset(0)), 2), 1, 4)
		require.Equal(t, fields, n)
		shared := v.offset(at)
		for i := range n {
			binary.LittleEndian.PutUint32(header[at+4*i:], uint32(shared-at-4*i))
		}
		require.False(t, v.invalid)
		_, err = decodeSchema(data)
		require.ErrorIs(t, err, errMalformed, name)
		require.NotErrorIs(t, err, io.EOF)
	}
}
