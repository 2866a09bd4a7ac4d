package dsql

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

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

// PoolStat is Stats by the names of pgxpool.Stat, for code that was written for
// it. Its numbers are those of the whole Cluster.
type PoolStat struct{ s Stats }

// Stat is a snapshot.
func (p *Pool) Stat() *PoolStat { return &PoolStat{p.Stats()} }

// AcquireCount counts connections lent.
func (s *PoolStat) AcquireCount() int64 { return int64(s.s.Checkouts) }

// AcquireDuration is the sum of all waits.
func (s *PoolStat) AcquireDuration() time.Duration { return s.s.WaitTime }

// AcquiredConns counts connections in use.
func (s *PoolStat) AcquiredConns() int32 { return int32(s.s.Reservoir.InUse) }

// CanceledAcquireCount counts calls that got no connection.
func (s *PoolStat) CanceledAcquireCount() int64 { return int64(s.s.Failures) }

// ConstructingConns counts opens under way.
func (s *PoolStat) ConstructingConns() int32 { return int32(s.s.Reservoir.Opening) }

// EmptyAcquireCount counts the calls that found nothing ready.
func (s *PoolStat) EmptyAcquireCount() int64 { return int64(s.s.Empty) }

// EmptyAcquireWaitTime is AcquireDuration: a call that finds a connection ready
// does not wait.
func (s *PoolStat) EmptyAcquireWaitTime() time.Duration { return s.AcquireDuration() }

// IdleConns counts connections that are ready.
func (s *PoolStat) IdleConns() int32 { return int32(s.s.Reservoir.Idle) }

// MaxConns is MaxSize.
func (s *PoolStat) MaxConns() int32 { return int32(s.s.Reservoir.MaxSize) }

// TotalConns counts all connections, those being closed included.
func (s *PoolStat) TotalConns() int32 { return int32(s.s.Reservoir.Total) }

// NewConnsCount counts connections opened.
func (s *PoolStat) NewConnsCount() int64 { return int64(s.s.Opened) }

// MaxLifetimeDestroyCount counts connections closed for their age.
func (s *PoolStat) MaxLifetimeDestroyCount() int64 {
	return int64(s.s.Reservoir.Closed[reservoir.Expired])
}

// MaxIdleDestroyCount counts connections closed because they were idle.
func (s *PoolStat) MaxIdleDestroyCount() int64 {
	return int64(s.s.Reservoir.Closed[reservoir.IdleTimeout])
}

// AcquireTracer hears of every call for a connection, of pgx and of database/sql
// alike. The caller waits for it until its context ends; a connection that
// TraceAcquireEnd has by then is closed. It may be called concurrently. A tracer of
// pgx's own (Config.Pgx) is called by pgx, and holds the caller for as long as it takes.
type AcquireTracer interface {
	// TraceAcquireStart is called when a call begins. The context that it returns
	// is that of the rest of the call.
	TraceAcquireStart(ctx context.Context, data TraceAcquireStartData) context.Context
	// TraceAcquireEnd is called when a connection was got, or none.
	TraceAcquireEnd(ctx context.Context, data TraceAcquireEndData)
}

// TraceAcquireStartData is what is known when a call for a connection begins.
type TraceAcquireStartData struct {
	// Cluster is what the connection is to come from.
	Cluster *Cluster
}

// TraceAcquireEndData is what became of a call for a connection.
type TraceAcquireEndData struct {
	// Conn is the connection, nil when Err is not.
	Conn *pgx.Conn
	// Err is why there is none.
	Err error
}
