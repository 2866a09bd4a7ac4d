package flightprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/reservoir"
)

var ofPool = []string{"pool"}

// poolMetrics are the series of a pool, in the order of the package comment.
var poolMetrics = func() []metric[flightpool.Stats] {
	type stats = flightpool.Stats
	var all []metric[stats]
	now := func(help, series string, value func(*stats) int) {
		all = append(all, gauge(help, series, ofPool, func(s *stats) float64 { return float64(value(s)) }))
	}
	count := func(help, series string, value func(*stats) uint64) {
		all = append(all, counter(help, series, ofPool, func(s *stats) float64 { return float64(value(s)) }))
	}
	now("Connections by state.", "connections state=idle", func(s *stats) int { return s.Idle })
	now("", "connections state=in_use", func(s *stats) int { return s.InUse })
	now("", "connections state=opening", func(s *stats) int { return s.Opening })
	now("", "connections state=closing", func(s *stats) int { return s.Closing })
	now("How many connections there may be.", "connections_max", func(s *stats) int { return s.MaxSize })
	now("Callers who wait for a connection.", "callers_waiting", func(s *stats) int { return s.Waiting })
	now("Whether the server can be reached.", "healthy", func(s *stats) int {
		if s.UnhealthySince.IsZero() {
			return 1
		}
		return 0
	})
	count("Calls for a connection by outcome.", "acquires_total outcome=ok", func(s *stats) uint64 { return s.Acquired })
	count("", "acquires_total outcome=timeout", func(s *stats) uint64 { return s.Timeouts })
	count("", "acquires_total outcome=canceled", func(s *stats) uint64 { return s.Canceled })
	count("", "acquires_total outcome=failed", func(s *stats) uint64 { return s.Failed })
	count("", "acquires_total outcome=rejected", func(s *stats) uint64 { return s.Rejected })
	count("Opens of connections.", "opens_total", func(s *stats) uint64 { return s.Opens })
	count("Opens that failed.", "open_failures_total", func(s *stats) uint64 { return s.OpenFailures })
	count("Opens that were not needed any more.", "opens_skipped_total", func(s *stats) uint64 { return s.OpensSkipped })
	for reason := range (stats{}).Closed {
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
	count("Loans out for longer than LeakAfter.", "leaks_total", func(s *stats) uint64 { return s.Leaks })
	count("Hooks and tracers that panicked.", "hook_failures_total", func(s *stats) uint64 { return s.HookFailures })
	return all
}()

// A histogram is one of a pool's.
type histogram struct {
	desc *prometheus.Desc
	from func(*flightpool.Times) *flightpool.Durations
}

var poolHistograms = []histogram{
	newHistogram("wait_seconds", "The wait for a connection, of those who got one.", func(t *flightpool.Times) *flightpool.Durations { return &t.Wait }),
	newHistogram("hold_seconds", "How long connections were on loan.", func(t *flightpool.Times) *flightpool.Durations { return &t.Hold }),
	newHistogram("open_seconds", "How long opens took that succeeded.", func(t *flightpool.Times) *flightpool.Durations { return &t.Open }),
	newHistogram("first_batch_seconds", "From a call's start until its first rows.", func(t *flightpool.Times) *flightpool.Durations { return &t.FirstBatch }),
	newHistogram("call_seconds", "From a call's start on a connection until its end.", func(t *flightpool.Times) *flightpool.Durations { return &t.Call }),
}

func newHistogram(name, help string, from func(*flightpool.Times) *flightpool.Durations) histogram {
	return histogram{prometheus.NewDesc("flightpool_"+name, help, ofPool, nil), from}
}

func histograms() (all []*prometheus.Desc) {
	for _, h := range poolHistograms {
		all = append(all, h.desc)
	}
	return all
}

// bounds are where buckets end: each is a bound of Durations.Buckets too, so that the
// counts are exact.
var bounds = func() (all []time.Duration) {
	for d := 256 * time.Microsecond; d < 20*time.Minute; d *= 4 {
		all = append(all, d)
	}
	return all
}()

func (h *histogram) of(t *flightpool.Times, pool string) prometheus.Metric {
	d := h.from(t)
	buckets := make(map[float64]uint64, len(bounds))
	next, total := 0, uint64(0)
	for bound, n := range d.Buckets() {
		for ; next < len(bounds) && bounds[next] < bound; next++ {
			buckets[bounds[next].Seconds()] = total
		}
		total = n
	}
	for ; next < len(bounds); next++ {
		buckets[bounds[next].Seconds()] = total
	}
	return prometheus.MustNewConstHistogram(h.desc, d.Count(), d.Seconds(), buckets, pool)
}
