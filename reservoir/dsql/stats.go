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
	// Refusals counts opens that the cluster refused, repetitions included.
	Refusals Refusals
	// Leases and Limiter are the budgets.
	Leases  lease.Stats
	Limiter lease.LimiterStats
	// TargetReady is the configured number, 0 with OnDemand.
	TargetReady int
	// Low says that fewer connections are ready than the smaller of LowWatermark
	// and TargetReady.
	Low bool
	// Paused is for how long opens pause because the cluster refused some.
	Paused time.Duration
}

// Refusals counts refused opens by what they mean.
type Refusals struct {
	// Rate counts 53400, Limit 53300. Denied counts those that no repetition
	// helps: access denied, no credentials, a wrong name, no TLS.
	Rate, Limit, Denied uint64
}

// counts is what a Cluster counts beside its reservoir.
type counts struct {
	checkouts, empty, failures atomic.Uint64
	waited                     atomic.Int64 // nanoseconds
}

// Stats is a snapshot.
func (c *Cluster) Stats() Stats {
	s, queued, refused, target := c.res.Stats(), c.share.queue(), c.brake.refusedBy(), c.target()
	return Stats{
		Reservoir: s, Queued: queued, Waiting: s.Waiting + queued,
		Checkouts: c.count.checkouts.Load(), Empty: c.count.empty.Load(), Failures: c.count.failures.Load(),
		WaitTime: time.Duration(c.count.waited.Load()),
		Refusals: Refusals{Rate: refused[tooFast], Limit: refused[tooMany], Denied: refused[hopeless]},
		Leases:   c.fleet.leases.Stats(), Limiter: c.fleet.limiter.Stats(),
		TargetReady: target, Low: s.Idle < min(c.cfg.LowWatermark, target), Paused: c.brake.left(),
	}
}

// target is how many connections are kept ready.
func (c *Cluster) target() int {
	if c.cfg.OnDemand {
		return 0
	}
	return max(0, c.cfg.TargetReady)
}
