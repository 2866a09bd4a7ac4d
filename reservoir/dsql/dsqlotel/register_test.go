package dsqlotel_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/reservoir/dsql/dsqlotel"
)

var (
	_ dsqlotel.Source = (*dsql.Cluster)(nil)
	_ dsqlotel.Source = (*dsql.Pool)(nil)
)

type fixed dsql.Stats

func (f *fixed) Stats() dsql.Stats { return dsql.Stats(*f) }

// numbers are all different, so that no two can be mixed up.
func numbers() *fixed {
	s := fixed{
		Reservoir: reservoir.Stats{Idle: 1, InUse: 2, Opening: 3, Waiting: 98}, Waiting: 4, Checkouts: 5, Empty: 6, Failures: 7,
		WaitTime: 1500 * time.Millisecond, Opened: 8, FailedOpens: dsql.FailedOpens{Rate: 9, Limit: 10, Denied: 11, Other: 12, Unpermitted: 13},
		Leases: lease.Stats{
			Used: 14, Limit: 15, InUse: 16, Degraded: true, Owners: 30, Unbacked: 31, Losses: 32, Reaped: 33, Fallbacks: 34,
			Traffic: lease.Traffic{Reads: 100, Writes: 200, Failures: 300, ClockSkew: 3500 * time.Millisecond},
		},
		Limiter: lease.LimiterStats{
			Granted: 17, Denied: 18, Fallbacks: 35, Refusals: 36, Traffic: lease.Traffic{Reads: 1, Writes: 2, Failures: 3},
		},
		MinIdle: 19, Low: true, Paused: 250 * time.Millisecond,
	}
	for i := range s.Reservoir.Closed {
		s.Reservoir.Closed[i] = uint64(20 + i)
	}
	return &s
}

var want = map[string]float64{
	"dsql_reservoir_size": 1, "dsql_reservoir_in_use": 2, "dsql_reservoir_opening": 3, "dsql_reservoir_waiting": 4, "dsql_reservoir_target": 19,
	"dsql_reservoir_low": 1, "dsql_reservoir_paused_seconds": 0.25, "dsql_reservoir_wait_seconds_total": 1.5,
	"dsql_reservoir_checkouts_total": 5, "dsql_reservoir_empty_total": 6, "dsql_reservoir_failures_total": 7, "dsql_reservoir_refills_total": 8,
	"dsql_reservoir_refill_failures_total rate_exceeded": 9, "dsql_reservoir_refill_failures_total too_many_connections": 10,
	"dsql_reservoir_refill_failures_total denied": 11, "dsql_reservoir_refill_failures_total other": 12, "dsql_reservoir_refill_failures_total no_permission": 13,
	"dsql_distributed_conn_lease_active": 14, "dsql_distributed_conn_lease_limit": 15, "dsql_distributed_conn_lease_held": 16,
	"dsql_distributed_conn_lease_degraded": 1, "dsql_open_limiter_degraded": 0, "dsql_open_permits_total": 17, "dsql_open_permits_denied_total": 18,
	"dsql_distributed_conn_lease_owners": 30, "dsql_distributed_conn_lease_unbacked": 31, "dsql_distributed_conn_lease_losses_total": 32,
	"dsql_distributed_conn_lease_reaped_total": 33, "dsql_distributed_conn_lease_fallbacks_total": 34, "dsql_open_permits_fallback_total": 35,
	"dsql_open_limiter_refusals_total": 36, "dsql_lease_table_reads_total": 101, "dsql_lease_table_writes_total": 202, "dsql_lease_table_failures_total": 303,
	"dsql_lease_table_clock_skew_seconds":   3.5,
	"dsql_reservoir_discards_total expired": 20, "dsql_reservoir_discards_total idle": 21, "dsql_reservoir_discards_total discarded": 22,
	"dsql_reservoir_discards_total outdated": 23, "dsql_reservoir_discards_total surplus": 24, "dsql_reservoir_discards_total unhealthy": 25,
	"dsql_reservoir_discards_total lost": 27, "dsql_reservoir_discards_total shutdown": 26,
}

