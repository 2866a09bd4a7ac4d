package rowscan

import (
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/structfields"
)

// Result is what rows are read from: a *session.QueryResult, or batches of
// any other origin.
//
// It is read once, by one goroutine. Rows and Maps end it in every case, so
// their caller has nothing to release.
type Result interface {
	Schema() *arrow.Schema
	// Batches iterates the batches, each valid until the next turn, and releases
	// the result at the end of the loop, however that comes. An error is the last
	// pair.
	Batches() iter.Seq2[arrow.RecordBatch, error]
	// Release ends a result that Batches was not asked of.
	Release()
}

// Rows iterates the rows of r as values of type T and releases r at the end of
// the loop, however that comes. An error is the last pair: ErrHandleClosed where
// r was released or closed before, by an earlier loop for example.
//
// If T is a struct, or a pointer to one, a column goes to the exported field
// whose `arrow:"name"` (or `db:"name"`) tag, or else whose name, equals its name, best in its
// very case, else in another, else without underscores, so that flight_date goes
// to FlightDate; `arrow:"-"` leaves a field out. A field without a column is an
// error, unless its tag ends in ",optional", and a column without a field is passed
// over; of columns with one name, the first counts. A struct without an exported
// field is an error. The fields of an embedded struct count as fields of T, and nil
// pointers to embedded structs are allocated, unless a tag makes the embedded struct
// a field of its own. A map[string]any takes the whole row, as Maps gives it. Any
// other T, time.Time, Decimal, types with a Scan method and netip.Addr among them, takes the
// value of a result's only column.
//
// A value arrives exactly, or the row is an error that names it:
//
//   - integers take integers, and decimals without a fraction, in their range;
//   - floats take integers, floats and decimals that are the same number; for a
//     decimal that is also the float which prints as it;
//   - Decimal takes decimals, integers, and texts that are numbers;
//   - strings take everything, see below; []byte and [n]byte take binary
//     values, texts and UUIDs, byte by byte;
//   - json.RawMessage takes texts and binary values byte by byte, JSON or not, and
//     everything else as AppendJSON writes it: lists, structs and maps, numbers, times;
//   - bool and time.Time take what they are; time.Duration takes durations,
//     times of day, intervals without months and days, and integers as
//     nanoseconds;
//   - slices take lists, arrays those of their length, structs take structs,
//     maps take maps, and structs where the keys are strings; a slice of structs
//     takes a map's entries by the names of their fields;
//   - any takes everything, as Value gives it;
//   - a type with a Scan method of database/sql is given nil, an int64, float64,
//     bool, []byte, string or time.Time: durations as nanoseconds, decimals,
//     larger integers and intervals as text, nested values as JSON;
//   - a struct, slice, array or map with an UnmarshalText method, such as the addresses
//     of net and net/netip or big.Int, is given texts, integers, decimals, times and
//     times of day as a string gets them (a time without a zone also as RFC 3339 has UTC's),
//     and takes everything else as what it is made of.
//
// NULL needs a pointer, a slice, a map, an any or a Scan method, or a struct of nothing but
// an embedded pointer with UnmarshalText. In a string,
// binary values are their bytes, times are as in RFC 3339, and nested values are
// JSON. Named types are as what they are made of. Extension types are those that
// the program has registered with Arrow, as importing arrow-go's arrow/extensions
// does: without that, a UUID arrives as 16 bytes, and a bool8 as an integer.
//
// The iteration belongs to the goroutine that runs the loop. Each turn gets a T
// of its own, which shares no memory with the batch and may be kept; texts of
// neighbouring rows share memory, at most 256 bytes of it. After an error nothing
// more comes. A T that cannot hold a row, or that the result does not fit, is an
// error before the first batch is read, but for a result without columns, which has no
// rows: there are servers that give whatever has none so.
func Rows[T any](r Result) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none, v T
		plan, misfit := planRow(setters{}, reflect.TypeFor[T](), r.Schema())
		if misfit != nil && r.Schema().NumFields() > 0 {
			r.Release()
			yield(none, misfit)
			return
		}
		dst := reflect.ValueOf(&v).Elem()
		row := 0
		for batch, err := range r.Batches() {
			if misfit != nil && err == nil && batch.NumRows() > 0 {
				err = misfit
			}
			if err != nil {
				yield(none, err)
				return
			}
			if misfit != nil {
				continue
			}
			plan.bind(dst, batch)
			for i := range int(batch.NumRows()) {
				v = none
				if err := plan.fill(dst, batch, i); err != nil {
					yield(none, fmt.Errorf("row %d: %w", row, err))
					return
				}
				if !yield(v, nil) {
					return
				}
				row++
			}
		}
	}
}

