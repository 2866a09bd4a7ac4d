//go:build duckdb_arrow

package duckdb

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	capi "github.com/duckdb/duckdb-go-bindings"
)

// checkBatch refuses Arrow data that is unsafe to read, since C++ reads it next.
// Arrow's own validation panics where offsets in the middle are out of bounds.
func checkBatch(batch arrow.RecordBatch) (err error) {
	if batch == nil {
		return nil
	}
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("duckdb error: malformed Arrow data: %v", fault)
		}
	}()
	for i, col := range batch.Columns() {
		if v, ok := col.(interface{ ValidateFull() error }); ok {
			if err := v.ValidateFull(); err != nil {
				return fmt.Errorf("duckdb error: column %q: %w", batch.ColumnName(i), err)
			}
		}
	}
	return nil
}

// bind sets the parameters from one row: each from the column of its name if
// all of them have one, else by position.
func (st *statement) bind(params arrow.RecordBatch, row int) error {
	n := int(capi.NParams(st.handle))
	if params == nil {
		if n > 0 {
			return fmt.Errorf("duckdb error: the statement has %d parameters, none is given", n)
		}
		return nil
	}
	if int(params.NumCols()) != n {
		return fmt.Errorf("duckdb error: the statement has %d parameters, %d are given", n, params.NumCols())
	}
	for i, col := range st.columns(params) {
		v, err := newValue(params.Column(col), row)
		if err != nil {
			return fmt.Errorf("duckdb error: parameter %d: %w", i+1, err)
		}
		state := capi.BindValue(st.handle, capi.IdxT(i+1), v)
		capi.DestroyValue(&v)
		if state == capi.StateError {
			return statementError(capi.PrepareError(st.handle))
		}
	}
	return nil
}

// columns tells which column of params each parameter takes.
func (st *statement) columns(params arrow.RecordBatch) []int {
	n := int(params.NumCols())
	named, positions := make([]int, n), make([]int, n)
	byName := true
	for i := range n {
		positions[i] = i
		found := params.Schema().FieldIndices(capi.ParameterName(st.handle, capi.IdxT(i+1)))
		if len(found) != 1 {
			byName = false
			continue
		}
		named[i] = found[0]
	}
	if byName {
		return named
	}
	return positions
}

// newValue makes a DuckDB value, which the caller destroys.
func newValue(a arrow.Array, row int) (capi.Value, error) {
	if a.IsNull(row) || a.DataType().ID() == arrow.NULL {
		return capi.CreateNullValue(), nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return capi.CreateBool(a.Value(row)), nil
	case *array.Int8:
		return capi.CreateInt8(a.Value(row)), nil
	case *array.Int16:
		return capi.CreateInt16(a.Value(row)), nil
	case *array.Int32:
		return capi.CreateInt32(a.Value(row)), nil
	case *array.Int64:
		return capi.CreateInt64(a.Value(row)), nil
	case *array.Uint8:
		return capi.CreateUInt8(a.Value(row)), nil
	case *array.Uint16:
		return capi.CreateUInt16(a.Value(row)), nil
	case *array.Uint32:
		return capi.CreateUInt32(a.Value(row)), nil
	case *array.Uint64:
		return capi.CreateUInt64(a.Value(row)), nil
	case *array.Float16:
		return capi.CreateFloat(a.Value(row).Float32()), nil
	case *array.Float32:
		return capi.CreateFloat(a.Value(row)), nil
	case *array.Float64:
		return capi.CreateDouble(a.Value(row)), nil
	case array.StringLike:
		return newText(a.Value(row))
	case interface{ Value(int) []byte }:
		return capi.CreateBlob(a.Value(row)), nil
	case *array.Dictionary:
		return newValue(a.Dictionary(), a.GetValueIndex(row))
	case *array.RunEndEncoded:
		return newValue(a.Values(), a.GetPhysicalIndex(row))
	case array.ExtensionArray:
		return newValue(a.Storage(), row)
	case *array.Map:
	case array.ListLike:
		return newList(a, row)
	}
	if t, ok := a.DataType().(arrow.DecimalType); ok {
		return newDecimal(a, t, row)
	}
	return newTemporal(a, row)
}

// newText refuses what would make DuckDB throw out of its C interface.
func newText(s string) (capi.Value, error) {
	if !utf8.ValidString(s) {
		return capi.Value{}, errors.New("not valid UTF-8")
	}
	return capi.CreateVarchar(s), nil
}

// newList makes a list, of lists too. DuckDB casts NULLs and empty lists to the type of
// the elements, which the column tells.
func newList(a array.ListLike, row int) (capi.Value, error) {
	from, to := a.ValueOffsets(row)
	values := make([]capi.Value, 0, to-from)
	defer func() {
		for i := range values {
			capi.DestroyValue(&values[i])
		}
	}()
	for i := from; i < to; i++ {
		v, err := newValue(a.ListValues(), int(i))
		if err != nil {
			return capi.Value{}, fmt.Errorf("element %d: %w", i-from, err)
		}
		values = append(values, v)
	}
	t, err := typeOf(a.DataType().(arrow.ListLikeType).Elem())
	if err != nil {
		return capi.Value{}, err
	}
	defer capi.DestroyLogicalType(&t)
	return capi.CreateListValue(t, values), nil
}

// typeOf is DuckDB's type of the parameters of an Arrow type. The caller destroys it.
func typeOf(t arrow.DataType) (capi.LogicalType, error) {
	if list, ok := t.(arrow.ListLikeType); ok && t.ID() != arrow.MAP {
		element, err := typeOf(list.Elem())
		if err != nil {
			return element, err
		}
		defer capi.DestroyLogicalType(&element)
		return capi.CreateListType(element), nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	b.AppendEmptyValue()
	sample := b.NewArray()
	defer sample.Release()
	v, err := newValue(sample, 0)
	if err != nil {
		return capi.LogicalType{}, err
	}
	defer capi.DestroyValue(&v)
	if d, ok := t.(arrow.DecimalType); ok {
		return capi.CreateDecimalType(uint8(d.GetPrecision()), uint8(d.GetScale())), nil
	}
	return capi.CreateLogicalType(capi.GetTypeId(capi.GetValueType(v))), nil
}
