// Package sample has mutants whose fate is known.
package sample

import (
	"errors"

	"github.com/flightpool/flightpool/internal/invariant"
)

var errNegative = errors.New("negative")

// Clamp returns v within [0, limit], and an error when v is negative.
func Clamp(v, limit int) (int, error) {
	if v < 0 {
		return 0, errNegative
	}
	if v > limit {
		v = limit
	}
	return v, nil
}

// Both tells whether a and b are true; its test looks at one case only.
func Both(a, b bool) bool { return a && b }

// Unused is reached by no test.
func Unused(n int) int { return n + 1 }

// Last ends when the list does.
func Last(list []int) (last int) {
	for i := 0; i < len(list); i++ {
		last = list[i]
		if last == 0 {
			break
		}
	}
	return last
}

// Drain counts down. Without its decrement it never returns.
func Drain(n int) int {
	for n > 0 {
		n--
	}
	return n
}

// Check is there for its check.
func Check(n int) {
	next := n + 1
	invariant.Check(next > n, "%d", n)
}
