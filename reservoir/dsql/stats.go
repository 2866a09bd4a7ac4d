package dsql

import (
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
	// Leases and Limiter are the budgets.
	Leases  lease.Stats
	Limiter lease.LimiterStats
	// Low says that fewer connections are ready than LowWatermark.
	Low bool
	// Paused is for how long opens pause because the cluster refused some.
	Paused time.Duration
}

// Stats is a snapshot.
func (c *Cluster) Stats() Stats {
	s := c.res.Stats()
	return Stats{
		Reservoir: s, Queued: c.share.queue(), Leases: c.fleet.leases.Stats(), Limiter: c.fleet.limiter.Stats(),
		Low: s.Idle < c.cfg.LowWatermark, Paused: c.brake.left(),
	}
}
