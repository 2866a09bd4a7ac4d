package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// A value of a few bytes may stand for any number of values: nulls and run-ends take no memory for
// a row, and dictionaries and list views name what is there again and again, one within the other.
// Whoever makes a Go value of it makes them all. So what one value may become is bounded, by what
// the buffers of a message may become (Config.maxInflated). How many rows there are is not: they
// are made one by one.

// unfoldedSize is how many bytes of Arrow's values take at most, once nothing in them is shared: all
// rows of an array, each read once, and the largest of them. What is not shared takes no more than the
// message has.
type unfoldedSize struct{ all, one float64 }

// rowBytes is what a row counts that takes no memory in a message.
const rowBytes = 16.0

// checkUnfolded refuses a column of which one value may take more than limit bytes. Where that is 0,
// nobody has bounded what the column itself takes (an ADBC driver of any kind): it may be as much, or what
// Config.MaxMessage would make of it. The column must have been found valid. What is looked at first is
// what all rows take, which costs next to nothing.
func checkUnfolded(d arrow.ArrayData, t arrow.DataType, limit float64) error {
	if !holdsLists(t) {
		return nil
	}
	if limit == 0 {
		limit = max(maxInflationFactor*DefaultMaxMessage, 2*memoryOf(d))
	}
	if unfold(d, t, false).one <= limit {
		return nil
	}
	if size := unfold(d, t, true).one; size > limit {
		return fmt.Errorf("one value may become %.3g bytes, which is more than %.3g", size, limit)
	}
	return nil
}

// memoryOf is how many bytes an array is made of, with its dictionaries.
func memoryOf(d arrow.ArrayData) (bytes float64) {
	for i := range d.Buffers() {
		bytes += float64(len(bytesOf(d, i)))
	}
	for _, c := range d.Children() {
		bytes += memoryOf(c)
	}
	if values, _ := d.Dictionary().(*array.Data); values != nil { // the interface itself never is nil
		bytes += memoryOf(values)
	}
	return bytes
}

// holdsLists reports whether a value of a type may have any number of others.
func holdsLists(t arrow.DataType) bool {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return holdsLists(t.StorageType())
	case *arrow.DictionaryType:
		return holdsLists(t.ValueType)
	case arrow.ListLikeType:
		return true
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if holdsLists(f.Type) {
				return true
			}
		}
	}
	return false
}

// unfold is the size of an array. exact says that the largest row is looked for, with a pass over
// its buffers; otherwise it is taken to have what all have.
//
// INVARIANT: each array is looked at once, however often it is named.
func unfold(d arrow.ArrayData, t arrow.DataType, exact bool) (size unfoldedSize) {
	defer func() {
		if !exact {
			size.one = size.all
		}
	}()
	n := float64(d.Len())
	if n == 0 {
		return unfoldedSize{}
	}
	child := func(i int, t arrow.DataType) unfoldedSize { return unfold(d.Children()[i], t, exact) }
	switch t := t.(type) {
	case arrow.ExtensionType:
		return unfold(d, t.StorageType(), exact)
	case *arrow.DictionaryType:
		values := unfold(d.Dictionary(), t.ValueType, exact)
		size = repeated(n, unfoldedSize{one: values.one + float64(t.Bytes())})
		if exact && isText(t.ValueType) {
			size.all, _ = textSizes(d)
		}
		return size
	case *arrow.RunEndEncodedType:
		return repeated(n, unfoldedSize{one: child(1, t.Encoded()).one + rowBytes})
	case arrow.NestedType:
		if lists, ok := t.(arrow.ListLikeType); ok {
			return unfoldList(d, lists, child(0, lists.ElemField().Type), exact)
		}
		size = unfoldedSize{n * rowBytes, rowBytes}
		if t.NumFields() > 0 {
			size = unfoldedSize{n, 1}
		}
		largest := 0.0
		for i, f := range t.Fields() {
			member := child(i, f.Type)
			size.all, size.one, largest = size.all+member.all, size.one+member.one, max(largest, member.one)
		}
		if t.ID() == arrow.DENSE_UNION && (!exact || !namesEachOnce(d)) {
			return repeated(n, unfoldedSize{one: largest + rowBytes})
		}
		return size
	default:
		return unfoldFlat(d, t, exact)
	}
}

