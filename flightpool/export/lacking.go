package export

import (
	"errors"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// What a file of Parquet would have other values for, without a word of arrow-go's writer.
var (
	errNullHere   = errors.New("it has a NULL, and its schema says that it has none")
	errDateOfTime = errors.New("a date has a time of day, which Parquet's dates lack")
	errDateTooFar = errors.New("a date is beyond those of Parquet, of 32 bits of days")
	errTimeTooBig = errors.New("a time in seconds is beyond what milliseconds hold")
)

const dayMillis = 24 * 60 * 60 * 1000

// mayLack reports whether Parquet can lack values of a column, which are looked at then.
func mayLack(f arrow.Field) bool {
	switch t := f.Type.(type) {
	case arrow.ExtensionType:
		return mayLack(arrow.Field{Type: t.StorageType(), Nullable: f.Nullable})
	case *arrow.DictionaryType:
		return mayLack(arrow.Field{Type: t.ValueType, Nullable: f.Nullable})
	case arrow.NestedType:
		return !f.Nullable || slices.ContainsFunc(t.Fields(), mayLack)
	}
	return !f.Nullable || f.Type.ID() == arrow.DATE64 || f.Type.ID() == arrow.TIME32
}

// lacking says why Parquet lacks a value of col, or nil. Rows that shown is false for stand
// in NULLs of what col is a part of: what is in them is no value.
func lacking(f arrow.Field, col arrow.Array, shown func(row int) bool) error {
	if ext, ok := col.(array.ExtensionArray); ok {
		col = ext.Storage()
	}
	valid := func(row int) bool { return shown(row) && col.IsValid(row) }
	if !f.Nullable && col.NullN() > 0 {
		for row := range col.Len() {
			if shown(row) && col.IsNull(row) {
				return errNullHere
			}
		}
	}
	switch c := col.(type) {
	case *array.Date64:
		for row := range c.Len() {
			if days := c.Value(row) / dayMillis; valid(row) && days*dayMillis != c.Value(row) {
				return errDateOfTime
			} else if valid(row) && (days > math.MaxInt32 || days < math.MinInt32) {
				return errDateTooFar
			}
		}
	case *array.Time32:
		for row := range c.Len() {
			if c.DataType().(*arrow.Time32Type).Unit == arrow.Second && valid(row) && (c.Value(row) > math.MaxInt32/1000 || c.Value(row) < math.MinInt32/1000) {
				return errTimeTooBig
			}
		}
	case *array.Struct:
		for i, member := range c.DataType().(*arrow.StructType).Fields() {
			if err := lacking(member, c.Field(i), valid); err != nil {
				return err
			}
		}
	case *array.Dictionary:
		return lacking(arrow.Field{Type: c.Dictionary().DataType(), Nullable: true}, c.Dictionary(), everyRow)
	case array.ListLike:
		return lackingItem(c, valid)
	}
	return nil
}

func everyRow(int) bool { return true }

// lackingItem is lacking of what the rows of lists have, and of no item between them.
func lackingItem(lists array.ListLike, valid func(row int) bool) error {
	items := lists.ListValues()
	var used []bool
	for row := range lists.Len() {
		if !valid(row) {
			continue
		}
		if used == nil {
			used = make([]bool, items.Len())
		}
		from, to := lists.ValueOffsets(row)
		for i := from; i < to; i++ {
			used[i] = true
		}
	}
	if used == nil {
		return nil
	}
	return lacking(lists.DataType().(arrow.ListLikeType).ElemField(), items, func(i int) bool { return used[i] })
}
