package flightconn

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Arrow's writer cannot encode a slice of a union or of a list view that begins after the first
// value: it panics, or fails. It can encode one that begins with the first, but sends all that the
// values are in, so that fewer rows are no smaller. So these are compacted before they are encoded: what
// they refer to begins with their first value and ends with their last.
//
// Views of texts and binary values it can encode, with all that they are in as well. These are compacted too, by a copy of
// what they refer to, where a batch has to be cut.

// compaction says of which types values are compacted.
type compaction struct{ views, structs bool }

// applies reports whether there is a union or a list view in a type, or with views one of texts. Dictionaries are not
// looked into: they are sent whole.
func (c compaction) applies(t arrow.DataType) bool {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return c.applies(t.StorageType())
	case arrow.UnionType, *arrow.ListViewType, *arrow.LargeListViewType:
		return true
	case arrow.BinaryViewDataType:
		return c.views
	case *arrow.StructType:
		return c.structs || slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return c.applies(f.Type) })
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return c.applies(f.Type) })
	default:
		return false
	}
}

// appliesTo reports whether there is such a type in a schema.
func (c compaction) appliesTo(schema *arrow.Schema) bool {
	for i := range schema.NumFields() { // Fields makes a copy of them
		if c.applies(schema.Field(i).Type) {
			return true
		}
	}
	return false
}

// Part is the rows of a batch from one to another, which its caller must release, as Arrow's writer can encode them: with texts,
// also those of views as far as they are of these rows.
func Part(batch arrow.RecordBatch, from, to int64, texts bool) (arrow.RecordBatch, error) {
	part, c := batch.NewSlice(from, to), compaction{views: texts}
	if !c.appliesTo(batch.Schema()) {
		return part, nil
	}
	return c.batch(part)
}

// ForC is a batch as drivers in C are given it right, which its caller must release: where a struct, or a union, is a slice that begins after the first value,
// Arrow's export to them tells its beginning twice, and the values of other rows are read, or what lies behind them.
func ForC(batch arrow.RecordBatch) (arrow.RecordBatch, error) {
	batch.Retain()
	if c := (compaction{structs: true}); c.appliesTo(batch.Schema()) {
		return c.batch(batch)
	}
	return batch, nil
}

// batch is batch, of which it takes over the reference, with its columns compacted. Nothing is
// believed of what the batch refers to: what is out of bounds panics here, as in Arrow's writer, and is
// an error as there.
func (c compaction) batch(batch arrow.RecordBatch) (compacted arrow.RecordBatch, err error) {
	defer batch.Release()
	defer func() {
		if panicked := recover(); panicked != nil {
			compacted, err = nil, fmt.Errorf("a batch that is not valid: %v", panicked)
		}
	}()
	columns := make([]arrow.Array, batch.NumCols())
	for i := range columns {
		data := c.compact(batch.Column(i).Data())
		columns[i] = array.MakeFromData(data)
		data.Release()
		defer columns[i].Release()
	}
	return array.NewRecordBatch(batch.Schema(), columns, batch.NumRows()), nil
}

// compact is an array of the same values that its caller owns. The memory that is new is Go's.
func (c compaction) compact(d arrow.ArrayData) arrow.ArrayData {
	if !c.applies(d.DataType()) {
		d.Retain()
		return d
	}
	from, to := d.Offset(), d.Offset()+d.Len()
	switch t := storageType(d.DataType()).(type) {
	case *arrow.DenseUnionType:
		return c.dense(d, t)
	case *arrow.SparseUnionType:
		return rebuilt(d, []*memory.Buffer{nil, memory.SliceBuffer(d.Buffers()[1], from, d.Len())}, c.children(d, from, to)...)
	case *arrow.StructType:
		return rebuilt(d, []*memory.Buffer{compactValidity(d)}, c.children(d, from, to)...)
	case *arrow.FixedSizeListType:
		n := int(t.Len())
		return rebuilt(d, []*memory.Buffer{compactValidity(d)}, c.children(d, from*n, to*n)...)
	case *arrow.ListViewType:
		return compactView[int32](c, d)
	case *arrow.LargeListViewType:
		return compactView[int64](c, d)
	case arrow.BinaryViewDataType:
		return compactTexts(d)
	case *arrow.LargeListType:
		return compactList[int64](c, d)
	case *arrow.RunEndEncodedType:
		return c.runs(d)
	default: // a list or a map
		return compactList[int32](c, d)
	}
}

// rebuilt is d of other buffers and children, which it takes over. NULLs are counted: a map demands
// to be told that its keys have none.
func rebuilt(d arrow.ArrayData, buffers []*memory.Buffer, children ...arrow.ArrayData) arrow.ArrayData {
	nulls := 0
	if validity := buffers[0]; validity != nil {
		nulls = d.Len() - bitutil.CountSetBits(validity.Bytes(), 0, d.Len())
	}
	data := array.NewData(d.DataType(), d.Len(), buffers, children, nulls, 0)
	memory.ReleaseBuffers(buffers)
	for _, c := range children {
		c.Release()
	}
	return data
}

// children are the values of all children between from and to.
func (c compaction) children(d arrow.ArrayData, from, to int) []arrow.ArrayData {
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		children[i] = c.slice(child, from, to)
	}
	return children
}

func (c compaction) slice(d arrow.ArrayData, from, to int) arrow.ArrayData {
	part := array.NewSliceData(d, int64(from), int64(to))
	defer part.Release()
	return c.compact(part)
}

func compactValidity(d arrow.ArrayData) *memory.Buffer {
	b := d.Buffers()[0]
	if b == nil || b.Len() == 0 {
		return nil
	}
	bits := make([]byte, bitutil.BytesForBits(int64(d.Len())))
	bitutil.CopyBitmap(b.Bytes(), d.Offset(), d.Len(), bits, 0)
	return memory.NewBufferBytes(bits)
}

