package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// Arrow's reader makes other values than a server has sent of two kinds of types, and may have no
// error. Numbers of the byte order that this machine has not it turns round, but not those in the
// types that misread names, nor what is behind one of these in a struct. And in the dictionaries of
// unions and run-ends it looks for bitmaps, which these have not had since Arrow 1.0, and so takes
// one buffer for another.

// unreadable is why the batches of a schema cannot be read, nil if they can.
func unreadable(schema *arrow.Schema) error {
	native := schema.IsNativeEndian()
	for i := range schema.NumFields() {
		f := schema.Field(i)
		t, inDictionary := misread(f.Type, native, false)
		switch {
		case t == nil:
		case inDictionary:
			return fmt.Errorf("column %q: a dictionary of %v cannot be read here", f.Name, t)
		default:
			return fmt.Errorf("column %q: %v of the byte order that this machine does not have cannot be read here", f.Name, t)
		}
	}
	return nil
}

// misread is the first type in t that Arrow's reader gets wrong, nil if there is none, and whether
// it does so because the type is in a dictionary. native says that numbers are as this machine has them.
func misread(t arrow.DataType, native, inDictionary bool) (_ arrow.DataType, ofDictionary bool) {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return misread(t.StorageType(), native, inDictionary)
	case *arrow.DictionaryType:
		return misread(t.ValueType, native, true)
	case *arrow.RunEndEncodedType, arrow.UnionType:
		if inDictionary {
			return t, true
		}
	}
	if !native {
		switch t.(type) {
		case arrow.BinaryViewDataType, *arrow.ListViewType, *arrow.LargeListViewType, *arrow.RunEndEncodedType:
			return t, false
		}
	}
	if nested, ok := t.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			if found, of := misread(f.Type, native, inDictionary); found != nil {
				return found, of
			}
		}
	}
	return nil, false
}
