package flightprom

import (
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/reservoir"
)

// ofPools are the metrics of a pool, in the order of the package comment.
var ofPools = func() *series.Table[flightpool.Stats] {
	type stats = flightpool.Stats
	all := series.NewTable[stats]("flightpool_", "pool")
	now, count := series.Of(all)
	now("Connections by state.", "connections state=idle", func(s *stats) int { return s.Idle })
	now("", "connections state=in_use", func(s *stats) int { return s.InUse })
	now("", "connections state=opening", func(s *stats) int { return s.Opening })
	now("", "connections state=closing", func(s *stats) int { return s.Closing })
	now("How many connections there may be.", "connections_max", func(s *stats) int { return s.MaxSize })
	now("Callers who wait for a connection.", "callers_waiting", func(s *stats) int { return s.Waiting })
	now("Whether the server can be reached.", "healthy", func(s *stats) int { return series.Flag(s.UnhealthySince.IsZero()) })
	count("Calls for a connection by outcome.", "acquires_total outcome=ok", func(s *stats) uint64 { return s.Acquired })
	count("", "acquires_total outcome=timeout", func(s *stats) uint64 { return s.Timeouts })
	count("", "acquires_total outcome=canceled", func(s *stats) uint64 { return s.Canceled })
	count("", "acquires_total outcome=failed", func(s *stats) uint64 { return s.Failed })
	count("", "acquires_total outcome=rejected", func(s *stats) uint64 { return s.Rejected })
	count("Opens of connections.", "opens_total", func(s *stats) uint64 { return s.Opens })
	count("Opens that failed.", "open_failures_total", func(s *stats) uint64 { return s.OpenFailures })
	count("Opens that were not needed any more.", "opens_skipped_total", func(s *stats) uint64 { return s.OpensSkipped })
	for reason := range len(stats{}.Closed) {
		count("Connections closed by reason.", "closes_total reason="+reservoir.Reason(reason).String(), func(s *stats) uint64 { return s.Closed[reason] }) //nolint:gosec // a few
	}
	count("Health checks.", "checks_total", func(s *stats) uint64 { return s.Checks })
	count("Health checks that failed.", "check_failures_total", func(s *stats) uint64 { return s.CheckFailures })
	count("Stateless calls of the pool.", "calls_total", func(s *stats) uint64 { return s.Calls })
	count("Stateless calls that failed.", "call_failures_total", func(s *stats) uint64 { return s.Failures })
	count("Calls made again on another connection.", "retries_total", func(s *stats) uint64 { return s.Retries })
	count("Sessions and transactions begun.", "sessions_total", func(s *stats) uint64 { return s.Sessions })
	count("Cancels by whether the statement is known to have stopped.", "cancels_total outcome=confirmed", func(s *stats) uint64 { return s.CancelsConfirmed })
	count("", "cancels_total outcome=unconfirmed", func(s *stats) uint64 { return s.CancelsUnconfirmed })
	count("Sessions cleaned on return.", "resets_total", func(s *stats) uint64 { return s.Resets })
	count("Sessions that could not be cleaned.", "reset_failures_total", func(s *stats) uint64 { return s.ResetFailures })
	count("Transactions left open and rolled back.", "rollbacks_total", func(s *stats) uint64 { return s.RolledBack })
	count("Connections borrowed for longer than LeakAfter.", "leaks_total", func(s *stats) uint64 { return s.Leaks })
	count("Hooks and tracers that panicked.", "hook_failures_total", func(s *stats) uint64 { return s.HookFailures })
	took := func(help, name string, of func(*flightpool.Times) *flightpool.Durations) {
		all.Histogram(help, name, seconds, func(s *stats, within []uint64) (uint64, float64) { return read(of(&s.Times), within) })
	}
	took("The wait for a connection, of those who got one.", "wait_seconds", func(t *flightpool.Times) *flightpool.Durations { return &t.Wait })
	took("How long connections were borrowed.", "hold_seconds", func(t *flightpool.Times) *flightpool.Durations { return &t.Hold })
	took("How long opens took that succeeded.", "open_seconds", func(t *flightpool.Times) *flightpool.Durations { return &t.Open })
	took("From a call's start until its first rows.", "first_batch_seconds", func(t *flightpool.Times) *flightpool.Durations { return &t.FirstBatch })
	took("From a call's start on a connection until its end.", "call_seconds", func(t *flightpool.Times) *flightpool.Durations { return &t.Call })
	return all
}()

// bounds are where buckets end: each is a bound of Durations.Buckets too, so that the
// counts are exact. seconds are the same for Prometheus.
var bounds, seconds = func() (all []time.Duration, same []float64) {
	for d := 256 * time.Microsecond; d < 20*time.Minute; d *= 4 {
		all, same = append(all, d), append(same, d.Seconds())
	}
	return all, same
}()

// read writes how many of d are within each bound.
func read(d *flightpool.Durations, within []uint64) (count uint64, sum float64) {
	next := 0
	for bound, n := range d.Buckets() {
		for ; next < len(bounds) && bounds[next] < bound; next++ {
			within[next] = count
		}
		count = n
	}
	for ; next < len(bounds); next++ {
		within[next] = count
	}
	return count, d.Seconds()
}
