package session

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A column under test comes with the values that it stands for, made beside it
// and not read from it: nil, bool, number, notANumber, text, blob, moment,
// ticks, untyped, uuid, sequence, members or pairs.
type (
	number     struct{ *big.Rat }
	notANumber float64
	text       string
	blob       string
	moment     struct{ time.Time }
	ticks      struct{ *big.Int } // nanoseconds
	untyped    struct{}           // an interval
	uuid       string             // its bytes
	sequence   []any
	members    []any // of a struct, called a, b, c …
	pairs      [][2]any
)

// valueGen makes columns at random.
type valueGen struct {
	*rand.Rand
	whole bool // no value is marked NULL, as Arrow demands of keys
}

// isNull decides whether a value is marked NULL.
func (g valueGen) isNull() bool { return g.IntN(5) == 0 && !g.whole }

// column is n values of a random type, nested at most so deep.
func (g valueGen) column(n, depth int) (arrow.Array, []any) {
	const scalars, encodings, nested = 11, 5, 4
	kinds := scalars
	if depth > 0 {
		kinds += encodings + nested
	}
	col, want := g.columnOf(g.IntN(kinds), n, depth)
	if n > 1 && g.IntN(4) == 0 { // a slice begins elsewhere in all of its buffers
		from := g.IntN(n)
		return array.NewSlice(col, int64(from), int64(n)), want[from:]
	}
	return col, want
}

func (g valueGen) columnOf(kind, n, depth int) (arrow.Array, []any) {
	switch kind {
	case 0:
		return g.integers(n)
	case 1:
		return g.floats(n)
	case 2:
		return g.fixed(n)
	case 3, 4:
		return g.texts(n)
	case 5:
		return g.blobs(n)
	case 6, 7:
		return g.times(n)
	case 8:
		return g.spans(n)
	case 9, 10:
		return g.decimals(n)
	case 11:
		return g.dictionary(n, depth-1)
	case 12:
		return g.runs(n, depth-1)
	case 13, 14:
		return g.union(n, depth-1)
	case 15:
		return g.extension(n, depth-1)
	case 16, 17:
		return g.list(n, depth-1)
	case 18:
		return g.structs(n, depth-1)
	default:
		return g.maps(n, depth-1)
	}
}

// exactly is a column of at least n values, cut to n.
func (g valueGen) exactly(n, depth int) (arrow.Array, []any) {
	for {
		if col, want := g.column(n+g.IntN(3), depth); col.Len() >= n {
			return array.NewSlice(col, 0, int64(n)), want[:n]
		}
	}
}

// build appends n values, some of them NULL.
func (g valueGen) build(t arrow.DataType, n int, one func(b array.Builder) any) (arrow.Array, []any) {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	want := make([]any, n)
	for i := range want {
		if g.isNull() {
			b.AppendNull()
		} else {
			want[i] = one(b)
		}
	}
	return b.NewArray(), want
}

// integer leans to the edges of types.
func (g valueGen) integer() int64 {
	switch g.IntN(4) {
	case 0:
		return int64(g.IntN(300) - 150)
	case 1:
		return int64(1)<<g.IntN(63) + int64(g.IntN(3)-1)
	case 2:
		return -(int64(1) << g.IntN(63)) - int64(g.IntN(2))
	default:
		return int64(g.Uint64())
	}
}

func integral(v int64) any { return number{new(big.Rat).SetInt64(v)} }

func (g valueGen) integers(n int) (arrow.Array, []any) {
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
	}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Int8Builder:
			b.Append(int8(v))
			return integral(int64(int8(v)))
		case *array.Int16Builder:
			b.Append(int16(v))
			return integral(int64(int16(v)))
		case *array.Int32Builder:
			b.Append(int32(v))
			return integral(int64(int32(v)))
		case *array.Int64Builder:
			b.Append(v)
			return integral(v)
		case *array.Uint8Builder:
			b.Append(uint8(v))
			return integral(int64(uint8(v)))
		case *array.Uint16Builder:
			b.Append(uint16(v))
			return integral(int64(uint16(v)))
		case *array.Uint32Builder:
			b.Append(uint32(v))
			return integral(int64(uint32(v)))
		default:
			b.(*array.Uint64Builder).Append(uint64(v))
			return number{new(big.Rat).SetUint64(uint64(v))}
		}
	})
}

