package flightpool

import (
	"fmt"
	"iter"
	"time"

	"github.com/flightpool/flightpool/internal/histogram"
)

// Times are how long things have taken in a pool so far.
type Times struct {
	Wait       Durations // for a connection, of those who got one; those who did not wait have a short one
	Hold       Durations // from then until the connection was given back
	Open       Durations // of a connection, to the proof of its session; those that failed are not counted
	FirstBatch Durations // of a call with rows, from its start on a connection until the first were there
	Call       Durations // from its start on a connection until that is free again: of a result, with its reading
}

// Durations are how often something has happened, and how long that took: counts in
// buckets, each at most a quarter longer than the one before.
type Durations struct{ counted histogram.Snapshot }

// Count is how often it has happened.
func (d *Durations) Count() uint64 { return d.counted.Count }

// Seconds is how long all of it has taken.
func (d *Durations) Seconds() float64 { return d.counted.Seconds }

// Mean is how long it has taken on average; 0: it has not happened.
func (d *Durations) Mean() time.Duration {
	if d.counted.Count == 0 {
		return 0
	}
	return time.Duration(d.counted.Seconds / float64(d.counted.Count) * float64(time.Second))
}

// Quantile is the time within which the part p of all stayed, between 0 and 1, and at most
// a quarter more: Quantile(0.99) is exceeded by one of a hundred. What takes longer than
// two hours may count as shorter.
func (d *Durations) Quantile(p float64) time.Duration { return d.counted.Quantile(p, 0) }

// Buckets are how many took no longer than a bound, for each bound at which there are
// more than at the one before: a histogram as Prometheus has it.
func (d *Durations) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		total := uint64(0)
		for i, n := range d.counted.Counts {
			if total += n; n > 0 && !yield(histogram.Ceiling(i), total) {
				return
			}
		}
	}
}

// Since is what was counted after before, an earlier value of the same pool: the
// percentiles of the last minute, for one who asks once a minute.
func (d *Durations) Since(before *Durations) Durations {
	return Durations{d.counted.Since(&before.counted)}
}

// String has the count, the mean and three quantiles.
func (d Durations) String() string {
	return fmt.Sprintf("%d, mean %v, 50%% %v, 99%% %v, 100%% %v", d.counted.Count, d.Mean().Round(time.Microsecond), d.Quantile(.5), d.Quantile(.99), d.Quantile(1))
}

// times are what Times is taken from.
type times struct{ wait, hold, open, firstBatch, call histogram.Histogram }

func (t *times) snapshot() Times {
	return Times{
		Wait: Durations{t.wait.Snapshot()}, Hold: Durations{t.hold.Snapshot()}, Open: Durations{t.open.Snapshot()},
		FirstBatch: Durations{t.firstBatch.Snapshot()}, Call: Durations{t.call.Snapshot()},
	}
}