// compactList is for lists whose offsets are of type O.
func compactList[O int32 | int64](c compaction, d arrow.ArrayData) arrow.ArrayData {
	if d.Len() == 0 {
		return rebuilt(d, []*memory.Buffer{nil, memory.NewBufferBytes(nil)}, c.children(d, 0, 0)...)
	}
	ends := slices.Clone(arrow.GetData[O](d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1])
	first := ends[0]
	for i := range ends {
		ends[i] -= first
	}
	children := c.children(d, int(first), int(first+ends[d.Len()]))
	return rebuilt(d, []*memory.Buffer{compactValidity(d), memory.NewBufferBytes(arrow.GetBytes(ends))}, children...)
}

// compactView is for list views whose offsets are of type O. An empty list, wherever it is said
// to be, is at the beginning.
func compactView[O int32 | int64](c compaction, d arrow.ArrayData) arrow.ArrayData {
	if d.Len() == 0 {
		return rebuilt(d, []*memory.Buffer{nil, memory.NewBufferBytes(nil), memory.NewBufferBytes(nil)}, c.children(d, 0, 0)...)
	}
	sizes := arrow.GetData[O](d.Buffers()[2].Bytes())[d.Offset() : d.Offset()+d.Len()]
	starts := slices.Clone(arrow.GetData[O](d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()])
	first, last := O(d.Children()[0].Len()), O(0)
	for i, size := range sizes {
		if size > 0 {
			first, last = min(first, starts[i]), max(last, starts[i]+size)
		}
	}
	first = min(first, last)
	for i, size := range sizes {
		if starts[i] -= first; size == 0 {
			starts[i] = 0
		}
	}
	buffers := []*memory.Buffer{compactValidity(d), memory.NewBufferBytes(arrow.GetBytes(starts)), memory.NewBufferBytes(arrow.GetBytes(slices.Clone(sizes)))}
	return rebuilt(d, buffers, c.children(d, int(first), int(last))...)
}

// compactTexts is for views of texts. What they refer to is copied, in their order, to as few buffers as can hold it.
func compactTexts(d arrow.ArrayData) arrow.ArrayData {
	buffers := []*memory.Buffer{compactValidity(d), nil}
	views := slices.Clone(arrow.ViewHeaderTraits.CastFromBytes(bytesOf(d, 1))[d.Offset() : d.Offset()+d.Len()])
	var valid, texts []byte
	if buffers[0] != nil {
		valid = buffers[0].Bytes()
	}
	for i := range views {
		v := &views[i]
		if !isValid(valid, i) {
			*v = arrow.ViewHeader{}
		}
		if v.IsInline() {
			continue
		}
		text := bytesOf(d, 2+int(v.BufferIndex()))[v.BufferOffset():][:v.Len()]
		if len(texts)+len(text) > math.MaxInt32 {
			buffers, texts = append(buffers, memory.NewBufferBytes(texts)), nil
		}
		v.SetIndexOffset(int32(len(buffers)-2), int32(len(texts)))
		texts = append(texts, text...)
	}
	if len(texts) > 0 {
		buffers = append(buffers, memory.NewBufferBytes(texts))
	}
	buffers[1] = memory.NewBufferBytes(arrow.ViewHeaderTraits.CastToBytes(views))
	return rebuilt(d, buffers)
}

// dense cuts each child to what the values refer to.
func (c compaction) dense(d arrow.ArrayData, t *arrow.DenseUnionType) arrow.ArrayData {
	if d.Len() == 0 {
		return rebuilt(d, []*memory.Buffer{nil, memory.NewBufferBytes(nil), memory.NewBufferBytes(nil)}, c.children(d, 0, 0)...)
	}
	codes := memory.SliceBuffer(d.Buffers()[1], d.Offset(), d.Len())
	at := slices.Clone(arrow.Int32Traits.CastFromBytes(d.Buffers()[2].Bytes())[d.Offset() : d.Offset()+d.Len()])
	first, last := make([]int32, t.NumFields()), make([]int32, t.NumFields())
	for i := range first {
		first[i] = int32(d.Children()[i].Len())
	}
	child := func(row int) int { return t.ChildIDs()[codes.Bytes()[row]] }
	for row, n := range at {
		of := child(row)
		first[of], last[of] = min(first[of], n), max(last[of], n+1)
	}
	children := make([]arrow.ArrayData, t.NumFields())
	for i, values := range d.Children() {
		first[i] = min(first[i], last[i])
		children[i] = c.slice(values, int(first[i]), int(last[i]))
	}
	for row := range at {
		at[row] -= first[child(row)]
	}
	return rebuilt(d, []*memory.Buffer{nil, codes, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(at))}, children...)
}

// runs cuts runs to those of the values.
func (c compaction) runs(d arrow.ArrayData) arrow.ArrayData {
	storage := array.NewData(storageType(d.DataType()), d.Len(), d.Buffers(), d.Children(), 0, d.Offset())
	defer storage.Release()
	runs := array.NewRunEndEncodedData(storage)
	defer runs.Release()
	ends := runs.LogicalRunEndsArray(memory.NewGoAllocator())
	defer ends.Release()
	values := runs.LogicalValuesArray()
	defer values.Release()
	ends.Data().Retain()
	return rebuilt(d, []*memory.Buffer{nil}, ends.Data(), c.compact(values.Data()))
}

func storageType(t arrow.DataType) arrow.DataType {
	if e, ok := t.(arrow.ExtensionType); ok {
		return e.StorageType()
	}
	return t
}
