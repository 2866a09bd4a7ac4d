package dsqlprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A Source has numbers to show: *dsql.Cluster, *dsql.Pool.
type Source interface{ Stats() dsql.Stats }

// Collector is a prometheus.Collector of Sources. Its methods may be called from any
// goroutine.
type Collector struct{ sources series.Named[Source] }

// NewCollector makes a Collector that shows nothing yet.
func NewCollector() *Collector { return &Collector{} }

// Add shows a Source by a name, in the place of the one that had it.
func (c *Collector) Add(name string, source Source) { c.sources.Set(name, source) }

// Remove shows a Source no longer.
func (c *Collector) Remove(name string) { c.sources.Remove(name) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) { ofClusters.Describe(out) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for name, source := range c.sources.All() {
		now := source.Stats()
		ofClusters.Collect(out, &now, name)
	}
}

type stats = dsql.Stats

var ofClusters = func() *series.Table[stats] {
	all := series.NewTable[stats]("dsql_", "cluster")
	now, count := series.Of(all)
	now("Connections that are ready.", "reservoir_size", func(s *stats) int { return s.Reservoir.Idle })
	now("How many connections are to be ready.", "reservoir_target", func(s *stats) int { return s.MinIdle })
	now("1 while fewer connections are ready than the low watermark.", "reservoir_low", func(s *stats) int { return series.Flag(s.Low) })
	now("Connections that are lent.", "reservoir_in_use", func(s *stats) int { return s.Reservoir.InUse })
	now("Opens under way.", "reservoir_opening", func(s *stats) int { return s.Reservoir.Opening })
	now("Callers who wait.", "reservoir_waiting", func(s *stats) int { return s.Waiting })
	all.Gauge("For how long opens pause because the cluster refused some.", "reservoir_paused_seconds", func(s *stats) float64 { return s.Paused.Seconds() })
	count("Connections lent.", "reservoir_checkouts_total", func(s *stats) uint64 { return s.Checkouts })
	count("Calls that found no connection ready.", "reservoir_empty_total", func(s *stats) uint64 { return s.Empty })
	count("Calls that got no connection.", "reservoir_failures_total", func(s *stats) uint64 { return s.Failures })
	all.Counter("Sum of all waits for a connection.", "reservoir_wait_seconds_total", func(s *stats) float64 { return s.WaitTime.Seconds() })
	for reason := range len(stats{}.Reservoir.Closed) {
		count("Connections closed by reason.", "reservoir_discards_total reason="+reservoir.Reason(reason).String(), func(s *stats) uint64 { return s.Reservoir.Closed[reason] }) //nolint:gosec // a few
	}
	count("Connections opened.", "reservoir_refills_total", func(s *stats) uint64 { return s.Opened })
	count("Opens that failed by reason.", "reservoir_refill_failures_total reason=rate_exceeded", func(s *stats) uint64 { return s.FailedOpens.Rate })
	count("", "reservoir_refill_failures_total reason=too_many_connections", func(s *stats) uint64 { return s.FailedOpens.Limit })
	count("", "reservoir_refill_failures_total reason=denied", func(s *stats) uint64 { return s.FailedOpens.Denied })
	count("", "reservoir_refill_failures_total reason=other", func(s *stats) uint64 { return s.FailedOpens.Other })
	count("", "reservoir_refill_failures_total reason=no_permission", func(s *stats) uint64 { return s.FailedOpens.Unpermitted })
	budgets(all)
	return all
}()

// budgets adds what the fleet shares.
func budgets(all *series.Table[stats]) {
	now, count := series.Of(all)
	now("Connections of the whole fleet, as last seen.", "distributed_conn_lease_active", func(s *stats) int { return s.Leases.Used })
	now("Connections that the fleet may have.", "distributed_conn_lease_limit", func(s *stats) int { return s.Leases.Limit })
	now("Leases of this process.", "distributed_conn_lease_held", func(s *stats) int { return s.Leases.InUse })
	now("1 while the lease table cannot be reached.", "distributed_conn_lease_degraded", func(s *stats) int { return series.Flag(s.Leases.Degraded) })
	now("Processes that share the limit, as last seen.", "distributed_conn_lease_owners", func(s *stats) int { return s.Leases.Owners })
	now("Connections that the table does not know.", "distributed_conn_lease_unbacked", func(s *stats) int { return s.Leases.Unbacked })
	count("Times this process was taken for dead.", "distributed_conn_lease_losses_total", func(s *stats) uint64 { return s.Leases.Losses })
	count("Dead processes whose leases were freed from here.", "distributed_conn_lease_reaped_total", func(s *stats) uint64 { return s.Leases.Reaped })
	count("Leases that the fallback granted.", "distributed_conn_lease_fallbacks_total", func(s *stats) uint64 { return s.Leases.Fallbacks })
	count("Opens that the limiter permitted.", "open_permits_total", func(s *stats) uint64 { return s.Limiter.Granted })
	count("Opens that the limiter did not permit.", "open_permits_denied_total", func(s *stats) uint64 { return s.Limiter.Denied })
	count("Opens at the rate of this process's own.", "open_permits_fallback_total", func(s *stats) uint64 { return s.Limiter.Fallbacks })
	count("Opens that the cluster refused as too fast.", "open_limiter_refusals_total", func(s *stats) uint64 { return s.Limiter.Refusals })
	now("1 while the limiter's table cannot be reached.", "open_limiter_degraded", func(s *stats) int { return series.Flag(s.Limiter.Degraded) })
	count("Reads of the table.", "lease_table_reads_total", func(s *stats) uint64 { return s.Leases.Traffic.Reads + s.Limiter.Traffic.Reads })
	count("Writes to the table.", "lease_table_writes_total", func(s *stats) uint64 { return s.Leases.Traffic.Writes + s.Limiter.Traffic.Writes })
	count("Requests to the table without an answer.", "lease_table_failures_total", func(s *stats) uint64 { return s.Leases.Traffic.Failures + s.Limiter.Traffic.Failures })
	all.Gauge("The table's clock minus this process's.", "lease_table_clock_skew_seconds", func(s *stats) float64 { return s.Leases.Traffic.ClockSkew.Seconds() })
}
