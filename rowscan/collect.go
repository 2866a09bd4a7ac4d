package rowscan

import (
	"database/sql"
	"fmt"
	"reflect"

	"github.com/flightpool/flightpool/internal/errjoin"
)

// ErrNoRows says that a result has no row where one was asked for. It is found as
// sql.ErrNoRows too.
var ErrNoRows error = noRows{}

type noRows struct{}

func (noRows) Error() string        { return "the result has no rows" }
func (noRows) Is(target error) bool { return target == sql.ErrNoRows }

// Collect reads all rows of r as Rows does, but its strings own their memory. Where it
// fails it returns no rows.
func Collect[T any](r Result) ([]T, error) {
	rows := []T{}
	for row, err := range scanRows[T](r, true) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// CollectOne reads the first row of r as Collect does and passes over the others. The
// error is ErrNoRows where there is none.
func CollectOne[T any](r Result) (T, error) {
	for row, err := range scanRows[T](r, true) {
		return row, err
	}
	var none T
	return none, ErrNoRows
}

// ScanOne sets what dest points to, one for each column, to the first row of r, and
// passes over the others. Values arrive as Collect has it; a nil in dest passes over a
// column. The error is ErrNoRows where there is no row. After an error nothing is set.
// It releases r.
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
	for batch, err := range r.Batches() {
		if err != nil {
			return err
		}
		if batch.NumRows() == 0 {
			continue
		}
		return targets.set(func(column int) value { return valueOf(batch.Column(column), 0) }, func(column int) string { return batch.ColumnName(column) })
	}
	return ErrNoRows
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
		return nil, fmt.Errorf("the result has %d columns, Scan was given %d destinations", columns, len(dest))
	}
	made := newSetters(true)
	found := make(targets, len(dest))
	var faults []error
	for i, d := range dest {
		if d == nil {
			continue
		}
		v := reflect.ValueOf(d)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			faults = append(faults, fmt.Errorf("destination %d is a %T: give a pointer that is not nil", i+1, d))
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

// set sets all targets, or none: each is set in a copy first.
func (t targets) set(column func(int) value, name func(int) string) error {
	copies := make([]reflect.Value, len(t))
	for i, one := range t {
		if one.set == nil {
			continue
		}
		copies[i] = reflect.New(one.dst.Type()).Elem()
		if err := one.set(copies[i], column(i)); err != nil {
			return fmt.Errorf("column %q: %w", name(i), err)
		}
	}
	for i, one := range t {
		if one.set != nil {
			one.dst.Set(copies[i])
		}
	}
	return nil
}