func (g valueGen) float() float64 {
	switch g.IntN(6) {
	case 0:
		return math.Float64frombits(g.Uint64())
	case 1:
		return []float64{0, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, math.SmallestNonzeroFloat64}[g.IntN(6)]
	case 2:
		return float64(g.integer())
	case 3:
		return float64(math.Float32frombits(g.Uint32()))
	default:
		return float64(g.IntN(20000)-10000) / 100
	}
}

func (g valueGen) floats(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		f := g.float()
		switch b := b.(type) {
		case *array.Float16Builder:
			half := float16.New(float32(g.IntN(4000)-2000) / 8)
			b.Append(half)
			f = float64(half.Float32())
		case *array.Float32Builder:
			b.Append(float32(f))
			f = float64(float32(f))
		default:
			b.(*array.Float64Builder).Append(f)
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return notANumber(f)
		}
		return number{new(big.Rat).SetFloat64(f)}
	})
}

func (g valueGen) fixed(n int) (arrow.Array, []any) {
	if g.IntN(4) == 0 && !g.whole {
		return array.NewNull(n), make([]any, n)
	}
	return g.build(arrow.FixedWidthTypes.Boolean, n, func(b array.Builder) any {
		v := g.IntN(2) == 0
		b.(*array.BooleanBuilder).Append(v)
		return v
	})
}

func (g valueGen) text() string {
	return []string{"", "a", "é", "12.50", "\x00", "null", `"quoted"`, "a longer text that no view holds inline", "key", "7"}[g.IntN(10)]
}

func (g valueGen) texts(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		s := g.text()
		b.(interface{ Append(string) }).Append(s)
		return text(s)
	})
}

func (g valueGen) blobs(n int) (arrow.Array, []any) {
	types := []arrow.DataType{arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView, &arrow.FixedSizeBinaryType{ByteWidth: 4}}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		s := []string{"", "\xff\xfe", "abcd", "\x00\x01\x02\x03", "a longer blob that no view holds inline"}[g.IntN(5)]
		if _, fixed := b.(*array.FixedSizeBinaryBuilder); fixed {
			s = string(binary.BigEndian.AppendUint32(nil, g.Uint32()))
		}
		b.(interface{ Append([]byte) }).Append([]byte(s))
		return blob(s)
	})
}

func (g valueGen) times(n int) (arrow.Array, []any) {
	zone := []string{"", "UTC", "Europe/Berlin", "+05:30", "No/Where"}[g.IntN(5)]
	unit := arrow.TimeUnit(g.IntN(4))
	types := []arrow.DataType{arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Date64, &arrow.TimestampType{Unit: unit, TimeZone: zone}, &arrow.TimestampType{Unit: unit}}
	return g.build(types[g.IntN(len(types))], n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Date32Builder:
			b.Append(arrow.Date32(v))
			return moment{time.Unix(0, 0).UTC().AddDate(0, 0, int(int32(v)))}
		case *array.Date64Builder:
			b.Append(arrow.Date64(v))
			return moment{time.UnixMilli(v)}
		default:
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(v))
			switch unit {
			case arrow.Second:
				if v > maxSeconds || v < -maxSeconds {
					return untyped{}
				}
				return moment{time.Unix(v, 0)}
			case arrow.Millisecond:
				return moment{time.UnixMilli(v)}
			case arrow.Microsecond:
				return moment{time.UnixMicro(v)}
			default:
				return moment{time.Unix(0, v)}
			}
		}
	})
}

