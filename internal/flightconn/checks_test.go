package flightconn

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func i32s(values ...int32) []byte { return arrow.Int32Traits.CastToBytes(values) }
func i64s(values ...int64) []byte { return arrow.Int64Traits.CastToBytes(values) }

// raw is an array of n rows from offset, made of buffers that nobody has
// looked at.
func raw(t arrow.DataType, offset, n int, children []arrow.ArrayData, buffers ...[]byte) arrow.ArrayData {
	held := make([]*memory.Buffer, len(buffers))
	for i, b := range buffers {
		if b != nil {
			held[i] = memory.NewBufferBytes(b)
		}
	}
	return array.NewData(t, n, held, children, -1, offset)
}

func text(n int) arrow.ArrayData {
	offsets := make([]int32, n+1)
	for i := range offsets {
		offsets[i] = int32(i)
	}
	return raw(arrow.BinaryTypes.String, 0, n, nil, nil, i32s(offsets...), make([]byte, n))
}

func ints32(values ...int32) arrow.ArrayData {
	return raw(arrow.PrimitiveTypes.Int32, 0, len(values), nil, nil, i32s(values...))
}

// extension is a type of the user's, stored as another.
type extension struct {
	arrow.ExtensionType
	storage arrow.DataType
}

func (e extension) StorageType() arrow.DataType { return e.storage }

// view is the header of a string that is not in place.
func view(size, buffer, offset int32) []byte { return i32s(size, 0x61616161, buffer, offset) }

