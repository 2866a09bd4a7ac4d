package flightotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/flightpool/flightpool/flightpool/flightotel"
	"github.com/flightpool/flightpool/lease"
)

type fixedLeases struct {
	lease.Leases
	stats lease.Stats
}

func (f *fixedLeases) Stats() lease.Stats { return f.stats }

type fixedLimiter struct {
	lease.Limiter
	stats lease.LimiterStats
}

func (f *fixedLimiter) Stats() lease.LimiterStats { return f.stats }

// Their numbers are all different, so that no two can be mixed up.
func budgetOf() *fixedLeases {
	return &fixedLeases{stats: lease.Stats{
		Limit: 1, Used: 2, InUse: 3, Spare: 4, Unbacked: 5, Share: 6, Owners: 7, Waiting: 8, Granted: 9, Denied: 10, Fallbacks: 11, Losses: 12, Reaped: 13,
		Traffic: lease.Traffic{Reads: 14, Writes: 15, Failures: 16},
	}}
}

func limiterOf() *fixedLimiter {
	return &fixedLimiter{stats: lease.LimiterStats{
		Waiting: 20, Degraded: true, Granted: 21, Denied: 22, Fallbacks: 23, Dropped: 24, Refusals: 25, Traffic: lease.Traffic{Reads: 26, Writes: 27, Failures: 28},
	}}
}

func TestBudgetsAreReportedByTheirNames(t *testing.T) {
	r := measured(t)
	registration, err := flightotel.RegisterBudget(r.meters.Meter("test"), "fleet", budgetOf(), limiterOf(), semconv.DBSystemNamePostgreSQL)
	require.NoError(t, err)
	got := map[string]int64{}
	for name, m := range r.collect() {
		var points []metricdata.DataPoint[int64]
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.True(t, data.IsMonotonic, name)
			points = data.DataPoints
		case metricdata.Gauge[int64]:
			points = data.DataPoints
		}
		require.NotEmpty(t, m.Description, name)
		for _, p := range points {
			key := name
			for _, a := range p.Attributes.ToSlice() {
				switch a.Key {
				case "flightpool.budget":
					require.Equal(t, "fleet", a.Value.AsString())
				case "db.system.name":
					require.Equal(t, "postgresql", a.Value.AsString())
				default:
					key += " " + a.Value.AsString()
				}
			}
			require.NotContains(t, got, key)
			got[key] = p.Value
		}
	}
	require.Equal(t, map[string]int64{
		"flightpool.lease.limit": 1, "flightpool.lease.used": 2, "flightpool.lease.in_use": 3, "flightpool.lease.spare": 4, "flightpool.lease.unbacked": 5, "flightpool.lease.share": 6,
		"flightpool.lease.owners": 7, "flightpool.lease.opens_waiting": 8, "flightpool.lease.unreachable": 0, "flightpool.lease.grants ok": 9, "flightpool.lease.grants failed": 10,
		"flightpool.lease.fallbacks": 11, "flightpool.lease.losses": 12, "flightpool.lease.reaped": 13, "flightpool.lease.table_requests read": 14,
		"flightpool.lease.table_requests write": 15, "flightpool.lease.table_failures": 16, "flightpool.limiter.opens_waiting": 20, "flightpool.limiter.unreachable": 1,
		"flightpool.limiter.permits ok": 21, "flightpool.limiter.permits failed": 22, "flightpool.limiter.fallbacks": 23, "flightpool.limiter.dropped": 24, "flightpool.limiter.refusals": 25,
		"flightpool.limiter.table_requests read": 26, "flightpool.limiter.table_requests write": 27, "flightpool.limiter.table_failures": 28,
	}, got)
	require.NoError(t, registration.Unregister())
	require.Empty(t, r.collect())
}

// brokenLeases have Stats that panic.
type brokenLeases struct{ lease.Leases }

func (brokenLeases) Stats() lease.Stats { panic("broken") }

func TestStatsThatPanicFailTheCollectionAndNotTheProcess(t *testing.T) {
	r := measured(t)
	_, err := flightotel.RegisterBudget(r.meters.Meter("test"), "broken", brokenLeases{}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, r.metrics.Collect(t.Context(), &metricdata.ResourceMetrics{}), "the Stats of a budget panicked")
}

func TestABudgetMayHaveOneHalf(t *testing.T) {
	r := measured(t)
	_, err := flightotel.RegisterBudget(r.meters.Meter("test"), "fleet", lease.NewLeases("fleet", 3), nil)
	require.NoError(t, err)
	require.Len(t, r.collect(), 15)
	_, err = flightotel.RegisterBudget(r.meters.Meter("test"), "fleet", nil, nil)
	require.NoError(t, err)
	_, err = flightotel.RegisterBudget(broken{}, "fleet", lease.NewLeases("fleet", 3), nil)
	require.ErrorContains(t, err, "broken")
}