func (g valueGen) spans(n int) (arrow.Array, []any) {
	types := []arrow.DataType{
		arrow.FixedWidthTypes.Time32s, arrow.FixedWidthTypes.Time32ms, arrow.FixedWidthTypes.Time64us, arrow.FixedWidthTypes.Time64ns,
		arrow.FixedWidthTypes.Duration_s, arrow.FixedWidthTypes.Duration_ms, arrow.FixedWidthTypes.Duration_us, arrow.FixedWidthTypes.Duration_ns,
		arrow.FixedWidthTypes.MonthInterval, arrow.FixedWidthTypes.DayTimeInterval, arrow.FixedWidthTypes.MonthDayNanoInterval,
	}
	t := types[g.IntN(len(types))]
	nanos := func(v int64) any {
		unit := t.(interface{ TimeUnit() arrow.TimeUnit }).TimeUnit()
		return ticks{new(big.Int).Mul(big.NewInt(v), big.NewInt(int64(unit.Multiplier())))}
	}
	return g.build(t, n, func(b array.Builder) any {
		v := g.integer()
		switch b := b.(type) {
		case *array.Time32Builder:
			b.Append(arrow.Time32(v))
			return nanos(int64(int32(v)))
		case *array.Time64Builder:
			b.Append(arrow.Time64(v))
			return nanos(v)
		case *array.DurationBuilder:
			b.Append(arrow.Duration(v))
			return nanos(v)
		case *array.MonthIntervalBuilder:
			b.Append(arrow.MonthInterval(v))
		case *array.DayTimeIntervalBuilder:
			b.Append(arrow.DayTimeInterval{Days: int32(v), Milliseconds: 7})
		default:
			b.(*array.MonthDayNanoIntervalBuilder).Append(arrow.MonthDayNanoInterval{Months: 1, Days: 2, Nanoseconds: v})
		}
		return untyped{}
	})
}

func (g valueGen) decimals(n int) (arrow.Array, []any) {
	scale := int32(g.IntN(40) - 4)
	wide := g.IntN(2) == 0
	var t arrow.DataType = &arrow.Decimal128Type{Precision: 38, Scale: scale}
	if wide {
		t = &arrow.Decimal256Type{Precision: 76, Scale: scale}
	}
	return g.build(t, n, func(b array.Builder) any {
		c := big.NewInt(g.integer())
		if g.IntN(3) == 0 {
			c.Mul(c, big.NewInt(g.integer()%1e9))
		}
		if g.IntN(3) == 0 && scale > 0 {
			c.Mul(big.NewInt(int64(g.IntN(1000))), powerOfTen(scale)) // whole
		}
		if wide {
			b.(*array.Decimal256Builder).Append(decimal256.FromBigInt(c))
		} else {
			if c.CmpAbs(powerOfTen(38)) >= 0 {
				c.SetInt64(1)
			}
			b.(*array.Decimal128Builder).Append(decimal128.FromBigInt(c))
		}
		r := new(big.Rat).SetInt(c)
		if scale > 0 {
			r.Quo(r, new(big.Rat).SetInt(powerOfTen(scale)))
		} else {
			r.Mul(r, new(big.Rat).SetInt(powerOfTen(-scale)))
		}
		return number{r}
	})
}