// TestArraysAreFoundValidExactlyWhenAllTheirValuesAreThere has each check at
// its boundary: the last array that is right, and the first that is not.
func TestArraysAreFoundValidExactlyWhenAllTheirValuesAreThere(t *testing.T) {
	i32, str := arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String
	kids := func(c ...arrow.ArrayData) []arrow.ArrayData { return c }
	dict := func(index arrow.DataType, values arrow.ArrayData, n int, bitmap, indices []byte) arrow.ArrayData {
		d := raw(&arrow.DictionaryType{IndexType: index, ValueType: values.DataType()}, 0, n, nil, bitmap, indices).(*array.Data)
		d.SetDictionary(values)
		return d
	}
	dense := arrow.DenseUnionOf([]arrow.Field{{Name: "i", Type: i32}, {Name: "s", Type: str}}, []arrow.UnionTypeCode{3, 5})
	sparse := arrow.SparseUnionOf([]arrow.Field{{Name: "i", Type: i32}, {Name: "s", Type: str}}, []arrow.UnionTypeCode{3, 5})
	json := extension{storage: str}
	ree := func(ends arrow.DataType) arrow.DataType { return arrow.RunEndEncodedOf(ends, str) }
	for name, tc := range map[string]struct {
		data arrow.ArrayData
		ok   bool
	}{
		"fixed, all there":              {raw(i32, 1, 2, nil, nil, i32s(1, 2, 3)), true},
		"fixed, one short":              {raw(i32, 1, 2, nil, nil, i32s(1, 2)), false},
		"bits, all there":               {raw(arrow.FixedWidthTypes.Boolean, 0, 8, nil, nil, []byte{1}), true},
		"bits, one short":               {raw(arrow.FixedWidthTypes.Boolean, 1, 8, nil, nil, []byte{1}), false},
		"validity, all there":           {raw(i32, 0, 8, nil, []byte{0}, make([]byte, 32)), true},
		"validity, one short":           {raw(i32, 1, 8, nil, []byte{0}, make([]byte, 36)), false},
		"fewer rows than none":          {raw(i32, 2, -1, nil, nil, i32s(1, 2)), false},
		"rows from too far":             {raw(i32, math.MaxInt, 1, nil, nil, i32s(1, 2)), false},
		"a type of nobody's":            {raw(struct{ arrow.DataType }{i32}, 0, 1, nil, nil, i32s(1)), false},
		"an extension, all there":       {raw(json, 0, 1, nil, nil, i32s(0, 1), []byte("7")), true},
		"an extension beyond its bytes": {raw(json, 0, 1, nil, nil, i32s(0, 2), []byte("7")), false},
		"rows from nowhere":             {raw(i32, -1, 1, nil, nil, i32s(1, 2)), false},
		"no buffers, no rows":           {raw(str, 0, 0, nil), true},
		"no buffers, a row":             {raw(str, 0, 1, nil), false},
		"nulls need no buffers":         {raw(arrow.Null, 0, 9, nil), true},
		"text, all there":               {raw(str, 1, 2, nil, nil, i32s(0, 1, 1, 3), []byte("abc")), true},
		"text, an offset short":         {raw(str, 1, 2, nil, nil, i32s(0, 1, 1), []byte("abc")), false},
		"text beyond its bytes":         {raw(str, 0, 2, nil, nil, i32s(0, 1, 4), []byte("abc")), false},
		"text that shrinks":             {raw(str, 0, 2, nil, nil, i32s(1, 0, 2), []byte("abc")), false},
		"text from below":               {raw(str, 0, 1, nil, nil, i32s(-1, 2), []byte("abc")), false},
		"long text, all there":          {raw(arrow.BinaryTypes.LargeString, 0, 1, nil, nil, i64s(0, 3), []byte("abc")), true},
		"long text, half its offset":    {raw(arrow.BinaryTypes.LargeString, 0, 1, nil, nil, i32s(0, 0, 3), []byte("abc")), false},
		"long text beyond its bytes":    {raw(arrow.BinaryTypes.LargeBinary, 0, 1, nil, nil, i64s(0, 4), []byte("abc")), false},
		"views, in place":               {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(12, 9, 9)), true},
		"views, too few":                {raw(arrow.BinaryTypes.StringView, 0, 2, nil, nil, view(12, 9, 9)), false},
		"views, all there":              {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(13, 0, 1), make([]byte, 14)), true},
		"views, a byte short":           {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(13, 0, 2), make([]byte, 14)), false},
		"views, another buffer":         {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(13, 1, 0), make([]byte, 14)), false},
		"views, no buffer":              {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(13, -1, 0), make([]byte, 14)), false},
		"views, from below":             {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(13, 0, -1), make([]byte, 14)), false},
		"views, negative":               {raw(arrow.BinaryTypes.StringView, 0, 1, nil, nil, view(-1, 0, 0), make([]byte, 14)), false},
		"views, out of bounds but NULL": {raw(arrow.BinaryTypes.StringView, 0, 1, nil, []byte{0}, view(13, 9, 0)), true},
		"views, NULL elsewhere":         {raw(arrow.BinaryTypes.StringView, 0, 1, nil, []byte{0xff}, view(13, 9, 0)), false},
		"list, all there":               {raw(arrow.ListOf(i32), 0, 2, kids(ints32(1, 2, 3)), nil, i32s(0, 1, 3)), true},
		"list beyond its values":        {raw(arrow.ListOf(i32), 0, 2, kids(ints32(1, 2)), nil, i32s(0, 1, 3)), false},
		"list without values":           {raw(arrow.ListOf(i32), 0, 1, nil, nil, i32s(0, 0)), false},
		"list of bad values":            {raw(arrow.ListOf(str), 0, 1, kids(raw(str, 0, 1, nil, nil, i32s(0, 9), []byte("a"))), nil, i32s(0, 0)), false},
		"large list, all there":         {raw(arrow.LargeListOf(i32), 0, 1, kids(ints32(1)), nil, i64s(0, 1)), true},
		"large list beyond":             {raw(arrow.LargeListOf(i32), 0, 1, kids(ints32(1)), nil, i64s(0, 2)), false},
		"list views, anywhere":          {raw(arrow.ListViewOf(i32), 0, 2, kids(ints32(1, 2, 3)), nil, i32s(2, 0), i32s(1, 3)), true},
		"list views, beyond":            {raw(arrow.ListViewOf(i32), 0, 2, kids(ints32(1, 2, 3)), nil, i32s(3, 0), i32s(1, 3)), false},
		"list views, from below":        {raw(arrow.ListViewOf(i32), 0, 1, kids(ints32(1)), nil, i32s(-1), i32s(1)), false},
		"list views, negative":          {raw(arrow.ListViewOf(i32), 0, 1, kids(ints32(1)), nil, i32s(1), i32s(-1)), false},
		"list views, no offsets":        {raw(arrow.ListViewOf(i32), 0, 2, kids(ints32(1)), nil, i32s(0), i32s(1, 1)), false},
		"list views, no sizes":          {raw(arrow.ListViewOf(i32), 0, 2, kids(ints32(1)), nil, i32s(0, 0), i32s(1)), false},
		"large list views":              {raw(arrow.LargeListViewOf(i32), 0, 1, kids(ints32(1)), nil, i64s(0), i64s(1)), true},
		"large list views, beyond":      {raw(arrow.LargeListViewOf(i32), 0, 1, kids(ints32(1)), nil, i64s(math.MaxInt64), i64s(1)), false},
		"fixed lists, all there":        {raw(arrow.FixedSizeListOf(2, i32), 1, 1, kids(ints32(1, 2, 3, 4)), nil), true},
		"fixed lists, one short":        {raw(arrow.FixedSizeListOf(2, i32), 1, 1, kids(ints32(1, 2, 3)), nil), false},
		"struct, all there":             {raw(arrow.StructOf(arrow.Field{Name: "a", Type: i32}), 1, 1, kids(ints32(1, 2)), nil), true},
		"struct, one short":             {raw(arrow.StructOf(arrow.Field{Name: "a", Type: i32}), 1, 2, kids(ints32(1, 2)), nil), false},
		"struct without its field":      {raw(arrow.StructOf(arrow.Field{Name: "a", Type: i32}), 0, 0, nil, nil), false},
		"dense, all there":              {raw(dense, 0, 2, kids(ints32(7), text(2)), nil, []byte{3, 5}, i32s(0, 1)), true},
		"dense, out of bounds":          {raw(dense, 0, 2, kids(ints32(7), text(2)), nil, []byte{3, 5}, i32s(1, 1)), false},
		"dense, from below":             {raw(dense, 0, 1, kids(ints32(7), text(2)), nil, []byte{3}, i32s(-1)), false},
		"dense, no offset":              {raw(dense, 0, 2, kids(ints32(7), text(2)), nil, []byte{3, 5}, i32s(0)), false},
		"dense, no code":                {raw(dense, 0, 2, kids(ints32(7), text(2)), nil, []byte{3}, i32s(0, 1)), false},
		"dense, another's code":         {raw(dense, 0, 1, kids(ints32(7), text(2)), nil, []byte{4}, i32s(0)), false},
		"dense, a high code":            {raw(dense, 0, 1, kids(ints32(7), text(2)), nil, []byte{200}, i32s(0)), false},
		"dense, the first that is none": {raw(dense, 0, 1, kids(ints32(7), text(2)), nil, []byte{128}, i32s(0)), false},
		"dense, no rows, no buffers":    {raw(dense, 0, 0, kids(ints32(), text(0)), nil, nil, nil), true},
		"dense, a child less":           {raw(dense, 0, 1, kids(ints32(7)), nil, []byte{5}, i32s(0)), false},
		"sparse, all there":             {raw(sparse, 0, 2, kids(ints32(7, 8), text(2)), nil, []byte{3, 5}), true},
		"sparse, one short":             {raw(sparse, 0, 2, kids(ints32(7, 8), text(1)), nil, []byte{3, 5}), false},
		"dictionary, all there":         {dict(arrow.PrimitiveTypes.Int8, text(2), 2, nil, []byte{0, 1}), true},
		"dictionary, out of bounds":     {dict(arrow.PrimitiveTypes.Int8, text(2), 2, nil, []byte{0, 2}), false},
		"dictionary, beyond but NULL":   {dict(arrow.PrimitiveTypes.Int8, text(2), 2, []byte{1}, []byte{0, 2}), true},
		"dictionary, below":             {dict(arrow.PrimitiveTypes.Int8, text(200), 1, nil, []byte{0x80}), false},
		"dictionary, its largest":       {dict(arrow.PrimitiveTypes.Int8, text(200), 1, nil, []byte{0x7f}), true},
		"dictionary, unsigned":          {dict(arrow.PrimitiveTypes.Uint8, text(200), 1, nil, []byte{0x80}), true},
		"dictionary, 2 bytes":           {dict(arrow.PrimitiveTypes.Uint16, text(2), 1, nil, []byte{1, 0}), true},
		"dictionary, 2 bytes, beyond":   {dict(arrow.PrimitiveTypes.Int16, text(2), 1, nil, []byte{0, 1}), false},
		"dictionary, 4 bytes":           {dict(i32, text(2), 1, nil, i32s(1)), true},
		"dictionary, 4 bytes, beyond":   {dict(arrow.PrimitiveTypes.Uint32, text(2), 1, nil, i32s(-1)), false},
		"dictionary, 8 bytes":           {dict(arrow.PrimitiveTypes.Int64, text(2), 1, nil, i64s(1)), true},
		"dictionary, 8 bytes, beyond":   {dict(arrow.PrimitiveTypes.Uint64, text(2), 1, nil, i64s(-1)), false},
		"dictionary, an index short":    {dict(arrow.PrimitiveTypes.Int8, text(2), 2, nil, []byte{0}), false},
		"dictionary, no integers":       {dict(arrow.PrimitiveTypes.Float32, text(2), 1, nil, i32s(0)), false},
		"dictionary of bad values":      {dict(i32, raw(str, 0, 1, nil, nil, i32s(0, 9), []byte("a")), 1, nil, i32s(0)), false},
		"no dictionary":                 {raw(&arrow.DictionaryType{IndexType: i32, ValueType: str}, 0, 0, nil, nil, nil), false},
		"runs":                          {raw(ree(i32), 1, 3, kids(ints32(1, 4), text(2)), nil), true},
		"runs, one row short":           {raw(ree(i32), 1, 4, kids(ints32(1, 4), text(2)), nil), false},
		"runs that do not grow":         {raw(ree(i32), 0, 4, kids(ints32(4, 4), text(2)), nil), false},
		"runs of nothing":               {raw(ree(i32), 0, 1, kids(ints32(0, 1), text(2)), nil), false},
		"runs without values":           {raw(ree(i32), 0, 4, kids(ints32(1, 4), text(1)), nil), false},
		"runs, a child less":            {raw(ree(i32), 0, 0, kids(ints32()), nil), false},
		"runs, 8 bytes":                 {raw(ree(arrow.PrimitiveTypes.Int64), 0, 1, kids(raw(arrow.PrimitiveTypes.Int64, 0, 1, nil, nil, i64s(1)), text(1)), nil), true},
		"runs, 2 bytes":                 {raw(ree(arrow.PrimitiveTypes.Int16), 0, 1, kids(raw(arrow.PrimitiveTypes.Int16, 0, 1, nil, nil, []byte{1, 0}), text(1)), nil), true},
		"runs, 2 bytes, short":          {raw(ree(arrow.PrimitiveTypes.Int16), 0, 2, kids(raw(arrow.PrimitiveTypes.Int16, 0, 1, nil, nil, []byte{1, 0}), text(1)), nil), false},
		"runs, of a byte":               {raw(ree(arrow.PrimitiveTypes.Int8), 0, 1, kids(raw(arrow.PrimitiveTypes.Int8, 0, 1, nil, nil, []byte{1}), text(1)), nil), false},
		"no runs, no rows":              {raw(ree(i32), 0, 0, kids(ints32(), text(0)), nil), true},
	} {
		err := new(Validator).array(tc.data, tc.data.DataType())
		if tc.ok {
			require.NoError(t, err, name)
		} else {
			require.Error(t, err, name)
		}
	}
}

