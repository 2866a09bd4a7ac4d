package reservoir

import (
	"sync/atomic"
	"time"
)

// A clock tells the time in nanoseconds since its start. Reading the system's
// costs more than all the rest of an acquire and a release, so a reading is
// kept for up to slack: reading it arms a one-shot timer that marks it stale.
// An unused clock has no timer running.
//
// A kept reading is never ahead of the time and less than slack behind it. On a
// saturated machine the timer comes late; therefore a reading is also used for maxUses
// times only, so that no more than the time of that many uses is added. Who decides
// something that slack could turn asks for the exact time.
type clock struct {
	start      time.Time
	slack      int64 // 0: every reading is exact
	fresh      atomic.Bool
	staleTimer *time.Timer
	cached     int64 // INVARIANT: guarded by the reservoir's mutex, never decreases
	usesLeft   int   // how often cached may still be used; guarded likewise
}

// The slack is a part of the shortest duration that matters, within bounds.
const (
	maxSlack  = 10 * time.Millisecond
	minSlack  = 100 * time.Microsecond
	slackPart = 128
	maxUses   = 64
)

func (c *clock) init(durations ...time.Duration) {
	c.start = time.Now()
	slack := maxSlack
	for _, d := range durations {
		if d > 0 {
			slack = min(slack, d/slackPart)
		}
	}
	if slack < minSlack {
		return
	}
	c.slack = int64(slack)
	c.staleTimer = time.AfterFunc(time.Hour, func() { c.fresh.Store(false) })
	c.staleTimer.Stop()
}

// now returns the cached time. The caller holds the reservoir's mutex.
func (c *clock) now() int64 {
	if c.usesLeft > 0 && c.fresh.Load() {
		c.usesLeft--
		return c.cached
	}
	return c.read()
}

// read keeps the exact time and returns it. The caller holds the reservoir's mutex.
func (c *clock) read() int64 {
	c.cached, c.usesLeft = c.exact(), maxUses
	if c.slack > 0 && c.fresh.CompareAndSwap(false, true) {
		c.staleTimer.Reset(time.Duration(c.slack))
	}
	return c.cached
}

// exact is the exact time. It needs no lock.
func (c *clock) exact() int64 { return int64(time.Since(c.start)) }

// stop ends keeping. The caller holds the reservoir's mutex.
func (c *clock) stop() {
	if c.slack > 0 {
		c.slack = 0
		c.fresh.Store(false)
		c.staleTimer.Stop()
	}
}
