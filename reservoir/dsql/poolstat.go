package dsql

import (
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

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
