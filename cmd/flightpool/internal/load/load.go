// Package load runs statements on a pool from many goroutines, each of which
// sends the next one when the last has ended, and measures how long they take.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/flightpool"
)

// Options are a load.
type Options struct {
	Goroutines int
	Duration   time.Duration
	Statements []string // each goroutine runs them in turn
	Route      flightpool.Route
	// Text is an error for whoever reads the report. Nil: that of Error.
	Text func(error) string
}

// A Report is what a load has measured. Durations are in microseconds, of calls
// with all their rows. Calls and rows are those of calls that succeeded.
type Report struct {
	Seconds   float64        `json:"seconds"`
	Calls     int64          `json:"calls"`
	PerSecond float64        `json:"per_second"`
	Rows      int64          `json:"rows"`
	Mean      float64        `json:"mean_us"`
	Latency   []Quantile     `json:"latency"`
	Failures  int64          `json:"failures"`
	Errors    []ErrorOfKind  `json:"errors"`
	Pool      map[string]any `json:"pool"`

	// Refused is why a statement was not sent. It ended the load, since it would
	// not have been sent the next time either.
	Refused error `json:"-"`
}

// A Quantile is the duration that a part of the calls did not exceed.
type Quantile struct {
	Percent float64 `json:"percent"`
	Micros  int64   `json:"us"`
}

// ErrorOfKind counts the failures of one kind.
type ErrorOfKind struct {
	Kind    string `json:"kind"` // whose fault it was, and the server's status
	Count   int64  `json:"count"`
	Example string `json:"example"`
}

// percents are those of a Report.
var percents = []float64{50, 90, 99, 99.9, 100}

// longest bounds what a histogram holds; a call that takes longer counts as long as that.
const longest = time.Hour

// A worker is what one goroutine has measured.
type worker struct {
	times  *hdrhistogram.Histogram
	rows   int64
	errors map[string]ErrorOfKind
}

func newWorker() *worker {
	return &worker{hdrhistogram.New(1, longest.Microseconds(), 3), 0, map[string]ErrorOfKind{}}
}

// Run puts a load on a pool until its time is over, or ctx ends. Each goroutine runs one
// statement at least, so that one that cannot be sent is found on a slow machine, too.
func Run(ctx context.Context, pool *flightpool.FlightSQLPool, opts Options) *Report {
	if opts.Text == nil {
		opts.Text = error.Error
	}
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	before := pool.Stats()
	began := time.Now()
	until := began.Add(opts.Duration)
	workers := make([]*worker, opts.Goroutines)
	var wait sync.WaitGroup
	for i := range workers {
		w := newWorker()
		workers[i] = w
		wait.Go(func() {
			for n := i; ctx.Err() == nil && (n == i || time.Now().Before(until)); n++ {
				if err := w.call(ctx, pool, opts.Statements[n%len(opts.Statements)], opts); err != nil {
					refuse(&refusal{err})
				}
			}
		})
	}
	wait.Wait()
	r := sum(workers, time.Since(began))
	var refused *refusal
	if errors.As(context.Cause(ctx), &refused) {
		r.Refused = refused.error
	}
	after := pool.Stats()
	waits := func(s flightpool.Stats) uint64 { return s.AcquiredWaited + s.Timeouts + s.Canceled + s.Failed }
	r.Pool = map[string]any{
		"connections": after.Total, "opens": after.Opens - before.Opens, "open_failures": after.OpenFailures - before.OpenFailures,
		"waited": waits(after) - waits(before), "wait_seconds": (after.WaitTime - before.WaitTime).Seconds(),
		"retries": after.Retries - before.Retries,
	}
	return r
}

// A refusal is the end of a load by a statement that is not sent.
type refusal struct{ error }

// call runs one statement to the end of its rows. One that the end of ctx cuts is not
// counted. An error is returned where nothing was sent, and will not be the next time.
func (w *worker) call(ctx context.Context, pool *flightpool.FlightSQLPool, sql string, opts Options) error {
	began, rows := time.Now(), int64(0)
	result, err := pool.QueryWithOptions(ctx, sql, flightpool.QueryOptions{Route: opts.Route})
	if err == nil {
		for result.Next() {
			rows += result.RecordBatch().NumRows()
		}
		err = result.Close()
	}
	var known *flightpool.Error
	switch took := time.Since(began); {
	case err != nil && ctx.Err() != nil:
	case errors.As(err, &known) && known.Unsent && known.Fault == flightpool.FaultUsage:
		return err
	case err != nil:
		kind := kindOf(err)
		e := w.errors[kind]
		w.errors[kind] = ErrorOfKind{kind, e.Count + 1, cmp.Or(e.Example, opts.Text(err))}
	default:
		w.rows += rows
		_ = w.times.RecordValue(min(max(took.Microseconds(), 1), longest.Microseconds())) // it is in range
	}
	return nil
}

func kindOf(err error) string {
	kind := "other"
	var known *flightpool.Error
	if errors.As(err, &known) {
		kind = known.Fault.String()
	}
	if st, ok := status.FromError(err); ok {
		kind = fmt.Sprintf("%s, %s", kind, st.Code())
	}
	return kind
}

func sum(workers []*worker, took time.Duration) *Report {
	all := newWorker()
	r := &Report{Seconds: took.Seconds(), Latency: []Quantile{}, Errors: []ErrorOfKind{}}
	for _, w := range workers {
		all.times.Merge(w.times)
		r.Rows += w.rows
		for kind, e := range w.errors {
			r.Failures += e.Count
			e.Count += all.errors[kind].Count
			all.errors[kind] = e
		}
	}
	r.Calls = all.times.TotalCount()
	r.PerSecond = float64(r.Calls) / took.Seconds()
	r.Mean = all.times.Mean()
	for _, p := range percents {
		r.Latency = append(r.Latency, Quantile{p, all.times.ValueAtQuantile(p)})
	}
	r.Errors = slices.AppendSeq(r.Errors, maps.Values(all.errors)) // a list for readers of JSON where there is none, too
	slices.SortFunc(r.Errors, func(a, b ErrorOfKind) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind))
	})
	return r
}
