package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// maxKnownDictionaries bounds what a Validator remembers.
const maxKnownDictionaries = 32

// child checks one of the arrays that another is made of. It must have atLeast
// values, and may have more.
func (v *Validator) child(d arrow.ArrayData, n int, field arrow.Field, atLeast int) error {
	if n >= len(d.Children()) {
		return fmt.Errorf("%d children, too few", len(d.Children()))
	}
	c := d.Children()[n]
	if c.Len() < atLeast {
		return fmt.Errorf("%s: %d values where %d are needed", field.Name, c.Len(), atLeast)
	}
	if err := v.array(c, field.Type); err != nil {
		return fmt.Errorf("%s: %w", field.Name, err)
	}
	return nil
}

// children checks all of them, each for atLeast values.
func (v *Validator) children(d arrow.ArrayData, fields []arrow.Field, atLeast int) error {
	for i, field := range fields {
		if err := v.child(d, i, field, atLeast); err != nil {
			return err
		}
	}
	return nil
}

// checkLists checks where lists begin and end in their values. The values
// themselves were checked before. Lists and large lists have offsets in order,
// list views an offset and a size each.
func checkLists(d arrow.ArrayData, t arrow.ListLikeType) error {
	limit := d.Children()[0].Len()
	switch t.ID() {
	case arrow.LIST_VIEW:
		return checkListViews(arrow.Int32Traits.CastFromBytes(bytesOf(d, 1)), arrow.Int32Traits.CastFromBytes(bytesOf(d, 2)), d, limit)
	case arrow.LARGE_LIST_VIEW:
		return checkListViews(arrow.Int64Traits.CastFromBytes(bytesOf(d, 1)), arrow.Int64Traits.CastFromBytes(bytesOf(d, 2)), d, limit)
	default:
		return checkVariableWidth(d, t.ID() == arrow.LARGE_LIST, limit)
	}
}

// union checks type codes and, in a dense one, where the values are. In a
// sparse one every child has a value for each row. A union has no bitmap: its
// values are null or not.
func (v *Validator) union(d arrow.ArrayData, t arrow.UnionType) error {
	from, end := d.Offset(), d.Offset()+d.Len()
	atLeast := end
	codes := bytesOf(d, 1)
	if d.Len() == 0 {
		codes, end, from = nil, 0, 0
	}
	if len(codes) < end {
		return fmt.Errorf("%d type codes for %d rows", len(codes), end)
	}
	ids := t.ChildIDs()
	for _, code := range codes[from:end] {
		if int(code) >= len(ids) || ids[code] < 0 || ids[code] >= len(d.Children()) {
			return fmt.Errorf("type code %d is none of the union's", int8(code))
		}
	}
	if t.Mode() == arrow.DenseMode {
		atLeast = 0
		offsets := arrow.Int32Traits.CastFromBytes(bytesOf(d, 2))
		if len(offsets) < end {
			return fmt.Errorf("%d offsets for %d rows", len(offsets), end)
		}
		for i, code := range codes[from:end] {
			if at := offsets[from+i]; at < 0 || int(at) >= d.Children()[ids[code]].Len() {
				return fmt.Errorf("row %d: offset %d is out of bounds", i, at)
			}
		}
	}
	return v.children(d, t.Fields(), atLeast)
}

// dictionary checks the indices, and the dictionary the first time. What was
// found valid is known by its address, which is no other's while the map has
// it.
func (v *Validator) dictionary(d arrow.ArrayData, t *arrow.DictionaryType) error {
	width, ok := t.IndexType.(arrow.FixedWidthDataType)
	if !ok || !arrow.IsInteger(t.IndexType.ID()) {
		return fmt.Errorf("indices of type %v", t.IndexType)
	}
	if err := checkFixedWidth(d, width); err != nil {
		return err
	}
	values := d.Dictionary()
	if held, _ := values.(*array.Data); held == nil { // the interface itself never is
		return fmt.Errorf("no dictionary")
	}
	if err := checkIndices(d, width, values.Len()); err != nil {
		return err
	}
	if _, known := v.dictionaries[values]; known {
		return nil
	}
	if err := v.array(values, t.ValueType); err != nil {
		return fmt.Errorf("dictionary: %w", err)
	}
	if v.dictionaries == nil || len(v.dictionaries) >= maxKnownDictionaries {
		v.dictionaries = make(map[arrow.ArrayData]struct{})
	}
	v.dictionaries[values] = struct{}{}
	return nil
}

// runs checks that run ends grow and reach the last row. A value is found by a
// search for its row among the ends, which would go past the last one
// otherwise.
func (v *Validator) runs(d arrow.ArrayData, t *arrow.RunEndEncodedType) error {
	if len(d.Children()) != 2 {
		return fmt.Errorf("%d children where run ends and values are needed", len(d.Children()))
	}
	ends := d.Children()[0]
	if err := v.children(d, t.Fields(), 0); err != nil {
		return err
	}
	if d.Children()[1].Len() < ends.Len() {
		return fmt.Errorf("%d values for %d runs", d.Children()[1].Len(), ends.Len())
	}
	raw, last := bytesOf(ends, 1), int64(0)
	for i := ends.Offset(); i < ends.Offset()+ends.Len(); i++ {
		var end int64
		switch t.RunEnds().ID() {
		case arrow.INT16:
			end = int64(arrow.Int16Traits.CastFromBytes(raw)[i])
		case arrow.INT32:
			end = int64(arrow.Int32Traits.CastFromBytes(raw)[i])
		case arrow.INT64:
			end = arrow.Int64Traits.CastFromBytes(raw)[i]
		default:
			return fmt.Errorf("run ends of type %v", t.RunEnds())
		}
		if end <= last {
			return fmt.Errorf("run %d ends at %d, after %d", i, end, last)
		}
		last = end
	}
	if rows := d.Offset() + d.Len(); last < int64(rows) {
		return fmt.Errorf("runs of %d rows for %d", last, rows)
	}
	return nil
}

// isValid reports whether a row is not null. Without a bitmap all are valid.
func isValid(bitmap []byte, i int) bool { return len(bitmap) == 0 || bitutil.BitIsSet(bitmap, i) }
