package ipcwrite

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Dictionaries are those of the batch that was written last. The zero value has none.
type Dictionaries struct {
	last []arrow.Array // owned
}

// HasDictionary reports whether a column has a dictionary, or something in it.
func HasDictionary(schema *arrow.Schema) bool {
	for i := range schema.NumFields() { // Fields makes a copy of them
		if Contains(schema.Field(i).Type, isDictionary) {
			return true
		}
	}
	return false
}

func isDictionary(t arrow.DataType) bool { return t.ID() == arrow.DICTIONARY }

func isFloat(t arrow.DataType) bool { return arrow.IsFloating(t.ID()) }

// Contains reports whether a type, or one that it is made of, is one of those.
func Contains(t arrow.DataType, one func(arrow.DataType) bool) bool {
	if one(t) {
		return true
	}
	switch t := t.(type) {
	case arrow.ExtensionType:
		return Contains(t.StorageType(), one)
	case *arrow.DictionaryType:
		return Contains(t.ValueType, one)
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return Contains(f.Type, one) })
	default:
		return false
	}
}

// Follow goes on to the dictionaries of batch. It reports whether Arrow's writer would take
// one of them for the one before although it is another.
func (d *Dictionaries) Follow(batch arrow.RecordBatch) (mistaken bool, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("a batch that is not valid: %v", panicked)
		}
	}()
	var own []arrow.Array
	for _, column := range batch.Columns() {
		own = appendDictionaries(own, column.Data())
	}
	before := d.last
	d.last = own
	defer release(before)
	for i := 0; i < len(own) && len(before) == len(own); i++ { // else it is of another schema, which the writer tells
		if isMistaken(before[i], own[i]) {
			return true, nil
		}
	}
	return false, nil
}

// Release lets go of what is kept.
func (d *Dictionaries) Release() {
	release(d.last)
	d.last = nil
}

func release(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// appendDictionaries appends the dictionaries of an array and of all that it is made of.
// Their number and order is that of the type.
func appendDictionaries(to []arrow.Array, d arrow.ArrayData) []arrow.Array {
	t := d.DataType()
	for t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	if t.ID() == arrow.DICTIONARY {
		return appendDictionaries(append(to, array.MakeFromData(d.Dictionary())), d.Dictionary())
	}
	for _, child := range d.Children() {
		to = appendDictionaries(to, child)
	}
	return to
}

// isMistaken reports whether Arrow's writer takes own for before, and it is not. Of floats
// that are near it is not looked whether they are the same: zeros may differ in their sign.
func isMistaken(before, own arrow.Array) bool {
	if before.Data() == own.Data() || before.Len() != own.Len() || !array.ApproxEqual(before, own, array.WithNaNsEqual(true)) {
		return false
	}
	return Contains(own.DataType(), isFloat) || !array.Equal(before, own)
}