// repeated are n values, each of which may be the largest.
func repeated(n float64, of unfoldedSize) unfoldedSize { return unfoldedSize{n * of.one, of.one} }

// namesEachOnce reports whether each value of a dense union's children is that of one row, as the
// format has it, in which offsets grow.
func namesEachOnce(d arrow.ArrayData) bool {
	var next [256]int32 // by the type code
	offsets := arrow.Int32Traits.CastFromBytes(bytesOf(d, 2))
	for i, code := range bytesOf(d, 1)[d.Offset() : d.Offset()+d.Len()] {
		at := offsets[d.Offset()+i]
		if at < next[code] {
			return false
		}
		next[code] = at + 1
	}
	return true
}

// unfoldList is unfold for lists of elements. Those of list views may be in any number of lists.
func unfoldList(d arrow.ArrayData, t arrow.ListLikeType, elements unfoldedSize, exact bool) unfoldedSize {
	n := float64(d.Len())
	size := unfoldedSize{n + elements.all, 1 + elements.all}
	view := t.ID() == arrow.LIST_VIEW || t.ID() == arrow.LARGE_LIST_VIEW
	if view {
		size.all = n * (1 + elements.all)
	}
	if fixed, ok := t.(*arrow.FixedSizeListType); ok {
		size.one = 1 + min(elements.all, float64(fixed.Len())*elements.one)
		return size
	}
	if !exact {
		return size
	}
	a, release := storageOf(d)
	defer release()
	lists, longest, total := a.(array.ListLike), 0.0, 0.0
	for i := range d.Len() {
		from, to := lists.ValueOffsets(i)
		longest, total = max(longest, float64(to-from)), total+float64(to-from)
	}
	size.one = 1 + min(elements.all, longest*elements.one)
	if view {
		size.all = n + min(n*elements.all, total*elements.one)
	}
	return size
}

// unfoldFlat is unfold for values without parts.
func unfoldFlat(d arrow.ArrayData, t arrow.DataType, exact bool) unfoldedSize {
	n := float64(d.Len())
	switch t := t.(type) {
	case arrow.BinaryViewDataType:
		all, one := textSizes(d)
		return unfoldedSize{all, one}
	case arrow.BinaryDataType:
		if exact {
			all, one := textSizes(d)
			return unfoldedSize{all, one}
		}
		return unfoldedSize{all: n + float64(len(bytesOf(d, 2)))}
	case arrow.FixedWidthDataType:
		one := max(float64(t.BitWidth()), 1) / 8
		return unfoldedSize{n * one, one}
	default: // NULL
		return unfoldedSize{n * rowBytes, rowBytes}
	}
}

func isText(t arrow.DataType) bool {
	switch t.(type) {
	case arrow.BinaryDataType, arrow.BinaryViewDataType:
		return true
	default:
		return false
	}
}

// textSizes is the size of texts or binary values, or of the rows of a dictionary of these.
func textSizes(d arrow.ArrayData) (all, one float64) {
	a, release := storageOf(d)
	defer release()
	values, at := a, func(row int) int { return row }
	if coded, ok := a.(*array.Dictionary); ok {
		values, at = coded.Dictionary(), coded.GetValueIndex
	}
	length := values.(interface{ ValueLen(i int) int }).ValueLen
	for row := range d.Len() {
		size := 1.0
		if !a.IsNull(row) && !values.IsNull(at(row)) {
			size += float64(length(at(row)))
		}
		all, one = all+size, max(one, size)
	}
	return all, one
}

// storageOf is an array without what extension types make of it. release must be called.
func storageOf(d arrow.ArrayData) (a arrow.Array, release func()) {
	made := array.MakeFromData(d)
	for a = made; ; {
		e, ok := a.(array.ExtensionArray)
		if !ok {
			return a, made.Release
		}
		a = e.Storage()
	}
}
