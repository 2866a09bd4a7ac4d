package flightconn

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// All batches that Arrow's reader makes of a stream share its dictionaries, which makes
// two errors of its seen in a batch of before that somebody reads or keeps. With each
// batch it sets again, in a dictionary whose values have dictionaries of their own, which
// those are. And a dictionary that cannot be added to it releases twice.

// dictionariesIn is how deep dictionaries are nested in a type. Extension types
// count as what they are stored as.
func dictionariesIn(t arrow.DataType) int {
	deepest := 0
	switch t := t.(type) {
	case arrow.ExtensionType:
		return dictionariesIn(t.StorageType())
	case *arrow.DictionaryType:
		return 1 + dictionariesIn(t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			deepest = max(deepest, dictionariesIn(f.Type))
		}
	}
	return deepest
}

// NestedDictionaries reports whether a schema has dictionaries whose values have dictionaries.
// Whoever reads such batches ahead by Arrow's reader changes those of before.
func NestedDictionaries(schema *arrow.Schema) bool {
	return slices.ContainsFunc(schema.Fields(), func(f arrow.Field) bool { return dictionariesIn(f.Type) > 1 })
}

// withOwnDictionaries is batch with dictionaries that no other batch has. The
// values are not copied. The caller owns the result and must release it; batch
// stays its reader's. Metadata of the batch is kept.
func withOwnDictionaries(batch arrow.RecordBatch) arrow.RecordBatch {
	columns := slices.Clone(batch.Columns())
	for i, c := range columns {
		if dictionariesIn(c.DataType()) > 0 {
			data := ownData(c.Data())
			columns[i] = array.MakeFromData(data)
			data.Release()
			defer columns[i].Release()
		}
	}
	return withColumns(batch, batch.Schema(), columns)
}

// withColumns is batch with another schema and columns. The caller must release it.
func withColumns(batch arrow.RecordBatch, schema *arrow.Schema, columns []arrow.Array) arrow.RecordBatch {
	var metadata arrow.Metadata
	if with, ok := batch.(arrow.RecordBatchWithMetadata); ok {
		metadata = with.Metadata()
	}
	return array.NewRecordBatchWithMetadata(schema, columns, batch.NumRows(), metadata)
}

// ownData is a copy of an array's description, down to its children and
// dictionaries. The buffers are shared, and retained by it. The caller must
// release it.
func ownData(d arrow.ArrayData) *array.Data {
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, c := range d.Children() {
		children[i] = ownData(c)
		defer children[i].Release()
	}
	own := array.NewData(d.DataType(), d.Len(), slices.Clone(d.Buffers()), children, d.NullN(), d.Offset())
	if values, _ := d.Dictionary().(*array.Data); values != nil { // the interface itself never is nil
		dictionary := ownData(values)
		defer dictionary.Release()
		own.SetDictionary(dictionary)
	}
	return own
}

// The checks of single buffers. They are what validating costs, so their loops
// do little: the sign of a sum tells of all rows at once.

// checkVariableWidth checks offsets that begin one value where the one before
// ends, in something of limit elements. An array without rows may come without
// offsets. large says that they have 64 bits.
func checkVariableWidth(d arrow.ArrayData, large bool, limit int) error {
	raw := bytesOf(d, 1)
	if len(raw) == 0 && d.Len() == 0 {
		return nil
	}
	if large {
		return checkOffsets(arrow.Int64Traits.CastFromBytes(raw), d, limit)
	}
	return checkOffsets(arrow.Int32Traits.CastFromBytes(raw), d, limit)
}

type offset interface{ int32 | int64 }

