// Package option describes the fields of a configuration, each in one place:
// what errors call it, its key in text, its default and its bounds. A package
// has one Table for its configuration, and from it follow the reading of text,
// the defaults, and the faults of single fields.
package option

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Off is what a number or a duration is when it was turned off: its zero means
// that it was not set.
const Off = -1

// Field describes a field of type T of the configuration C.
type Field[C, T any] struct {
	// Name is what errors call it: HealthCheck.Timeout. Where text has two keys
	// for one field, both rows have its name.
	Name string
	// Key is what text calls it: health_check_timeout. Empty: text cannot set it.
	Key string
	// At is where it is.
	At func(*C) *T
	// Read reads its text. Required with Key.
	Read func(text string) (T, error)
	// Default is what it is when it was not set.
	Default T
	// DefaultBy takes the place of Default where that depends on other fields.
	// Those before it in the table have their defaults then.
	DefaultBy func(*C) T
	// OffAs is what a whole number becomes with the defaults when it was turned
	// off. Nil: it stays negative.
	OffAs func(*C) T
	// Check finds what is wrong with its value. Nil: nothing can be.
	Check func(T) error
}

// Row is a Field of C of whatever type.
type Row[C any] interface {
	// Names returns the name in errors and the key in text.
	Names() (name, key string)
	// Pointer returns the field's place in c, a *T.
	Pointer(c *C) any
	// Parse reads a text and returns what sets the field to it.
	Parse(text string) (set func(*C), err error)
	// IsSet reports whether the field is not zero.
	IsSet(c *C) bool
	// ZeroIsText reports whether a text may mean the zero value, so that a field
	// that is zero may have been set. Of numbers and durations none does.
	ZeroIsText() bool
	// Reset makes the field zero.
	Reset(c *C)
	// Fill gives the field its default if it was not set.
	Fill(c *C)
	// Fault says what is wrong with its value.
	Fault(c *C) error
}

// Names is part of Row.
func (f Field[C, T]) Names() (name, key string) { return f.Name, f.Key }

// Pointer is part of Row.
func (f Field[C, T]) Pointer(c *C) any { return f.At(c) }

// Reset is part of Row.
func (f Field[C, T]) Reset(c *C) { *f.At(c) = *new(T) }

// IsSet is part of Row.
func (f Field[C, T]) IsSet(c *C) bool { return !reflect.ValueOf(f.At(c)).Elem().IsZero() }

// Parse is part of Row.
func (f Field[C, T]) Parse(text string) (set func(*C), err error) {
	v, err := f.Read(text)
	return func(c *C) { *f.At(c) = v }, err
}

// ZeroIsText is part of Row.
func (f Field[C, T]) ZeroIsText() bool {
	switch any(f.Default).(type) {
	case int, float64, time.Duration:
		return false
	}
	return true
}

// Fill is part of Row.
func (f Field[C, T]) Fill(c *C) {
	at := f.At(c)
	switch {
	case f.OffAs != nil && reflect.ValueOf(at).Elem().Int() < 0: // a number
		*at = f.OffAs(c)
	case f.IsSet(c):
	case f.DefaultBy != nil:
		*at = f.DefaultBy(c)
	default:
		*at = f.Default
	}
}

// Fault is part of Row.
func (f Field[C, T]) Fault(c *C) error {
	if f.Check != nil {
		if err := f.Check(*f.At(c)); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

// Table has the fields of C of which more is known than their types.
type Table[C any] []Row[C]

// Find returns the row of a key.
func (t Table[C]) Find(key string) (Row[C], bool) {
	for _, row := range t {
		if _, k := row.Names(); k == key && k != "" {
			return row, true
		}
	}
	return nil, false
}

// Keys are all keys, sorted.
func (t Table[C]) Keys() []string {
	var keys []string
	for _, row := range t {
		if _, key := row.Names(); key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Twins gives for each of two keys of one field the other one.
func (t Table[C]) Twins() map[string]string {
	keys, twins := map[string]string{}, map[string]string{}
	for _, row := range t {
		name, key := row.Names()
		if other := keys[name]; other != "" {
			twins[key], twins[other] = other, key
		}
		keys[name] = key
	}
	return twins
}

// Fill gives each field that was not set its default.
func (t Table[C]) Fill(c *C) {
	for _, row := range t {
		row.Fill(c)
	}
}

// Faults finds every field whose value is out of its bounds.
func (t Table[C]) Faults(c *C) []error {
	var faults []error
	for _, row := range t {
		if err := row.Fault(c); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// Refuse is a Check: what is wrong has the fault, in which %v stands for the value.
func Refuse[T any](wrong func(T) bool, fault string) func(T) error {
	return func(v T) error {
		if !wrong(v) {
			return nil
		}
		return errors.New(strings.ReplaceAll(fault, "%v", fmt.Sprint(v)))
	}
}

// Below0 finds what was turned off.
func Below0[T int | time.Duration](v T) bool { return v < 0 }

// AtLeastOne is the Check of numbers that cannot be turned off.
var AtLeastOne = Refuse(Below0[int], "%v is less than 1")

// NotOff is the Check of what cannot be turned off.
func NotOff[T int | time.Duration](v T) error { return Refuse(Below0[T], "cannot be switched off")(v) }

// HasUnit is the Check of durations that nobody makes shorter than 1ms but by
// writing 30 where 30*time.Second is meant.
var HasUnit = Refuse(func(d time.Duration) bool { return d > 0 && d < time.Millisecond }, "%v is less than 1ms: is the unit missing?")

// Bounds is the Check of durations that bound something, whatever happens.
func Bounds(d time.Duration) error { return cmp.Or(NotOff(d), HasUnit(d)) }

// Collect gives a function that adds a fault where something is wrong, and where the
// faults are then. Their texts begin with prefix.
func Collect(prefix string) (fault func(wrong bool, format string, args ...any), faults *[]error) {
	faults = new([]error)
	return func(wrong bool, format string, args ...any) {
		if wrong {
			*faults = append(*faults, fmt.Errorf(prefix+format, args...))
		}
	}, faults
}