// TestManyDictionariesAreForgotten: a Validator looks at each dictionary once,
// and remembers a bounded number of them.
func TestManyDictionariesAreForgotten(t *testing.T) {
	var v Validator
	for range 3 * maxKnownDictionaries {
		d := raw(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, 0, 1, nil, nil, i32s(0)).(*array.Data)
		d.SetDictionary(text(1))
		require.NoError(t, v.array(d, d.DataType()))
		require.Contains(t, v.dictionaries, d.Dictionary())
		require.LessOrEqual(t, len(v.dictionaries), maxKnownDictionaries)
	}
}

func TestOptionsThatCanBeSent(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  any
	}{
		{"a", "a"},
		{true, true},
		{float32(1.5), 1.5},
		{2.5, 2.5},
		{7, int64(7)},
		{int32(-7), int64(-7)},
		{int64(math.MinInt64), int64(math.MinInt64)},
		{uint32(math.MaxUint32), int64(math.MaxUint32)},
		{uint64(math.MaxInt64), int64(math.MaxInt64)},
		{[]string{"a", "b"}, []string{"a", "b"}},
	} {
		got, err := optionValue(tc.value)
		require.NoError(t, err, "%T", tc.value)
		switch v := got.GetOptionValue().(type) {
		case *pb.SessionOptionValue_StringValue:
			require.Equal(t, tc.want, v.StringValue)
		case *pb.SessionOptionValue_BoolValue:
			require.Equal(t, tc.want, v.BoolValue)
		case *pb.SessionOptionValue_DoubleValue:
			require.InDelta(t, tc.want, v.DoubleValue, 0)
		case *pb.SessionOptionValue_Int64Value:
			require.Equal(t, tc.want, v.Int64Value)
		case *pb.SessionOptionValue_StringListValue_:
			require.Equal(t, tc.want, v.StringListValue.GetValues())
		default:
			require.Fail(t, "no value", "%T", tc.value)
		}
	}
	unset, err := optionValue(nil)
	require.NoError(t, err)
	require.Nil(t, unset.GetOptionValue())
	for _, value := range []any{uint64(math.MaxInt64 + 1), int8(1), []int{1}, struct{}{}} {
		_, err := optionValue(value)
		require.ErrorContains(t, err, "cannot be sent", "%T", value)
	}
}