// checkOffsets checks that offsets grow: of offsets that are not negative, those that
// shrink give a negative difference, and so do negative ones themselves.
//
// The last of them is the largest, then, and is all that has to be compared
// with limit. Null rows have offsets too, which must be in order like any
// other.
func checkOffsets[T offset](offsets []T, d arrow.ArrayData, limit int) error {
	from, end := d.Offset(), d.Offset()+d.Len()
	if len(offsets) <= end {
		return fmt.Errorf("%d offsets for %d rows", len(offsets), end)
	}
	offsets = offsets[from : end+1]
	last, sign := offsets[0], offsets[0]
	for _, o := range offsets {
		sign |= o | (o - last)
		last = o
	}
	if sign < 0 || int64(last) > int64(limit) {
		return fmt.Errorf("offsets shrink, are negative or exceed the %d elements", limit)
	}
	return nil
}

// checkListViews checks lists that may be anywhere. Each is looked at by
// itself, null or not: their order says nothing.
func checkListViews[T offset](offsets, sizes []T, d arrow.ArrayData, limit int) error {
	from, end := d.Offset(), d.Offset()+d.Len()
	if len(offsets) < end || len(sizes) < end {
		return fmt.Errorf("%d offsets and %d sizes for %d rows", len(offsets), len(sizes), end)
	}
	for i := from; i < end; i++ {
		at, size := int64(offsets[i]), int64(sizes[i])
		if at < 0 || size < 0 || size > int64(limit)-at {
			return fmt.Errorf("row %d: %d elements from %d of %d", i, size, at, limit)
		}
	}
	return nil
}

// checkViews checks strings that are in one of several buffers or, when short,
// in place. Null rows may have anything there.
func checkViews(d arrow.ArrayData) error {
	from, end := d.Offset(), d.Offset()+d.Len()
	headers := arrow.ViewHeaderTraits.CastFromBytes(bytesOf(d, 1))
	if len(headers) < end || len(d.Buffers()) < 2 {
		return fmt.Errorf("%d views for %d rows", len(headers), end)
	}
	sizes := make([]int64, len(d.Buffers())-2)
	for i := range sizes {
		sizes[i] = int64(len(bytesOf(d, 2+i)))
	}
	bitmap := bytesOf(d, 0)
	for i := from; i < end; i++ {
		h := &headers[i]
		size := h.Len()
		if size >= 0 && h.IsInline() {
			continue
		}
		n, at := int(h.BufferIndex()), int64(h.BufferOffset())
		if (size < 0 || n < 0 || n >= len(sizes) || at < 0 || at+int64(size) > sizes[n]) && isValid(bitmap, i) {
			return fmt.Errorf("row %d: %d bytes from %d of buffer %d are out of bounds", i, size, at, n)
		}
	}
	return nil
}

// checkIndices checks that those that are not null point into a dictionary of
// limit values. Signed ones are read as unsigned: what was negative is then
// above what the signed type can name. limit is cut to that, so that one
// comparison does for both ends.
func checkIndices(d arrow.ArrayData, t arrow.FixedWidthDataType, limit int) error {
	raw, bits := bytesOf(d, 1), t.BitWidth()
	if arrow.IsSignedInteger(t.ID()) {
		limit = int(min(uint64(limit), 1<<(bits-1)))
	}
	switch bits / 8 {
	case 1:
		return checkIndexBounds(raw, d, limit)
	case 2:
		return checkIndexBounds(arrow.Uint16Traits.CastFromBytes(raw), d, limit)
	case 4:
		return checkIndexBounds(arrow.Uint32Traits.CastFromBytes(raw), d, limit)
	default:
		return checkIndexBounds(arrow.Uint64Traits.CastFromBytes(raw), d, limit)
	}
}

// checkIndexBounds does the work of checkIndices. Null rows may have any index:
// writers leave what was there.
func checkIndexBounds[T uint8 | uint16 | uint32 | uint64](all []T, d arrow.ArrayData, limit int) error {
	bitmap := bytesOf(d, 0)
	from, end := d.Offset(), d.Offset()+d.Len()
	for i, index := range all[from:end] {
		if uint64(index) >= uint64(limit) && isValid(bitmap, from+i) {
			return fmt.Errorf("row %d: index %d of a dictionary of %d", i, index, limit)
		}
	}
	return nil
}
