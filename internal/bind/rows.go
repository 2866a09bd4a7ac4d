package bind

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/structfields"
	"github.com/flightpool/flightpool/rowscan"
)

// batchBytes is about how large a batch of Rows becomes.
const batchBytes = 1 << 20

// Rows are structs as an array.RecordReader, read as they are asked for. It belongs to
// one goroutine at a time; the last Release calls stop.
//
// The type of a column is that of its first value which is not NULL, or, where the first
// batch has none, what the type of the field says; for Decimals see decimalColumn. A value of another type is an error
// that names its row and field, as is one that cannot be sent.
type Rows struct {
	refs    atomic.Int64
	next    func() (row reflect.Value, ok bool)
	stop    func()
	fields  []structfields.Field
	schema  *arrow.Schema // nil until the first batch is made
	pending arrow.RecordBatch
	current arrow.RecordBatch
	row     int // of the next struct, from 0
	err     error
}

// RowsOf reads structs of type t, or pointers to such. A column is named by the tag
// `arrow:"name"` of its field, or as the field is, in small letters with underscores.
func RowsOf(t reflect.Type, next func() (reflect.Value, bool), stop func()) (*Rows, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || isOneValue(t) {
		return nil, fmt.Errorf("rows are structs, with a field for each column, not %s", t)
	}
	fields, err := structfields.Of(t, isOneValue)
	faults := []error{err}
	if err == nil && len(fields) == 0 {
		faults = append(faults, fmt.Errorf("%s has no field for a column", t))
	}
	taken := make(map[string]string)
	for i, f := range fields {
		if !f.Tagged {
			fields[i].Name = snakeCase(f.Name)
		}
		if other, twice := taken[fields[i].Name]; twice {
			faults = append(faults, fmt.Errorf("fields %s and %s are both column %q", other, f.GoName, fields[i].Name))
		}
		taken[fields[i].Name] = f.GoName
	}
	r := &Rows{next: next, stop: stop, fields: fields}
	r.refs.Store(1)
	return r, errjoin.Join(faults...)
}

// isOneValue reports whether a struct type is sent as one value. One with a MarshalText
// method, maybe of a struct that it embeds, and with fields is a row, as rowscan has it.
func isOneValue(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return t == timeType || pointer.Implements(valuerType) || pointer.Implements(marshalerType) && structfields.IsOpaque(t)
}

// snakeCase is FlightNo as flight_no, and HTTPPort as http_port.
func snakeCase(name string) string {
	var out strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		begins := i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if begins && letters[i-1] != '_' {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// Retain is part of array.RecordReader.
func (r *Rows) Retain() { r.refs.Add(1) }

// Release is part of array.RecordReader.
func (r *Rows) Release() {
	if r.refs.Add(-1) > 0 {
		return
	}
	for _, batch := range []arrow.RecordBatch{r.pending, r.current} {
		if batch != nil {
			batch.Release()
		}
	}
	r.stop()
}

// Schema is part of array.RecordReader. It reads the first batch.
func (r *Rows) Schema() *arrow.Schema {
	if r.schema == nil {
		r.fill()
	}
	return r.schema
}

// Next is part of array.RecordReader.
func (r *Rows) Next() bool {
	if r.current != nil {
		r.current.Release()
		r.current = nil
	}
	if r.pending == nil && r.err == nil {
		r.fill()
	}
	r.current, r.pending = r.pending, nil
	return r.current != nil
}

// RecordBatch is part of array.RecordReader.
func (r *Rows) RecordBatch() arrow.RecordBatch { return r.current }

// Record is part of array.RecordReader.
//
// Deprecated: it is RecordBatch.
func (r *Rows) Record() arrow.RecordBatch { return r.current }

// Err is part of array.RecordReader.
func (r *Rows) Err() error { return r.err }

// fill reads the next batch, if there is one. Of rows that have failed no batch is left.
func (r *Rows) fill() {
	var rows [][]Value
	first := r.row
	for size := 0; size < batchBytes; r.row++ {
		row, ok := r.next()
		if !ok {
			break
		}
		values, err := r.read(row)
		if err != nil {
			r.err = fmt.Errorf("row %d: %w", r.row, err)
			break
		}
		for _, v := range values {
			size += v.size()
		}
		rows = append(rows, values)
	}
	if r.schema == nil {
		r.schema = r.schemaOf(rows)
	}
	if r.err == nil && len(rows) > 0 {
		r.pending, r.err = r.batchOf(rows, first)
	}
}

// read reads the fields of a row. Those of an embedded nil pointer are NULL.
func (r *Rows) read(row reflect.Value) ([]Value, error) {
	if row.Kind() == reflect.Pointer {
		if row.IsNil() {
			return nil, fmt.Errorf("is a nil %s", row.Type())
		}
		row = row.Elem()
	}
	values := make([]Value, len(r.fields))
	for i, f := range r.fields {
		at, err := row.FieldByIndexErr(f.Path)
		if err != nil {
			continue // an embedded nil pointer
		}
		if values[i], err = ValueOf(at.Interface()); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.GoName, err)
		}
	}
	return values, nil
}

func (r *Rows) schemaOf(rows [][]Value) *arrow.Schema {
	columns := make([]arrow.Field, len(r.fields))
	for i, f := range r.fields {
		t := elementType(f.Type, 0)
		isDecimal := isDecimalField(f.Type)
		telling := slices.IndexFunc(rows, func(row []Value) bool { return row[i].hasType() })
		if telling < 0 { // a list without values is one of whatever
			telling = slices.IndexFunc(rows, func(row []Value) bool { return row[i].v != nil })
		}
		if telling >= 0 {
			t = rows[telling][i].arrowType()
			_, isDecimal = rows[telling][i].v.(rowscan.Decimal)
		}
		if isDecimal {
			t = decimalColumn(rows, i)
		}
		columns[i] = arrow.Field{Name: f.Name, Type: t, Nullable: true}
	}
	return arrow.NewSchema(columns, nil)
}

func (r *Rows) batchOf(rows [][]Value, first int) (arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, r.schema)
	defer b.Release()
	for n, row := range rows {
		for i, v := range row {
			want := r.schema.Field(i).Type
			err := error(nil)
			d, isDecimal := v.v.(rowscan.Decimal)
			if isDecimal && arrow.IsDecimal(want.ID()) {
				err = appendDecimal(b.Field(i), d)
			} else if !v.isOf(want) {
				err = fmt.Errorf("is %v, the rows before are %v", v.arrowType(), want)
			} else {
				err = v.AppendTo(b.Field(i))
			}
			if err != nil {
				return nil, fmt.Errorf("row %d: field %s: %w", first+n, r.fields[i].GoName, err)
			}
		}
	}
	return b.NewRecordBatch(), nil
}

// size is about how many bytes the value takes in a batch.
func (v Value) size() int {
	switch v := v.v.(type) {
	case string:
		return 8 + len(v)
	case []byte:
		return 8 + len(v)
	case list:
		size := 8
		for _, item := range v.items {
			size += item.size()
		}
		return size
	case rowscan.Decimal:
		return 16
	default:
		return 8
	}
}