// rowPlan tells which column goes to which field. It is made once a result. It
// belongs to one loop, as the setters in it keep what they have learned of the
// columns.
//
// Without row, columns are set in the T itself. With it, each row gets a struct
// of its own, to which the T then points. With names, the T is a map of all columns.
type rowPlan struct {
	columns []columnPlan
	row     reflect.Type // of a T that is a pointer to a struct
	names   []string     // of a T that is a map: the key of each column
}

// columnPlan is a field and the number of its column in the batches of the
// result.
type columnPlan struct {
	field
	column int
	direct directCopy // of the batch at hand, or nil
}

// planRow plans rows of type t for the columns of schema. A struct that takes a
// whole column, such as time.Time, is no row but one value (isScalar). Every
// fault of a struct is told, not only the first.
func planRow(made setters, t reflect.Type, schema *arrow.Schema) (rowPlan, error) {
	if t == mapType {
		return rowPlan{names: uniqueNames(schema.Fields())}, nil
	}
	row := t
	if t.Kind() == reflect.Pointer {
		row = t.Elem()
	}
	if row.Kind() != reflect.Struct || isScalar(row) {
		return planColumn(made, t, schema)
	}
	fields, err := made.fieldsOf(row)
	if err != nil {
		return rowPlan{}, err
	}
	columns, err := planFields(fields, schema.Fields())
	plan := rowPlan{columns: columns}
	if row != t {
		plan.row = row
	}
	return plan, err
}

// planColumn is the plan of a T that is no row but one value. A struct that
// takes a whole column is one, and so is a pointer to it.
func planColumn(made setters, t reflect.Type, schema *arrow.Schema) (rowPlan, error) {
	set, err := made.of(t)
	if err != nil {
		return rowPlan{}, err
	}
	if n := schema.NumFields(); n != 1 {
		return rowPlan{}, fmt.Errorf("the result has %d columns, and %s takes one: select one, or use a struct or map[string]any", n, t)
	}
	return rowPlan{columns: []columnPlan{{field: field{structfields.Field{Name: schema.Field(0).Name}, set}}}}, nil
}

// planFields finds a column for each field: one of its very name, or else the
// first that has it in another case, or else without underscores.
//
// Databases fold the case of names, each in its own way, so that a field must
// be found whatever came of it. Columns of equal names: the first counts. A
// field without a column is a fault, since its zero would look like data.
func planFields(fields []field, columns []arrow.Field) ([]columnPlan, error) {
	spellings := []func(string) string{strings.Clone, strings.ToLower, squeezed}
	found := make([]map[string]int, len(spellings))
	for s, spell := range spellings {
		found[s] = make(map[string]int, len(columns))
		for i := len(columns) - 1; i >= 0; i-- { // the first of a name counts
			found[s][spell(columns[i].Name)] = i
		}
	}
	var plan []columnPlan
	var faults []error
	for _, f := range fields {
		at, ok := 0, false
		for s := 0; s < len(spellings) && !ok; s++ {
			at, ok = found[s][spellings[s](f.Name)]
		}
		if name := f.Name; ok {
			f.Name = columns[at].Name
			plan = append(plan, columnPlan{field: f, column: at})
		} else if !f.Optional {
			faults = append(faults, fmt.Errorf("field %s: the result has no column %q", f.GoName, name))
		}
	}
	return plan, errjoin.Join(faults...)
}

// squeezed is a name in small letters without underscores.
func squeezed(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// fill sets dst, which is zero, to one row of batch. After an error dst is set
// in part and must not be used.
func (p rowPlan) fill(dst reflect.Value, batch arrow.RecordBatch, row int) error {
	if p.names != nil {
		dst.Set(reflect.ValueOf(mapOf(p.names, batch, row)))
		return nil
	}
	if p.row != nil {
		dst.Set(reflect.New(p.row))
		dst = dst.Elem()
	}
	for i := range p.columns {
		c := &p.columns[i]
		if c.direct != nil && c.direct(row) {
			continue
		}
		v := valueOf(batch.Column(c.column), row)
		if err := c.set(c.locate(dst), v); err != nil {
			return fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	return nil
}
