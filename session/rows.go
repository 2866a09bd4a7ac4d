package session

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Rows iterates the rows of r as structs of type T and releases r at the end
// of the loop, however that comes. An error is the last pair.
//
// A column goes to the exported field whose `arrow:"name"` tag, or else whose
// name, equals its name, in any case; `arrow:"-"` leaves a field out. A field
// without a column is an error, a column without a field is passed over.
//
// Integers, floats, bools, strings, []byte, time.Time, time.Duration, slices,
// structs, maps and any take the Arrow types that fit without loss; strings
// take any. NULL needs a pointer, an any or an sql.Scanner (which gets the
// plain Go value); elsewhere it is an error that names the column and row.
// Strings may share the memory of the batch: where a driver in C owns it, clone
// those that outlive the turn.
func Rows[T any](r *QueryResult) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer r.Release()
		var none T
		plan, err := planRow(reflect.TypeFor[T](), r.Schema())
		if err != nil {
			yield(none, err)
			return
		}
		row := 0
		for r.Next() {
			batch := r.RecordBatch()
			for i := range int(batch.NumRows()) {
				var v T
				if err := plan.fill(reflect.ValueOf(&v).Elem(), batch, i); err != nil {
					yield(none, fmt.Errorf("row %d: %w", row, err))
					return
				}
				if !yield(v, nil) {
					return
				}
				row++
			}
		}
		if err := r.Err(); err != nil {
			yield(none, err)
		}
	}
}

// rowPlan tells which column goes to which field. It is made once a result.
type rowPlan []struct {
	column int
	name   string
	field  []int
}

func planRow(t reflect.Type, schema *arrow.Schema) (rowPlan, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("Rows needs a struct type, not %s", t)
	}
	columns := make(map[string]int, schema.NumFields())
	for i := schema.NumFields() - 1; i >= 0; i-- { // the first of a name counts
		columns[strings.ToLower(schema.Field(i).Name)] = i
	}
	var plan rowPlan
	var faults []error
	for _, f := range reflect.VisibleFields(t) {
		name, tagged := f.Tag.Lookup("arrow")
		if !f.IsExported() || name == "-" || (f.Anonymous && !tagged) {
			continue
		}
		if !tagged {
			name = f.Name
		}
		at, ok := columns[strings.ToLower(name)]
		if !ok {
			faults = append(faults, fmt.Errorf("field %s: the result has no column %q", f.Name, name))
			continue
		}
		if !scannable(f.Type) {
			faults = append(faults, fmt.Errorf("field %s: type %s cannot hold a column", f.Name, f.Type))
			continue
		}
		plan = append(plan, struct {
			column int
			name   string
			field  []int
		}{at, name, f.Index})
	}
	return plan, errors.Join(faults...)
}

func (p rowPlan) fill(dst reflect.Value, batch arrow.RecordBatch, row int) error {
	for _, c := range p {
		if err := scan(dst.FieldByIndex(c.field), batch.Column(c.column), row); err != nil {
			return fmt.Errorf("column %q: %w", c.name, err)
		}
	}
	return nil
}