// dictionary may have NULLs among its values and among its indices.
func (g valueGen) dictionary(n, depth int) (arrow.Array, []any) {
	values, of := valueGen{g.Rand, g.whole && g.IntN(2) == 0}.exactly(3, depth)
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

func (g valueGen) runs(n, depth int) (arrow.Array, []any) {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	var lengths []int
	for end := 0; end < n; {
		length := 1 + g.IntN(3)
		end += length
		lengths = append(lengths, length)
		b.Append(int32(end))
	}
	values, of := g.exactly(len(lengths), depth)
	var want []any
	for i, length := range lengths {
		for range length {
			want = append(want, of[i])
		}
	}
	return array.NewRunEndEncodedArray(b.NewArray(), values, n, 0), want[:n]
}

func (g valueGen) union(n, depth int) (arrow.Array, []any) {
	const children = 2
	ids := []arrow.UnionTypeCode{5, 7}
	var arrays []arrow.Array
	var of [][]any
	var fields []arrow.Field
	for i := range children {
		col, want := g.exactly(max(n, 1), depth)
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

func extended(name string, storage arrow.Array) arrow.Array {
	return array.NewExtensionArrayWithStorage(&extensionType{arrow.ExtensionBase{Storage: storage.DataType()}, name}, storage)
}

func (g valueGen) extension(n, depth int) (arrow.Array, []any) {
	switch g.IntN(3) {
	case 0:
		storage, want := g.build(arrow.PrimitiveTypes.Int8, n, func(b array.Builder) any {
			v := int8(g.IntN(3))
			b.(*array.Int8Builder).Append(v)
			return v != 0
		})
		return extended("arrow.bool8", storage), want
	case 1:
		storage, want := g.build(&arrow.FixedSizeBinaryType{ByteWidth: 16}, n, func(b array.Builder) any {
			id := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, g.Uint64()), g.Uint64())
			b.(*array.FixedSizeBinaryBuilder).Append(id)
			return uuid(id)
		})
		return extended("arrow.uuid", storage), want
	default:
		storage, want := g.exactly(n, depth)
		if storage.DataType().ID() == arrow.DICTIONARY || storage.DataType().ID() == arrow.EXTENSION {
			return storage, want // arrow-go cannot make an extension of these
		}
		return extended("flightpool.other", storage), want
	}
}

// validity is a bitmap of n rows, as the rows are NULL.
func (g valueGen) validity(want []any) *memory.Buffer {
	bits := make([]byte, bitutil.BytesForBits(int64(len(want))))
	for i := range want {
		if g.isNull() {
			want[i] = nil
			continue
		}
		bitutil.SetBit(bits, i)
	}
	return memory.NewBufferBytes(bits)
}

func (g valueGen) offsets(n int) (ends []int32, total int) {
	ends = make([]int32, n+1)
	for i := range n {
		ends[i+1] = ends[i] + int32(g.IntN(4))
	}
	return ends, int(ends[n])
}

func (g valueGen) list(n, depth int) (arrow.Array, []any) {
	if g.IntN(3) == 0 {
		elements, of := g.exactly(2*n, depth)
		want := make([]any, n)
		for i := range want {
			want[i] = sequence(of[2*i : 2*i+2])
		}
		valid := g.validity(want)
		data := array.NewData(arrow.FixedSizeListOf(2, elements.DataType()), n, []*memory.Buffer{valid}, []arrow.ArrayData{elements.Data()}, array.UnknownNullCount, 0)
		return array.MakeFromData(data), want
	}
	ends, total := g.offsets(n)
	elements, of := g.exactly(total, depth)
	want := make([]any, n)
	for i := range want {
		want[i] = sequence(of[ends[i]:ends[i+1]])
	}
	valid := g.validity(want)
	if g.IntN(2) == 0 {
		sizes := make([]int32, n)
		for i := range sizes {
			sizes[i] = ends[i+1] - ends[i]
		}
		buffers := []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends[:n])), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(sizes))}
		return array.MakeFromData(array.NewData(arrow.ListViewOf(elements.DataType()), n, buffers, []arrow.ArrayData{elements.Data()}, array.UnknownNullCount, 0)), want
	}
	buffers := []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends))}
	return array.MakeFromData(array.NewData(arrow.ListOf(elements.DataType()), n, buffers, []arrow.ArrayData{elements.Data()}, array.UnknownNullCount, 0)), want
}

func (g valueGen) structs(n, depth int) (arrow.Array, []any) {
	var fields []arrow.Field
	var children []arrow.ArrayData
	want := make([]any, n)
	rows := make([]members, n)
	for m := range 1 + g.IntN(3) {
		col, of := g.exactly(n, depth)
		children = append(children, col.Data())
		fields = append(fields, arrow.Field{Name: string(rune('a' + m)), Type: col.DataType(), Nullable: true})
		for i := range rows {
			rows[i] = append(rows[i], of[i])
		}
	}
	for i := range want {
		want[i] = rows[i]
	}
	valid := g.validity(want)
	return array.MakeFromData(array.NewData(arrow.StructOf(fields...), n, []*memory.Buffer{valid}, children, array.UnknownNullCount, 0)), want
}

// maps may have equal keys: Arrow does not forbid them.
func (g valueGen) maps(n, depth int) (arrow.Array, []any) {
	ends, total := g.offsets(n)
	keys, names := valueGen{g.Rand, true}.exactly(total, max(0, depth-1))
	if keys.NullN() != 0 { // which also counts them, where that was left open
		panic("a key is NULL")
	}
	items, of := g.exactly(total, depth)
	want := make([]any, n)
	for i := range want {
		p := pairs{}
		for at := ends[i]; at < ends[i+1]; at++ {
			p = append(p, [2]any{names[at], of[at]})
		}
		want[i] = p
	}
	valid := g.validity(want)
	t := arrow.MapOf(keys.DataType(), items.DataType())
	entries := array.NewData(t.Elem(), total, []*memory.Buffer{nil}, []arrow.ArrayData{keys.Data(), items.Data()}, 0, 0)
	buffers := []*memory.Buffer{valid, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends))}
	return array.MakeFromData(array.NewData(t, n, buffers, []arrow.ArrayData{entries}, array.UnknownNullCount, 0)), want
}
