package option

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Number is how a text writes a whole number.
type Number struct {
	Least int    // below it it is refused; what is left of 0 and below is Off
	Most  int    // above it it is refused; 0: nothing is too much
	Wrong string // what an error says of such a text: is not a number
}

// Read reads one.
func (n Number) Read(text string) (int, error) {
	v, err := strconv.Atoi(text)
	if err != nil || v < n.Least || n.Most > 0 && v > n.Most {
		return 0, wrong(text, n.Wrong)
	}
	return orOff(v), nil
}

// Duration is how a text writes a duration.
type Duration struct {
	Least time.Duration // below it it is refused; what is left of 0 and below is Off
	Unit  time.Duration // of a number without one; 0: such a number is refused
	Wrong string        // what an error says of such a text: is not a duration
}

// Read reads one.
func (d Duration) Read(text string) (time.Duration, error) {
	v, err := time.ParseDuration(text)
	if n, bare := strconv.ParseInt(text, 10, 64); bare == nil && d.Unit > 0 {
		v, err = time.Duration(n)*d.Unit, nil
		if v/d.Unit != time.Duration(n) {
			err = errors.New("too long")
		}
	}
	if err != nil || v < d.Least {
		return 0, wrong(text, d.Wrong)
	}
	return orOff(v), nil
}

// Float is how a text writes a number of which 0 is Off.
type Float struct {
	Check func(float64) error // refuses others than 0
	Wrong string              // what an error says of such a text: is not a rate
}

// Read reads one.
func (f Float) Read(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v != 0 && f.Check(v) != nil {
		return 0, wrong(text, f.Wrong)
	}
	if v == 0 {
		return Off, nil
	}
	return v, nil
}

func orOff[T int | time.Duration](v T) T {
	if v <= 0 {
		return Off
	}
	return v
}

// NeverOff is read for fields that cannot be turned off; fault says so.
func NeverOff[T int | float64 | time.Duration](read func(string) (T, error), fault string) func(string) (T, error) {
	return func(text string) (T, error) {
		v, err := read(text)
		if err == nil && v < 0 {
			return 0, errors.New(fault)
		}
		return v, err
	}
}

// Bool reads what strconv.ParseBool does.
func Bool(text string) (bool, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, wrong(text, "is neither true nor false")
	}
	return v, nil
}

// Switch reads true, on, yes, 1 and their opposites, in any case.
func Switch(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "on", "yes", "1":
		return true, nil
	case "false", "off", "no", "0":
		return false, nil
	}
	return false, wrong(text, "is neither true nor false")
}

// Not is read for fields that say the opposite of their key.
func Not(read func(string) (bool, error)) func(string) (bool, error) {
	return func(text string) (bool, error) {
		v, err := read(text)
		return !v, err
	}
}

// Text takes every text as it is.
func Text(text string) (string, error) { return text, nil }

// Choice reads one of the names, which ", " separates, as the value in its place.
func Choice[T any](names string, values ...T) func(string) (T, error) {
	return choice(func(a, b string) bool { return a == b }, names, values)
}

// ChoiceInAnyCase is Choice for names that may be written in capitals.
func ChoiceInAnyCase[T any](names string, values ...T) func(string) (T, error) {
	return choice(strings.EqualFold, names, values)
}

func choice[T any](equal func(a, b string) bool, names string, values []T) func(string) (T, error) {
	return func(text string) (T, error) {
		for i, name := range strings.Split(names, ", ") {
			if equal(name, text) {
				return values[i], nil
			}
		}
		return *new(T), wrong(text, "is none of "+names)
	}
}

// Quote shows a text that holds no secret, or its beginning if it is long.
func Quote(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return strconv.Quote(text)
}

func wrong(text, how string) error { return fmt.Errorf("%s %s", Quote(text), how) }
