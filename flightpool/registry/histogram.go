package registry

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets that grow by a quarter of an octave, from a
// microsecond to more than an hour: a percentile is at most a quarter too high. Adding
// is one atomic operation. A bucket overflows after four thousand million waits.
type histogram [bucketsPerOctave * octaves]atomic.Uint32

const (
	bucketsPerOctave = 4
	octaves          = 33
)

// bucket is where a duration is counted; what is longer than all goes to the last.
func bucket(d time.Duration) int {
	us := uint64(max(0, d.Microseconds())) + 1
	octave := bits.Len64(us) - 1
	part := int(us << 2 >> octave & 3)
	return min(octave*bucketsPerOctave+part, len(histogram{})-1)
}

// ceiling is the longest duration that a bucket holds.
func ceiling(b int) time.Duration {
	octave, part := b/bucketsPerOctave, uint64(b%bucketsPerOctave)
	return time.Duration((4+part+1)<<octave>>2) * time.Microsecond
}

func (h *histogram) add(d time.Duration) { h[bucket(d)].Add(1) }

// percentile is the duration that the part p of all stays within. zeros more of
// them had none.
func (h *histogram) percentile(p float64, zeros uint64) time.Duration {
	if h == nil {
		return 0
	}
	total := zeros
	for i := range h {
		total += uint64(h[i].Load())
	}
	rank := uint64(math.Ceil(p * float64(total)))
	if rank <= zeros {
		return 0
	}
	seen := zeros
	for i := range h {
		if seen += uint64(h[i].Load()); seen >= rank {
			return ceiling(i)
		}
	}
	return 0
}
