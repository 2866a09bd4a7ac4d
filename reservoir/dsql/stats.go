package dsql

import (
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

// Stats is what a Cluster is and has done.
type Stats struct {
	// Reservoir counts connections. Its Waiting does not include the callers
	// whose view has all that it may have: see Queued.
	Reservoir reservoir.Stats
	// Queued counts the callers whose view has all that it may have.
	Queued int
	// Waiting counts all callers who wait, Queued among them.
	Waiting int
	// Checkouts counts connections lent. Empty counts the calls that found none
	// ready, whether they got one later or failed. Failures counts those that
	// got none.
	Checkouts, Empty, Failures uint64
	// WaitTime is the sum of all waits, those that failed included.
	WaitTime time.Duration
	// Opened counts connections made, FailedOpens the attempts that made none.
	Opened      uint64
	FailedOpens FailedOpens
	// Leases and Limiter are the budgets.
	Leases  lease.Stats
	Limiter lease.LimiterStats
	// MinIdle is the configured number, 0 with OnDemand.
	MinIdle int
	// Low says that fewer connections are ready than the smaller of LowWatermark
	// and MinIdle.
	Low bool
	// Paused is for how long opens pause because the cluster refused some.
	Paused time.Duration
}

// FailedOpens counts attempts to open a connection by why they failed. One open
// may make several.
type FailedOpens struct {
	// Rate counts 53400, Limit 53300. Denied counts those that no repetition
	// helps: access denied, no credentials, a wrong name, no TLS. Other counts
	// the rest, the network's failures for example.
	Rate, Limit, Denied, Other uint64
	// Unpermitted counts those that the leases or the limiter did not permit:
	// their table cannot be reached, and Fallback grants nothing.
	Unpermitted uint64
}

// counters is what a Cluster counts beside its reservoir.
type counters struct {
	checkouts, empty, failures, unpermitted atomic.Uint64
	waited                                  atomic.Int64 // nanoseconds
}

// Stats is a snapshot.
func (c *Cluster) Stats() Stats {
	s, queued, failed, target := c.res.Stats(), c.quota.waiting(), c.breaker.failures(), c.readyTarget()
	opened := uint64(s.Total - s.Opening)
	for _, n := range s.Closed {
		opened += n
	}
	return Stats{
		Reservoir: s, Queued: queued, Waiting: s.Waiting + queued,
		Checkouts: c.counters.checkouts.Load(), Empty: c.counters.empty.Load(), Failures: c.counters.failures.Load(),
		WaitTime: time.Duration(c.counters.waited.Load()),
		Opened:   opened,
		FailedOpens: FailedOpens{
			Rate: failed[rateLimited], Limit: failed[connLimited], Denied: failed[permanent], Other: failed[transient], Unpermitted: c.counters.unpermitted.Load(),
		},
		Leases: c.budgets.leases.Stats(), Limiter: c.budgets.limiter.Stats(),
		MinIdle: target, Low: s.Idle < min(c.cfg.LowWatermark, target), Paused: c.breaker.pauseLeft(),
	}
}

// readyTarget is how many connections are kept ready.
func (c *Cluster) readyTarget() int {
	if c.cfg.OnDemand {
		return 0
	}
	return max(0, c.cfg.MinIdle)
}
