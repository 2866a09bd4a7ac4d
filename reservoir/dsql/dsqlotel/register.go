package dsqlotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A Source has numbers to report: *dsql.Cluster, *dsql.Pool.
type Source interface{ Stats() dsql.Stats }

// Register makes the instruments of the package comment and reports source
// through them, with attrs, whenever meter's provider collects, until the
// registration is undone. A second Source needs attrs of its own. It returns all
// faults at once, and is safe for concurrent use.
func Register(meter metric.Meter, source Source, attrs ...attribute.KeyValue) (metric.Registration, error) {
	r := &report{meter: meter, common: metric.WithAttributeSet(attribute.NewSet(attrs...))}
	r.gauges()
	r.counters()
	if err := errors.Join(r.faults...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := source.Stats()
		for _, read := range r.reads {
			read(to, s)
		}
		return nil
	}, r.instruments...)
}

// A report is the instruments while they are made, and how each is read.
type report struct {
	meter       metric.Meter
	common      metric.MeasurementOption
	instruments []metric.Observable
	reads       []func(metric.Observer, dsql.Stats)
	faults      []error
}

func (r *report) gauge(name, about string, value func(dsql.Stats) int) {
	g, err := r.meter.Int64ObservableGauge(name, metric.WithDescription(about))
	r.add(g, err, func(to metric.Observer, s dsql.Stats) { to.ObserveInt64(g, int64(value(s)), r.common) })
}

func (r *report) counter(name, about string, value func(dsql.Stats) uint64) {
	c, err := r.meter.Int64ObservableCounter(name, metric.WithDescription(about))
	r.add(c, err, func(to metric.Observer, s dsql.Stats) { to.ObserveInt64(c, int64(value(s)), r.common) })
}

// byReason makes a counter with a number for each reason.
func (r *report) byReason(name, about string, values func(dsql.Stats) map[string]uint64) {
	c, err := r.meter.Int64ObservableCounter(name, metric.WithDescription(about))
	r.add(c, err, func(to metric.Observer, s dsql.Stats) {
		for reason, n := range values(s) {
			to.ObserveInt64(c, int64(n), r.common, metric.WithAttributes(attribute.String("reason", reason)))
		}
	})
}

func (r *report) add(i metric.Observable, err error, read func(metric.Observer, dsql.Stats)) {
	r.faults = append(r.faults, err)
	r.instruments = append(r.instruments, i)
	r.reads = append(r.reads, read)
}

func (r *report) gauges() {
	r.gauge("dsql_reservoir_size", "Connections that are ready.", func(s dsql.Stats) int { return s.Reservoir.Idle })
	r.gauge("dsql_reservoir_target", "How many connections are to be ready.", func(s dsql.Stats) int { return s.MinIdle })
	r.gauge("dsql_reservoir_low", "1 while fewer connections are ready than the low watermark.", func(s dsql.Stats) int { return flag(s.Low) })
	r.gauge("dsql_reservoir_in_use", "Connections that are lent.", func(s dsql.Stats) int { return s.Reservoir.InUse })
	r.gauge("dsql_reservoir_opening", "Opens under way.", func(s dsql.Stats) int { return s.Reservoir.Opening })
	r.gauge("dsql_reservoir_waiting", "Callers who wait.", func(s dsql.Stats) int { return s.Waiting })
	r.gauge("dsql_distributed_conn_lease_active", "Connections of the whole fleet, as last seen.", func(s dsql.Stats) int { return s.Leases.Used })
	r.gauge("dsql_distributed_conn_lease_limit", "Connections that the fleet may have.", func(s dsql.Stats) int { return s.Leases.Limit })
	r.gauge("dsql_distributed_conn_lease_held", "Leases of this process.", func(s dsql.Stats) int { return s.Leases.InUse })
	r.gauge("dsql_distributed_conn_lease_degraded", "1 while the lease table cannot be reached.", func(s dsql.Stats) int { return flag(s.Leases.Degraded) })
	r.gauge("dsql_open_limiter_degraded", "1 while the limiter's table cannot be reached.", func(s dsql.Stats) int { return flag(s.Limiter.Degraded) })

	r.gauge("dsql_distributed_conn_lease_owners", "Processes that share the limit, as last seen.", func(s dsql.Stats) int { return s.Leases.Owners })
	r.gauge("dsql_distributed_conn_lease_unbacked", "Connections that the table does not know.", func(s dsql.Stats) int { return s.Leases.Unbacked })

	skew, err := r.meter.Float64ObservableGauge("dsql_lease_table_clock_skew_seconds", metric.WithUnit("s"),
		metric.WithDescription("The table's clock minus this process's."))
	r.add(skew, err, func(to metric.Observer, s dsql.Stats) {
		to.ObserveFloat64(skew, s.Leases.Traffic.ClockSkew.Seconds(), r.common)
	})

	paused, err := r.meter.Float64ObservableGauge("dsql_reservoir_paused_seconds", metric.WithUnit("s"),
		metric.WithDescription("For how long opens pause because the cluster refused some."))
	r.add(paused, err, func(to metric.Observer, s dsql.Stats) { to.ObserveFloat64(paused, s.Paused.Seconds(), r.common) })
}

