package reservoir

import (
	"math"
	"math/bits"
	"time"
)

// never is a time that does not come.
const never = math.MaxInt64

// A span is the life that a connection is given at its birth, in nanoseconds of
// the reservoir's clock.
//
// INVARIANT: soft <= last. From soft on a connection is stale: it is lent, but
// a fresh one is opened to replace it. From last on it is not lent.
type span struct{ soft, last int64 }

// plan gives the life of a connection opened at a time. phase, a fraction of
// 2^64, places it within the jitter. lead is the time that replacing the whole
// reservoir may take; no more than a quarter of a life is spent on it.
func plan(opened int64, phase uint64, life, jitter, guard, lead time.Duration) span {
	if life <= 0 {
		return span{never, never}
	}
	part, _ := bits.Mul64(phase, uint64(max(0, jitter)))
	last := opened + int64(life) + int64(part) - int64(guard)
	if last < opened { // the sum does not fit: that far is never
		return span{never, never}
	}
	return span{last - int64(min(lead, (life-guard)/4)), last}
}

// until ends a life at a time too, less guard. lead is as for plan.
func (s span) until(opened, end int64, guard, lead time.Duration) span {
	if end == never {
		return s
	}
	last := end - int64(guard)
	if last >= s.last {
		return s
	}
	return span{min(s.soft, last-int64(min(lead, time.Duration(max(0, last-opened))/4))), last}
}

// goldenStep is 2^64 divided by the golden ratio. Adding it again and again
// lets every new value fall into the widest gap that the ones before left, so
// that any burst of connections spreads over its jitter evenly; drawing at
// random would leave clusters.
const goldenStep = 0x9E3779B97F4A7C15

// replacing is how long it may take to replace size connections, some at a time.
func replacing(size, atATime int, each time.Duration) time.Duration {
	if each <= 0 {
		each = time.Minute
	}
	atATime = min(size, atATime)
	return time.Duration((size+atATime-1)/atATime) * each
}

// The pause after failed opens, from the first failure on.
const (
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// pause is how long to wait after so many failures in a row (at least 1). luck
// in [0,1) takes up to half of it, so that many reservoirs do not come back
// together.
func pause(failures int, luck float64) time.Duration {
	d := longPause
	if failures < 8 {
		d = min(d, firstPause<<(failures-1))
	}
	return d - time.Duration(luck*float64(d)/2)
}
