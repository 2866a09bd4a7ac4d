package export

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// withoutViews is t with texts and binary values in place of views of them, which
// arrow-go's writer of Parquet lacks; t itself where it has none. An extension over a view
// is its storage then.
func withoutViews(t arrow.DataType) arrow.DataType { return plainType(t, false) }

// plainType is withoutViews, with lists in place of those of fixed size too if ofAnySize.
func plainType(t arrow.DataType, ofAnySize bool) arrow.DataType {
	member := func(f arrow.Field) (arrow.Field, bool) {
		plain := plainType(f.Type, ofAnySize)
		changed := plain != f.Type
		f.Type = plain
		return f, changed
	}
	switch t := t.(type) {
	case *arrow.StringViewType:
		return arrow.BinaryTypes.String
	case *arrow.BinaryViewType:
		return arrow.BinaryTypes.Binary
	case arrow.ExtensionType:
		if plain := plainType(t.StorageType(), ofAnySize); plain != t.StorageType() {
			return plain
		}
	case *arrow.DictionaryType:
		if plain := withoutViews(t.ValueType); plain != t.ValueType {
			return &arrow.DictionaryType{IndexType: t.IndexType, ValueType: plain, Ordered: t.Ordered}
		}
	case *arrow.StructType:
		fields, any := make([]arrow.Field, t.NumFields()), false
		for i, f := range t.Fields() {
			plain, changed := member(f)
			fields[i], any = plain, any || changed
		}
		if any {
			return arrow.StructOf(fields...)
		}
	case *arrow.ListType:
		if f, changed := member(t.ElemField()); changed {
			return arrow.ListOfField(f)
		}
	case *arrow.LargeListType:
		if f, changed := member(t.ElemField()); changed {
			return arrow.LargeListOfField(f)
		}
	case *arrow.FixedSizeListType:
		f, changed := member(t.ElemField())
		if ofAnySize {
			return arrow.ListOfField(f)
		}
		if changed {
			return arrow.FixedSizeListOfField(t.Len(), f)
		}
	case *arrow.MapType:
		key, one := member(t.KeyField())
		item, two := member(t.ItemField())
		if one || two {
			plain := arrow.MapOfFields(key, item)
			plain.KeysSorted = t.KeysSorted
			return plain
		}
	}
	return t
}

// plainSchema is a schema whose columns are of plainType.
func plainSchema(schema *arrow.Schema, ofAnySize bool) *arrow.Schema {
	fields := schema.Fields()
	for i := range fields {
		fields[i].Type = plainType(fields[i].Type, ofAnySize)
	}
	meta := schema.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// plainData is d as a value of the type that withoutViews makes of its own. The caller
// releases it.
func plainData(d arrow.ArrayData) (arrow.ArrayData, error) {
	to := withoutViews(d.DataType())
	if to == d.DataType() {
		d.Retain()
		return d, nil
	}
	if id := storageOf(d.DataType()).ID(); id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW {
		return copied(d, to)
	}
	if to.ID() == arrow.DICTIONARY {
		values, err := plainData(d.Dictionary())
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return array.NewDataWithDictionary(to, d.Len(), d.Buffers(), d.NullN(), d.Offset(), values.(*array.Data)), nil
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		plain, err := plainData(child)
		if err != nil {
			return nil, err
		}
		defer plain.Release()
		children[i] = plain
	}
	return array.NewData(to, d.Len(), d.Buffers(), children, d.NullN(), d.Offset()), nil
}

// copied has the values of a column of views one after the other.
func copied(d arrow.ArrayData, to arrow.DataType) (arrow.ArrayData, error) {
	own := array.MakeFromData(d)
	defer own.Release()
	column := own
	for column.DataType().ID() == arrow.EXTENSION {
		column = column.(array.ExtensionArray).Storage()
	}
	views, size := column.(array.ViewLike), 0
	for i := range views.Len() {
		if views.IsValid(i) {
			size += views.ValueHeader(i).Len()
		}
	}
	if size > math.MaxInt32 { // a batch is smaller, but its views may share what they show
		return nil, fmt.Errorf("a batch has %d bytes of it, of %d that can be written", size, math.MaxInt32)
	}
	b := array.NewBinaryBuilder(memory.DefaultAllocator, to.(arrow.BinaryDataType))
	defer b.Release()
	b.Reserve(views.Len())
	b.ReserveData(size)
	for i := range views.Len() {
		switch v := views.(type) {
		case *array.StringView:
			if v.IsValid(i) {
				b.AppendString(v.Value(i))
				continue
			}
		case *array.BinaryView:
			if v.IsValid(i) {
				b.Append(v.Value(i))
				continue
			}
		}
		b.AppendNull()
	}
	plain := b.NewArray()
	defer plain.Release()
	plain.Data().Retain()
	return plain.Data(), nil
}