func (r *report) counters() {
	r.counter("dsql_reservoir_checkouts_total", "Connections lent.", func(s dsql.Stats) uint64 { return s.Checkouts })
	r.counter("dsql_reservoir_empty_total", "Calls that found no connection ready.", func(s dsql.Stats) uint64 { return s.Empty })
	r.counter("dsql_reservoir_failures_total", "Calls that got no connection.", func(s dsql.Stats) uint64 { return s.Failures })
	r.counter("dsql_reservoir_refills_total", "Connections opened.", func(s dsql.Stats) uint64 { return s.Opened })
	r.counter("dsql_open_permits_total", "Opens that the limiter permitted.", func(s dsql.Stats) uint64 { return s.Limiter.Granted })
	r.counter("dsql_open_permits_denied_total", "Opens that the limiter did not permit.", func(s dsql.Stats) uint64 { return s.Limiter.Denied })
	r.counter("dsql_open_permits_fallback_total", "Opens at the rate of this process's own.", func(s dsql.Stats) uint64 { return s.Limiter.Fallbacks })
	r.counter("dsql_open_limiter_refusals_total", "Opens that the cluster refused as too fast.", func(s dsql.Stats) uint64 { return s.Limiter.Refusals })
	r.counter("dsql_distributed_conn_lease_losses_total", "Times this process was taken for dead.", func(s dsql.Stats) uint64 { return s.Leases.Losses })
	r.counter("dsql_distributed_conn_lease_reaped_total", "Dead processes whose leases were freed from here.", func(s dsql.Stats) uint64 { return s.Leases.Reaped })
	r.counter("dsql_distributed_conn_lease_fallbacks_total", "Leases that the fallback granted.", func(s dsql.Stats) uint64 { return s.Leases.Fallbacks })
	r.counter("dsql_lease_table_reads_total", "Reads of the table.", func(s dsql.Stats) uint64 { return s.Leases.Traffic.Reads + s.Limiter.Traffic.Reads })
	r.counter("dsql_lease_table_writes_total", "Writes to the table.", func(s dsql.Stats) uint64 { return s.Leases.Traffic.Writes + s.Limiter.Traffic.Writes })
	r.counter("dsql_lease_table_failures_total", "Requests to the table without an answer.",
		func(s dsql.Stats) uint64 { return s.Leases.Traffic.Failures + s.Limiter.Traffic.Failures })
	r.byReason("dsql_reservoir_discards_total", "Connections closed.", discards)
	r.byReason("dsql_reservoir_refill_failures_total", "Opens that failed.", func(s dsql.Stats) map[string]uint64 {
		f := s.FailedOpens
		return map[string]uint64{
			"rate_exceeded": f.Rate, "too_many_connections": f.Limit, "denied": f.Denied, "other": f.Other, "no_permission": f.Unpermitted,
		}
	})

	waited, err := r.meter.Float64ObservableCounter("dsql_reservoir_wait_seconds_total", metric.WithUnit("s"),
		metric.WithDescription("Sum of all waits for a connection."))
	r.add(waited, err, func(to metric.Observer, s dsql.Stats) { to.ObserveFloat64(waited, s.WaitTime.Seconds(), r.common) })
}

func discards(s dsql.Stats) map[string]uint64 {
	all := map[string]uint64{}
	for reason, n := range s.Reservoir.Closed {
		all[reservoir.Reason(reason).String()] = n
	}
	return all
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