func TestASchemaIsDecodedWithOrWithoutItsMark(t *testing.T) {
	marked := flight.SerializeSchema(int64Schema, memory.DefaultAllocator)
	require.Equal(t, uint32(0xffffffff), binary.LittleEndian.Uint32(marked))
	for _, data := range [][]byte{marked, marked[4:]} {
		got, err := decodeSchema(data)
		require.NoError(t, err)
		require.True(t, got.Equal(int64Schema))
	}
	none, err := decodeSchema(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	for n := 1; n < 12; n++ {
		_, err := decodeSchema(marked[:n])
		require.ErrorIs(t, err, errMalformed, n)
	}
	_, err = decodeSchema(marked[:len(marked)/2])
	require.ErrorContains(t, err, "cut off")
	_, err = decodeSchema([]byte{0, 0, 0, 0}) // a header of no bytes
	require.NoError(t, err)
}

func TestColumnsNamedAsOtherParametersAreNotSent(t *testing.T) {
	named := func(names ...string) *arrow.Schema {
		fields := make([]arrow.Field, len(names))
		for i, name := range names {
			fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		}
		return arrow.NewSchema(fields, nil)
	}
	for _, tc := range []struct {
		told, given []string
		refused     bool
	}{
		{[]string{"a", "b"}, []string{"b", "a"}, true}, {[]string{"a", "b", "c"}, []string{"a", "c", "b"}, true},
		{[]string{"a", "b"}, []string{"a", "b"}, false}, {[]string{"a", "b"}, []string{"x", "a"}, false}, {[]string{"a", "b"}, []string{"2", "1"}, false},
		{[]string{"2", "1"}, []string{"1", "2"}, false}, {[]string{"$2", "$1"}, []string{"$1", "$2"}, false}, {[]string{"a", "a"}, []string{"a", "a"}, false},
		{[]string{"a", "b", "a"}, []string{"b", "a", "a"}, false},
	} {
		err := checkParamNames(named(tc.told...), named(tc.given...))
		if tc.refused {
			require.ErrorContains(t, err, "parameters go by their position", "%v", tc)
		} else {
			require.NoError(t, err, "%v", tc)
		}
	}
}

func TestParametersAreCountedWhereTheServerSaysHowMany(t *testing.T) {
	batch := int64Batch(1)
	defer batch.Release()
	none := int64Batch()
	defer none.Release()
	two := arrow.NewSchema(append(int64Schema.Fields(), int64Schema.Fields()...), nil)
	require.NoError(t, CheckParams(nil, batch))
	require.NoError(t, CheckParams(arrow.NewSchema(nil, nil), batch))
	require.NoError(t, CheckParams(int64Schema, batch))
	require.ErrorContains(t, CheckParams(two, batch), "takes 2 parameters, not 1")
	require.ErrorContains(t, CheckParams(nil, none), "no rows")
}

// Servers take rows without columns for no parameters, and run the statement once.
func TestRowsWithoutColumnsAreNoExecutions(t *testing.T) {
	rows := func(n int64) arrow.RecordBatch { return array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, n) }
	require.NoError(t, CheckParams(nil, rows(1)))
	for _, told := range []*arrow.Schema{nil, arrow.NewSchema(nil, nil)} {
		require.ErrorContains(t, CheckParams(told, rows(3)), "the parameters have 3 rows and no column")
	}
}