func TestEveryNumberIsReportedByItsName(t *testing.T) {
	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
	source := numbers()
	registration, err := dsqlotel.Register(meter, source, attribute.String("service", "history"))
	require.NoError(t, err)
	require.Equal(t, want, collect(t, reader, "history"))
	source.Checkouts = 50
	require.EqualValues(t, 50, collect(t, reader, "history")["dsql_reservoir_checkouts_total"], "read when it is collected")

	_, err = dsqlotel.Register(meter, numbers(), attribute.String("service", "matching"))
	require.NoError(t, err)
	require.Equal(t, want, collect(t, reader, "matching"), "each by its own attributes")
	require.NoError(t, registration.Unregister())
	require.Empty(t, collect(t, reader, "history"))
}

// collect reads all points of a service, and looks that names and kinds fit.
func collect(t *testing.T, reader *sdk.ManualReader, service string) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got := map[string]float64{}
	point := func(name string, attrs attribute.Set, value float64) {
		if s, _ := attrs.Value("service"); s.AsString() != service {
			return
		}
		if reason, ok := attrs.Value("reason"); ok {
			name += " " + reason.AsString()
		}
		require.NotContains(t, got, name)
		got[name] = value
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotEmpty(t, m.Description, m.Name)
			require.Equal(t, strings.Contains(m.Name, "_seconds"), m.Unit == "s", m.Name)
			total := strings.HasSuffix(m.Name, "_total")
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				require.False(t, total, m.Name)
				for _, p := range data.DataPoints {
					point(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				require.False(t, total, m.Name)
				for _, p := range data.DataPoints {
					point(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Sum[int64]:
				require.True(t, total && data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					point(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				require.True(t, total && data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					point(m.Name, p.Attributes, p.Value)
				}
			default:
				t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return got
}

func TestThePackageCommentNamesEveryInstrument(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	text := string(comment)
	for _, short := range []string{"_opening", "_waiting", "_limit", "_denied_total"} { // of a line with several
		require.Contains(t, text, ", "+short)
	}
	for name := range want {
		name, reason, _ := strings.Cut(name, " ")
		require.Contains(t, text, reason)
		for _, short := range []string{"_opening", "_waiting", "_limit", "_denied_total"} {
			if strings.HasSuffix(name, short) {
				name = ""
			}
		}
		require.Contains(t, text, name)
	}
}

// A broken meter makes no instruments.
type broken struct {
	noop.Meter
}

func (broken) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errors.New("broken gauge")
}

func (broken) Float64ObservableCounter(string, ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	return nil, errors.New("broken counter")
}

func TestFaultsOfTheMeterAreToldTogether(t *testing.T) {
	_, err := dsqlotel.Register(broken{}, numbers())
	require.ErrorContains(t, err, "broken gauge")
	require.ErrorContains(t, err, "broken counter")
}

func TestATracerMeasuresEveryCheckout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
		tracer, err := dsqlotel.NewTracer(meter, attribute.String("service", "history"))
		require.NoError(t, err)
		for _, err := range []error{nil, errors.New("none"), nil} {
			ctx := tracer.TraceAcquireStart(t.Context(), dsql.TraceAcquireStartData{})
			time.Sleep(2 * time.Second)
			tracer.TraceAcquireEnd(ctx, dsql.TraceAcquireEndData{Err: err})
		}
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		m := all.ScopeMetrics[0].Metrics[0]
		require.Equal(t, "dsql_reservoir_checkout_seconds", m.Name)
		data, ok := m.Data.(metricdata.Histogram[float64])
		require.True(t, ok)
		require.Len(t, data.DataPoints, 2)
		for _, p := range data.DataPoints {
			failed, _ := p.Attributes.Value("failed")
			service, _ := p.Attributes.Value("service")
			require.Equal(t, "history", service.AsString())
			want := map[bool]uint64{true: 1, false: 2}[failed.AsBool()]
			require.Equal(t, want, p.Count)
			require.InDelta(t, 2*float64(want), p.Sum, 1e-9)
		}
	})
}
