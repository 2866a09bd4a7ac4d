package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A report takes down what stories saw.
type report struct {
	out    io.Writer
	broken []error
}

// table prints a title and rows, the first of which names the columns.
func (r *report) table(title string, rows [][]string) {
	fmt.Fprintf(r.out, "\n%s\n", title)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush() // nothing can be done about a failed print
}

// claim notes that something the project promises did not hold.
func (r *report) claim(holds bool, format string, args ...any) {
	if !holds {
		r.broken = append(r.broken, fmt.Errorf(format, args...))
	}
}

// figure is a claim whose truth depends on time and the machine's speed too.
func (r *report) figure(s scale, holds bool, format string, args ...any) {
	r.claim(holds || s.short || s.brief, format, args...)
}

func (r *report) verdict() error { return errors.Join(r.broken...) }

// row makes text of values.
func row(values ...any) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return texts
}

// quantile of durations in microseconds, to three digits.
func quantile(us []int, q float64) time.Duration {
	if len(us) == 0 {
		return 0
	}
	slices.Sort(us)
	d := time.Duration(us[min(len(us)-1, int(q*float64(len(us))))]) * time.Microsecond
	for _, unit := range []time.Duration{time.Millisecond, 100 * time.Microsecond, 10 * time.Microsecond} {
		if d >= 100*unit {
			return d.Round(unit)
		}
	}
	return d
}
