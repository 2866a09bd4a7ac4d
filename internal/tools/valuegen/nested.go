package valuegen

import (
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// validity is a bitmap of n rows, as the rows are NULL.
func (g Gen) validity(want []any) *memory.Buffer {
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

func (g Gen) offsets(n int) (ends []int32, total int) {
	ends = make([]int32, n+1)
	for i := range n {
		ends[i+1] = ends[i] + int32(g.IntN(4))
	}
	return ends, int(ends[n])
}

func (g Gen) list(n, depth int) (arrow.Array, []any) {
	if g.IntN(3) == 0 {
		elements, of := g.Exactly(2*n, depth)
		want := make([]any, n)
		for i := range want {
			want[i] = sequence(of[2*i : 2*i+2])
		}
		valid := g.validity(want)
		data := array.NewData(arrow.FixedSizeListOf(2, elements.DataType()), n, []*memory.Buffer{valid}, []arrow.ArrayData{elements.Data()}, array.UnknownNullCount, 0)
		return array.MakeFromData(data), want
	}
	ends, total := g.offsets(n)
	elements, of := g.Exactly(total, depth)
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

func (g Gen) structs(n, depth int) (arrow.Array, []any) {
	var fields []arrow.Field
	var children []arrow.ArrayData
	want := make([]any, n)
	rows := make([]members, n)
	for m := range 1 + g.IntN(3) {
		col, of := g.Exactly(n, depth)
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

// Maps is n maps. They may have equal keys: Arrow does not forbid them.
func (g Gen) Maps(n, depth int) (arrow.Array, []any) {
	ends, total := g.offsets(n)
	keys, names := Gen{g.Rand, true}.Exactly(total, max(0, depth-1))
	if keys.NullN() != 0 { // which also counts them, where that was left open
		panic("a key is NULL")
	}
	items, of := g.Exactly(total, depth)
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

func powerOfTen(n int32) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}
