package valuegen

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// dictionary may have NULLs among its values and among its indices.
func (g Gen) dictionary(n, depth int) (arrow.Array, []any) {
	values, of := Gen{g.Rand, g.whole && g.IntN(2) == 0}.Exactly(3, depth)
	b := array.NewInt16Builder(memory.DefaultAllocator)
	defer b.Release()
	want := make([]any, n)
	for i := range want {
		if g.isNull() {
			b.AppendNull()
			continue
		}
		at := g.IntN(3)
		b.Append(int16(at))
		want[i] = of[at]
	}
	t := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: values.DataType()}
	return array.NewDictionaryArray(t, b.NewArray(), values), want
}

func (g Gen) runs(n, depth int) (arrow.Array, []any) {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	var lengths []int
	for end := 0; end < n; {
		length := 1 + g.IntN(3)
		end += length
		lengths = append(lengths, length)
		b.Append(int32(end))
	}
	values, of := g.Exactly(len(lengths), depth)
	var want []any
	for i, length := range lengths {
		for range length {
			want = append(want, of[i])
		}
	}
	return array.NewRunEndEncodedArray(b.NewArray(), values, n, 0), want[:n]
}

func (g Gen) union(n, depth int) (arrow.Array, []any) {
	const children = 2
	ids := []arrow.UnionTypeCode{5, 7}
	var arrays []arrow.Array
	var of [][]any
	var fields []arrow.Field
	for i := range children {
		col, want := g.Exactly(max(n, 1), depth)
		arrays, of = append(arrays, col), append(of, want)
		fields = append(fields, arrow.Field{Name: fmt.Sprint("m", i), Type: col.DataType(), Nullable: true})
	}
	codes, offsets, want := make([]byte, n), make([]int32, n), make([]any, n)
	for i := range want {
		child := g.IntN(children)
		codes[i] = byte(ids[child])
		offsets[i] = int32(g.IntN(n))
		want[i] = of[child][offsets[i]]
	}
	if g.IntN(2) == 0 {
		for i, code := range codes {
			want[i] = of[(int(code)-5)/2][i]
		}
		return array.NewSparseUnion(arrow.SparseUnionOf(fields, ids), n, arrays, memory.NewBufferBytes(codes), 0), want
	}
	return array.NewDenseUnion(arrow.DenseUnionOf(fields, ids), n, arrays, memory.NewBufferBytes(codes),
		memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), 0), want
}

// extensionType is an extension as a program that registers it has it.
type extensionType struct {
	arrow.ExtensionBase
	name string
}

type extensionArray struct{ array.ExtensionArrayBase }

func (*extensionType) ArrayType() reflect.Type { return reflect.TypeFor[extensionArray]() }
func (t *extensionType) ExtensionName() string { return t.name }
func (*extensionType) Serialize() string       { return "" }
func (t *extensionType) String() string        { return t.name }
func (t *extensionType) Deserialize(storage arrow.DataType, _ string) (arrow.ExtensionType, error) {
	return &extensionType{arrow.ExtensionBase{Storage: storage}, t.name}, nil
}

func (t *extensionType) ExtensionEquals(o arrow.ExtensionType) bool {
	return t.name == o.ExtensionName() && arrow.TypeEqual(t.Storage, o.StorageType())
}

// Extension is storage as an extension type of that name.
func Extension(name string, storage arrow.Array) arrow.Array {
	return array.NewExtensionArrayWithStorage(&extensionType{arrow.ExtensionBase{Storage: storage.DataType()}, name}, storage)
}

func (g Gen) extension(n, depth int) (arrow.Array, []any) {
	switch g.IntN(3) {
	case 0:
		storage, want := g.build(arrow.PrimitiveTypes.Int8, n, func(b array.Builder) any {
			v := int8(g.IntN(3))
			b.(*array.Int8Builder).Append(v)
			return v != 0
		})
		return Extension("arrow.bool8", storage), want
	case 1:
		storage, want := g.build(&arrow.FixedSizeBinaryType{ByteWidth: 16}, n, func(b array.Builder) any {
			id := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, g.Uint64()), g.Uint64())
			b.(*array.FixedSizeBinaryBuilder).Append(id)
			return uuid(id)
		})
		return Extension("arrow.uuid", storage), want
	default:
		storage, want := g.Exactly(n, depth)
		if storage.DataType().ID() == arrow.DICTIONARY || storage.DataType().ID() == arrow.EXTENSION {
			return storage, want // arrow-go cannot make an extension of these
		}
		return Extension("flightpool.other", storage), want
	}
}