func TestWhatCanBeSentIsLookedForEverywhere(t *testing.T) {
	inner := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	outer := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: inner}
	behind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.StructOf(arrow.Field{Name: "a", Type: inner})}
	for _, dt := range []arrow.DataType{
		inner, behind, arrow.ListOf(inner), arrow.PrimitiveTypes.Int8, &storedAs{arrow.ExtensionBase{Storage: inner}},
	} {
		require.NoError(t, checkSendableType(dt), "%v", dt)
	}
	for _, dt := range []arrow.DataType{
		outer, arrow.ListOf(outer), arrow.MapOf(arrow.BinaryTypes.String, outer), &storedAs{arrow.ExtensionBase{Storage: outer}},
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: &storedAs{arrow.ExtensionBase{Storage: inner}}},
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.ListOf(outer)},
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, outer),
	} {
		require.ErrorContains(t, checkSendableType(dt), "cannot be sent", "%v", dt)
	}
}

// storedAs is an extension type of any storage.
type storedAs struct{ arrow.ExtensionBase }

func (*storedAs) ArrayType() (none reflect.Type)           { return nil }
func (*storedAs) ExtensionName() string                    { return "stored-as" }
func (*storedAs) ExtensionEquals(arrow.ExtensionType) bool { return false }
func (*storedAs) Serialize() string                        { return "" }
func (*storedAs) Deserialize(arrow.DataType, string) (t arrow.ExtensionType, err error) {
	return nil, nil
}

