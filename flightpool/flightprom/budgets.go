package flightprom

import (
	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/lease"
)

// ofLeases are the metrics of a budget of connections, in the order of the package comment.
var ofLeases = func() *series.Table[lease.Stats] {
	type stats = lease.Stats
	all := series.NewTable[stats]("flightpool_lease_", "budget")
	now, count := series.Of(all)
	now("Connections that the fleet may have; 0: not known yet.", "limit", func(s *stats) int { return s.Limit })
	now("Connections of the whole fleet, as last seen.", "used", func(s *stats) int { return s.Used })
	now("Connections of this process.", "in_use", func(s *stats) int { return s.InUse })
	now("Leases that this process holds in advance.", "spare", func(s *stats) int { return s.Spare })
	now("Connections of this process that the table does not know.", "unbacked", func(s *stats) int { return s.Unbacked })
	now("The most that this process may have while the fleet is short; 0: it is not.", "share", func(s *stats) int { return s.Share })
	now("Processes that share the limit, as last seen.", "owners", func(s *stats) int { return s.Owners })
	now("Opens that wait for a lease.", "opens_waiting", func(s *stats) int { return s.Waiting })
	now("Whether the lease table can be reached.", "table_reachable", func(s *stats) int { return series.Flag(!s.Degraded) })
	count("Leases asked for by outcome.", "grants_total outcome=ok", func(s *stats) uint64 { return s.Granted })
	count("", "grants_total outcome=failed", func(s *stats) uint64 { return s.Denied })
	count("Leases that the fallback granted.", "fallbacks_total", func(s *stats) uint64 { return s.Fallbacks })
	count("Times this process was taken for dead.", "losses_total", func(s *stats) uint64 { return s.Losses })
	count("Dead processes whose leases were freed from here.", "reaped_total", func(s *stats) uint64 { return s.Reaped })
	traffic(all, func(s *stats) *lease.Traffic { return &s.Traffic })
	return all
}()

// ofLimiters are the metrics of a budget of opens.
var ofLimiters = func() *series.Table[lease.LimiterStats] {
	type stats = lease.LimiterStats
	all := series.NewTable[stats]("flightpool_limiter_", "budget")
	now, count := series.Of(all)
	now("Opens that wait for a permit.", "opens_waiting", func(s *stats) int { return s.Waiting })
	now("Whether the limiter's table can be reached.", "table_reachable", func(s *stats) int { return series.Flag(!s.Degraded) })
	count("Permits asked for by outcome.", "permits_total outcome=ok", func(s *stats) uint64 { return s.Granted })
	count("", "permits_total outcome=failed", func(s *stats) uint64 { return s.Denied })
	count("Permits at the rate of this process's own.", "fallbacks_total", func(s *stats) uint64 { return s.Fallbacks })
	count("Permits that were not used in time.", "dropped_total", func(s *stats) uint64 { return s.Dropped })
	count("Opens that the server refused as too fast.", "refusals_total", func(s *stats) uint64 { return s.Refusals })
	traffic(all, func(s *stats) *lease.Traffic { return &s.Traffic })
	return all
}()

// traffic adds what a budget asks of its table.
func traffic[S any](all *series.Table[S], of func(*S) *lease.Traffic) {
	_, count := series.Of(all)
	count("Requests to the table.", "table_requests_total op=read", func(s *S) uint64 { return of(s).Reads })
	count("", "table_requests_total op=write", func(s *S) uint64 { return of(s).Writes })
	count("Requests to the table without a definite answer.", "table_failures_total", func(s *S) uint64 { return of(s).Failures })
}
