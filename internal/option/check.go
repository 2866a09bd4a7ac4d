package option

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

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
