// Package histogram counts durations at a fixed cost.
package histogram

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is how many buckets there are. They grow by a quarter of an octave, from a
// microsecond to more than an hour, so that a quantile is at most a quarter too high.
const (
	Buckets          = bucketsPerOctave * octaves
	bucketsPerOctave = 4
	octaves          = 33
)

// A Histogram counts durations, from any goroutine. Adding is two atomic operations.
// The zero value is empty.
type Histogram struct {
	counts [Buckets]atomic.Uint64
	sum    atomic.Int64 // in sumUnits
}

// sumUnit is what sums are counted in: in nanoseconds, those of a thousand connections
// would overflow within four months.
const sumUnit = 64 * time.Nanosecond

// bucket is where a duration is counted; what is longer than all goes to the last.
func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds())) + 1
	octave := bits.Len64(us) - 1
	part := int(us << 2 >> octave & 3)
	return min(octave*bucketsPerOctave+part, Buckets-1)
}

// Ceiling is the longest duration that a bucket holds, but for the last.
func Ceiling(b int) time.Duration {
	octave, part := b/bucketsPerOctave, uint64(b%bucketsPerOctave)
	return time.Duration((4+part+1)<<octave>>2) * time.Microsecond
}

// Add counts a duration; a negative one counts as none.
func (h *Histogram) Add(d time.Duration) {
	d = max(0, d)
	h.counts[bucket(d)].Add(1)
	h.sum.Add(int64(d.Round(sumUnit) / sumUnit))
}

// Snapshot is what was counted so far; of what is added meanwhile, parts may be missing.
func (h *Histogram) Snapshot() (s Snapshot) {
	if h == nil {
		return s
	}
	s.Seconds = float64(h.sum.Load()) * sumUnit.Seconds()
	for i := range h.counts {
		s.Counts[i] = h.counts[i].Load()
		s.Count += s.Counts[i]
	}
	return s
}

// A Snapshot is what a Histogram has counted.
type Snapshot struct {
	Counts  [Buckets]uint64
	Count   uint64  // of all
	Seconds float64 // the sum of all
}

// Since is what was counted after before, an earlier Snapshot of the same Histogram.
func (s *Snapshot) Since(before *Snapshot) (d Snapshot) {
	for i := range s.Counts {
		d.Counts[i] = s.Counts[i] - min(s.Counts[i], before.Counts[i])
		d.Count += d.Counts[i]
	}
	d.Seconds = max(0, s.Seconds-before.Seconds)
	return d
}

// Quantile is the duration within which the part p of all stay, of which zeros more have
// taken no time.
func (s *Snapshot) Quantile(p float64, zeros uint64) time.Duration {
	rank := uint64(math.Ceil(p * float64(zeros+s.Count)))
	seen := zeros
	for i := 0; i < Buckets && rank > zeros; i++ {
		if seen += s.Counts[i]; seen >= rank {
			return Ceiling(i)
		}
	}
	return 0
}