func TestTheStateIsFoundInTheServersWords(t *testing.T) {
	for text, want := range map[string]string{
		"SQLSTATE 42P01: no such table":     "42P01",
		"sql state: 22012":                  "22012",
		`{"sqlState":"40001"}`:              "40001",
		"SQLSTATE(HY000)":                   "HY000",
		"conflict [40001] at row 2":         "40001",
		"[ERROR] of [23505]":                "23505",
		"[ERROR] of no state":               "",
		"sqlstate 42P011":                   "",
		"the row [1234] and [123456] of it": "",
		"":                                  "",
	} {
		require.Equal(t, want, sqlState(text), "%q", text)
	}
}

func TestWhatAServerLacksIsToldFromWhatItRefuses(t *testing.T) {
	for err, want := range map[error]bool{
		status.Error(codes.Unimplemented, "x"):                                 true,
		status.Error(codes.InvalidArgument, "x: defined request is invalid"):   true,
		status.Error(codes.InvalidArgument, "the defined request is invalid:"): true,
		status.Error(codes.InvalidArgument, "wrong argument"):                  false,
		status.Error(codes.Internal, "the defined request is invalid"):         false,
		errors.New("the defined request is invalid"):                           false,
		nil: false,
	} {
		require.Equal(t, want, isUnsupported(err), "%v", err)
	}
}

