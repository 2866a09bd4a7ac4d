package rowscan

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// ErrNoRows says that a result has no row where one was asked for. It is found as
// sql.ErrNoRows too.
var ErrNoRows error = noRows{}

type noRows struct{}

func (noRows) Error() string        { return "the result has no rows" }
func (noRows) Is(target error) bool { return target == sql.ErrNoRows }

// Collect reads all rows of r as Rows does. Where it
// fails it returns no rows.
func Collect[T any](r Result) ([]T, error) {
	rows := []T{}
	for row, err := range Rows[T](r) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// CollectOne reads the first row of r as Collect does and passes over the others. The
// error is ErrNoRows where there is none. It ends r as ScanOne does.
func CollectOne[T any](r Result) (T, error) {
	var none, first T
	err := endAfter(r, func() error {
		for row, err := range Rows[T](r) {
			first = row
			return err
		}
		return ErrNoRows
	})
	if err != nil {
		return none, err
	}
	return first, nil
}

// ScanOne sets what dest points to, one for each column, to the first row of r, and
// passes over the others. Values arrive as Collect has it; a nil in dest passes over a
// column. The error is ErrNoRows where there is no row. After an error nothing is set:
// a Scan method is called on a copy of what has it, which then takes its place.
//
// It releases r. A *session.QueryResult is closed: whether a statement that changes
// something has succeeded, which INSERT … RETURNING tells at its end, is told.
func ScanOne(r Result, dest ...any) error {
	columns := r.Schema().NumFields()
	if columns == 0 { // of a statement without rows
		r.Release()
		return ErrNoRows
	}
	targets, err := targetsOf(dest, columns)
	if err != nil {
		r.Release()
		return err
	}
	var row []reflect.Value
	err = endAfter(r, func() error {
		for batch, err := range r.Batches() {
			if err != nil {
				return err
			}
			if batch.NumRows() > 0 {
				row, err = targets.read(batch)
				return err
			}
		}
		return ErrNoRows
	})
	if err == nil {
		targets.set(row)
	}
	return err
}

// endAfter calls read, which may release r before its end, and adds what r tells of its
// end where it can: a server may refuse a change after the first row of it.
func endAfter(r Result, read func() error) error {
	c, ok := r.(interface {
		Retain()
		Close() error
	})
	if !ok {
		return read()
	}
	c.Retain() // the end is Close's
	defer r.Release()
	err := read()
	if end := c.Close(); end != nil && !errors.Is(err, end) {
		return errjoin.Join(err, end)
	}
	return err
}

// target is what one column is scanned into. Without a setter its column is passed
// over.
type target struct {
	dst reflect.Value
	set setter
}

type targets []target

// targetsOf plans dest for a result of so many columns. All faults are reported.
func targetsOf(dest []any, columns int) (targets, error) {
	if len(dest) != columns {
		return nil, countFault(dest, columns)
	}
	made := setters{}
	found := make(targets, len(dest))
	var faults []error
	for i, d := range dest {
		if d == nil {
			continue
		}
		v := reflect.ValueOf(d)
		if _, scans := d.(sql.Scanner); scans && v.Kind() != reflect.Pointer { // what it refers to is set
			v = reflect.New(v.Type())
			v.Elem().Set(reflect.ValueOf(d))
		}
		if v.Kind() != reflect.Pointer || v.IsNil() {
			faults = append(faults, fmt.Errorf("destination %d is of type %T: give a pointer that is not nil", i+1, d))
			continue
		}
		set, err := made.of(v.Type().Elem())
		if err != nil {
			faults = append(faults, fmt.Errorf("destination %d: %w", i+1, err))
			continue
		}
		found[i] = target{v.Elem(), set}
	}
	return found, errjoin.Join(faults...)
}

// countFault says that there are not as many destinations as columns.
func countFault(dest []any, columns int) error {
	hint := ""
	if len(dest) == 1 {
		if t := reflect.TypeOf(dest[0]); t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
			hint = ": a row is read into a struct by CollectOneRow"
		}
	}
	return fmt.Errorf("Scan was given %s for %s of the result%s", counted(len(dest), "destination"), counted(columns, "column"), hint)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// read reads the first row of batch into copies. Those with a Scan method begin as what
// they are copies of: it may say where the method sets its value.
func (t targets) read(batch arrow.RecordBatch) ([]reflect.Value, error) {
	copies := make([]reflect.Value, len(t))
	for i, one := range t {
		if one.set == nil {
			continue
		}
		copies[i] = reflect.New(one.dst.Type()).Elem()
		if copies[i].Addr().Type().Implements(scannerType) {
			copies[i].Set(one.dst)
		}
		if err := one.set(copies[i], valueOf(batch.Column(i), 0)); err != nil {
			return nil, fmt.Errorf("column %q: %w", batch.ColumnName(i), err)
		}
	}
	return copies, nil
}

// set sets all targets to what read has made.
func (t targets) set(row []reflect.Value) {
	for i, one := range t {
		if one.set != nil {
			one.dst.Set(row[i])
		}
	}
}
