package reservoir

import (
	"math"
	"math/bits"
	"time"

	"github.com/flightpool/flightpool/internal/backoff"
)

// never is a time that does not come.
const never int64 = math.MaxInt64

// A lifetime is what a connection is given when it has been opened, in nanoseconds of
// the reservoir's clock.
//
// INVARIANT: replaceAt <= expireAt. From replaceAt on a connection is stale: it
// is lent, but a successor is opened. From expireAt on it is not lent.
type lifetime struct{ replaceAt, expireAt int64 }

// lifetimeParams are what a connection's lifetime is computed from.
type lifetimeParams struct {
	opened                  int64
	maxAge, guard, notAfter int64 // notAfter: what ExpiresAt said, or never; maxAge <= 0: no bound
	replaceAfter            int64 // the age from which it is replaced; 0: by its end alone
	jitter                  int64 // its part of the jitter
	replaceTime             int64 // how long replacing it may take
}

// The part of a lifetime that is kept for its replacement: what replacing takes, at
// least some time for a server that is away for a moment, and never more than a
// quarter.
const (
	minLeadPart = 50
	maxMinLead  = int64(30 * time.Second)
	maxLeadPart = 4
)

// plan computes a lifetime.
func (l lifetimeParams) plan() lifetime {
	end := addSaturating(l.opened, l.maxAge)
	if l.jitter > 0 {
		end = addSaturating(end, l.jitter)
	}
	if end = min(end, l.notAfter); end == never {
		return lifetime{never, never}
	}
	expireAt := end - l.guard
	usable := max(0, expireAt-l.opened)
	lead := max(l.replaceTime, min(usable/minLeadPart, maxMinLead))
	replaceAt := min(expireAt-min(lead, usable/maxLeadPart), addSaturating(l.opened+max(0, l.jitter), l.replaceAfter))
	return lifetime{replaceAt, expireAt}
}

// jitterPart is the part of jitter for a phase, a fraction of 2^64.
func jitterPart(phase uint64, jitter time.Duration) int64 {
	part, _ := bits.Mul64(phase, uint64(max(0, jitter)))
	return int64(part)
}

// goldenStep is 2^64 divided by the golden ratio. Adding it again and again
// lets every new value fall into the widest gap that the ones before left, so
// that any burst of connections spreads over its jitter evenly; drawing at
// random would leave clusters.
const goldenStep = 0x9E3779B97F4A7C15

// replaceLead is how long before its end the replacement of a connection has to
// begin, when size of them, opened together, end spread over jitter, and are
// replaced some at a time, each in about the given time. Twice that time is
// allowed for, since the next open may be slower than those measured.
func replaceLead(size, atATime int, each, jitter int64) int64 {
	each = max(each, int64(time.Millisecond))
	rounds := int64(size-1)/int64(max(1, min(size, atATime))) + 1
	all := never
	if each < never/rounds {
		all = rounds * each
	}
	need := max(each, all-jitter)
	if need > never/2 {
		return never
	}
	return 2 * need
}

// smoothedOpenTime is the measured time of opens after one more: it rises at once and
// falls slowly.
func smoothedOpenTime(before, took int64) int64 { return max(took, before-before/8+took/8) }

// The pause after failed opens, from the first failure on.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// retryPause is how long to wait after so many failures in a row (at least 1). jitter
// in [0,1) takes up to half of it, so that many reservoirs do not come back
// together.
func retryPause(failures int, jitter float64) time.Duration {
	d := backoff.Doubled(firstPause, longestPause, failures-1)
	return d - time.Duration(jitter*float64(d)/2)
}

// baseLifetime is how long a lifetime is without its part of the jitter: with
// ReplaceAfter no lifetime exceeds MaxLifetime.
func (c Config[C]) baseLifetime() int64 {
	if c.ReplaceAfter > 0 {
		return int64(c.MaxLifetime - c.LifetimeJitter)
	}
	return int64(c.MaxLifetime)
}
