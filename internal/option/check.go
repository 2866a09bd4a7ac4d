package option

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// NotOff is the Check of what cannot be turned off.
func NotOff[T int | time.Duration](v T) error {
	if v < 0 {
		return errors.New("cannot be switched off")
	}
	return nil
}

// AtLeastOne is the Check of numbers that cannot be turned off.
func AtLeastOne(n int) error {
	if n < 0 {
		return fmt.Errorf("%d is less than 1", n)
	}
	return nil
}

// HasUnit is the Check of durations that nobody makes shorter than 1ms but by
// writing 30 where 30*time.Second is meant.
func HasUnit(d time.Duration) error {
	if d > 0 && d < time.Millisecond {
		return fmt.Errorf("%v is less than 1ms: is the unit missing?", d)
	}
	return nil
}

// Bounds is the Check of durations that bound something, whatever happens.
func Bounds(d time.Duration) error { return cmp.Or(NotOff(d), HasUnit(d)) }