func TestAConfigIsRefusedWithEveryFault(t *testing.T) {
	good := Config{Address: "host:1"}
	_, err := good.resolve()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"network":             {func(c *Config) { c.Network = "udp" }, "neither tcp nor unix"},
		"no address":          {func(c *Config) { c.Address = "" }, "Address: is required"},
		"no port":             {func(c *Config) { c.Address = "host" }, "Address"},
		"no port, a dialer":   {func(c *Config) { c.Address, c.Dialer = "host", network{}.dial }, ""},
		"a socket":            {func(c *Config) { c.Network, c.Address = "unix", "/x" }, ""},
		"both":                {func(c *Config) { c.Basic, c.Authorization = &UserPass{}, bearer("x") }, "excludes Basic"},
		"dial":                {func(c *Config) { c.DialTimeout = -1 }, "DialTimeout: cannot be off"},
		"message":             {func(c *Config) { c.MaxMessage = -1 }, "MaxMessage: cannot be off"},
		"request":             {func(c *Config) { c.RequestLimit = minRequestLimit - 1 }, "RequestLimit"},
		"request, the least":  {func(c *Config) { c.RequestLimit = minRequestLimit }, ""},
		"request, negative":   {func(c *Config) { c.RequestLimit = -1 }, "RequestLimit"},
		"a cancel's name":     {func(c *Config) { c.CancelActions = []string{"x", ""} }, "CancelActions: name 1 is empty"},
		"prefetch may be off": {func(c *Config) { c.Prefetch = -1 }, ""},
	} {
		cfg := good
		tc.change(&cfg)
		got, err := cfg.resolve()
		if tc.want == "" {
			require.NoError(t, err, name)
			require.Positive(t, got.Prefetch)
			continue
		}
		require.ErrorContains(t, err, tc.want, name)
	}
	_, err = NewEndpoint(Config{Network: "udp", DialTimeout: -1})
	require.ErrorContains(t, err, "Network")
	require.ErrorContains(t, err, "Address")
	require.ErrorContains(t, err, "DialTimeout")
}

// TestAnUnknownIDLooksLikeTheServers: of the same length and alphabet, and never
// one that it has given out.
func TestAnUnknownIDLooksLikeTheServers(t *testing.T) {
	require.Equal(t, backend.TxID("9223372036854775807"), unknownTxID("17"))
	require.Equal(t, backend.TxID("9223372036854775807"), unknownTxID("0"))
	for _, id := range []backend.TxID{"1f-0a9f3b:AF-Z", "tx_00112233", "{abcdef01}", "ABCDEF0912"} {
		for range 50 {
			got := unknownTxID(id)
			require.Len(t, string(got), len(id))
			for i := range id {
				a, b := id[i], got[i]
				switch {
				case a >= '0' && a <= '9', a >= 'a' && a <= 'f':
					require.Contains(t, "0123456789abcdef", string(b), "%q of %q", got, id)
				case a >= 'A' && a <= 'F':
					require.Contains(t, "0123456789", string(b), "%q of %q", got, id)
				case a > ' ' && a < 0x7f:
					require.Equal(t, a, b, "%q of %q", got, id)
				}
			}
		}
	}
}

// TestACatalogueCallThatMakesNoSenseIsTheCallersFault: it is named, and nothing
// is sent.
func TestACatalogueCallThatMakesNoSenseIsTheCallersFault(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		c := b.open()
		plans := b.fake.plans.Load()
		empty := ""
		for kind, want := range map[backend.MetadataKind]string{
			backend.MetadataPrimaryKeys: "a table name is needed", backend.MetadataImportedKeys: "a table name is needed",
			backend.MetadataExportedKeys: "a table name is needed", backend.MetadataTypeInfo + 1: "no such call",
		} {
			for _, table := range []*string{nil, &empty} {
				_, err := c.Metadata(b.Context(), backend.MetadataRequest{Kind: kind, Table: table}, backend.Call{})
				require.ErrorContains(b, err, want)
				require.Equal(b, kind.String(), failure(b, err).Op)
				require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
				require.True(b, failure(b, err).Unsent)
			}
		}
		require.Equal(b, plans, b.fake.plans.Load())
	})
}

// TestTheControlChannelIsKeptAndEndsWithItsEndpoint.
func TestTheControlChannelIsKeptAndEndsWithItsEndpoint(t *testing.T) {
	e, err := NewEndpoint(Config{Address: here, Dialer: func(context.Context, string) (net.Conn, error) { return nil, errClosed }})
	require.NoError(t, err)
	first, _, err := e.control("")
	require.NoError(t, err)
	again, _, err := e.control("")
	require.NoError(t, err)
	require.Same(t, first, again)
	other, _, err := e.control("elsewhere:1")
	require.NoError(t, err)
	require.NotSame(t, first, other)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	_, _, err = e.control("")
	require.ErrorIs(t, err, errClosed)
}
