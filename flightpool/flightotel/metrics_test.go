package flightotel_test

import (
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

func TestATracerMeasuresCallsWaitsLoansOpensAndCancels(t *testing.T) {
	watched(t, flightpool.Config{MinIdle: -1, MaxSize: 1, AcquireTimeout: 2 * time.Second}, func(r *rig) {
		t := r.T
		s, err := r.pool.AcquireSession(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, drained(r.pool.Query(t.Context(), "SELECT 1")), flightpool.ErrExhausted)
		require.NoError(t, s.Close())
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Times: 1, Do: testserver.Kill()})
		r.pool.Reset()
		require.Error(t, drained(r.pool.Query(t.Context(), "SELECT 1")))
		require.NoError(t, drained(r.pool.Query(t.Context(), "SELECT sleep('3s')")))
		r.cut(t.Context(), "SELECT sleep('1h')")
		r.ended()
		got := r.collect()
		type point struct {
			attrs string // besides those of all
			count uint64
			sum   float64
		}
		for name, want := range map[string][]point{
			"db.client.operation.duration": {
				{"db.operation.name=Query db.query.summary=SELECT error.type=limit", 1, 2},
				{"db.operation.name=Query db.query.summary=SELECT", 1, 3},
				{"db.operation.name=Query db.query.summary=SELECT error.type=context", 1, 1},
				{"db.operation.name=Query db.query.summary=SELECT error.type=transport", 1, 0},
			},
			"db.client.connection.use_time": {{"", 3, 6.2}},
			"flightpool.cancel.duration":    {{"flightpool.cancel.confirmed_by=CancelFlightInfo", 1, 0}},
		} {
			m := got[name]
			require.Equal(t, "s", m.Unit, name)
			data, ok := m.Data.(metricdata.Histogram[float64])
			require.True(t, ok, name)
			var points []point
			for _, p := range data.DataPoints {
				attrs := p.Attributes.Encoded(attribute.DefaultEncoder())
				attrs = strings.NewReplacer("db.client.connection.pool.name=server:1", "", "db.system.name=other_sql", "", "server.address=server", "", "server.port=1", "").Replace(attrs)
				attrs = strings.Join(strings.FieldsFunc(attrs, func(c rune) bool { return c == ',' }), " ")
				points = append(points, point{attrs, p.Count, math.Round(p.Sum*10) / 10}) // pauses have a jitter
			}
			require.ElementsMatch(t, want, points, name)
		}
		for name, want := range map[string]map[string]uint64{
			"db.client.connection.wait_time":   {"": 3, "limit": 1, "transport": 1},
			"db.client.connection.create_time": {"": 2, "transport": 1},
		} {
			data, ok := got[name].Data.(metricdata.Histogram[float64])
			require.True(t, ok, name)
			outcomes := map[string]uint64{}
			for _, p := range data.DataPoints {
				kind, _ := p.Attributes.Value("error.type")
				outcomes[kind.AsString()] += p.Count
			}
			require.Equal(t, want, outcomes, name)
		}
	})
}

type fixed struct{ stats flightpool.Stats }

func (f *fixed) Stats() flightpool.Stats { return f.stats }
func (f *fixed) Target() string          { return "[::1]:31337" }

// numbers are all different, so that no two can be mixed up.
func numbers() *fixed {
	s := flightpool.Stats{
		Stats:   reservoir.Stats{Idle: 1, InUse: 2, Opening: 3, Closing: 4, MaxSize: 5, MinIdle: 6, Waiting: 7, Timeouts: 8, Opens: 9, OpenFailures: 10, Leaks: 11},
		Retries: 12, CancelsConfirmed: 13, CancelsUnconfirmed: 14, UnhealthySince: time.Unix(1, 0),
	}
	for i := range s.Closed {
		s.Closed[i] = uint64(20 + i)
	}
	return &fixed{s}
}

var want = map[string]int64{
	"db.client.connection.count idle": 1, "db.client.connection.count used": 2, "db.client.connection.count opening": 3, "db.client.connection.count closing": 4,
	"db.client.connection.max": 5, "db.client.connection.idle.max": 5, "db.client.connection.idle.min": 6, "db.client.connection.pending_requests": 7,
	"db.client.connection.timeouts": 8, "flightpool.connection.opens": 9, "flightpool.connection.open_failures": 10, "flightpool.connection.leaks": 11,
	"flightpool.retries": 12, "flightpool.cancels confirmed": 13, "flightpool.cancels unconfirmed": 14, "flightpool.unhealthy": 1,
	"flightpool.connection.discards expired": 20, "flightpool.connection.discards idle": 21, "flightpool.connection.discards discarded": 22,
	"flightpool.connection.discards outdated": 23, "flightpool.connection.discards surplus": 24, "flightpool.connection.discards unhealthy": 25,
	"flightpool.connection.discards shutdown": 26, "flightpool.connection.discards lost": 27,
}

func TestEveryNumberIsReportedByItsName(t *testing.T) {
	r := measured(t)
	meter, pool := r.meters.Meter("test"), numbers()
	registration, err := flightotel.Register(meter, pool)
	require.NoError(t, err)
	_, err = flightotel.Register(meter, numbers(), semconv.DBSystemNameKey.String("duckdb"), semconv.DBClientConnectionPoolName("other"))
	require.NoError(t, err)
	require.Equal(t, want, r.reported("[::1]:31337", "other_sql"))
	require.Equal(t, want, r.reported("other", "duckdb"), "each by its own attributes")
	pool.stats.Waiting = 70
	require.EqualValues(t, 70, r.reported("[::1]:31337", "other_sql")["db.client.connection.pending_requests"], "read when it is collected")
	require.NoError(t, registration.Unregister())
	require.Empty(t, r.reported("[::1]:31337", "other_sql"))
}

// reported are the points of a pool by name and state, reason or outcome.
func (r *rig) reported(pool, system string) map[string]int64 {
	r.Helper()
	got := map[string]int64{}
	for name, m := range r.collect() {
		var points []metricdata.DataPoint[int64]
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			points = data.DataPoints
			grows := strings.HasPrefix(name, "flightpool.") || name == "db.client.connection.timeouts"
			require.Equal(r, grows, data.IsMonotonic, name)
		case metricdata.Gauge[int64]:
			points = data.DataPoints
			require.Equal(r, "flightpool.unhealthy", name)
		default:
			require.Fail(r, "kind", "%s is %T", name, data)
		}
		require.NotEmpty(r, m.Description, name)
		for _, p := range points {
			if of, _ := p.Attributes.Value("db.client.connection.pool.name"); of.AsString() != pool {
				continue
			}
			key := name
			for _, a := range p.Attributes.ToSlice() {
				switch a.Key {
				case "db.client.connection.pool.name":
				case "db.system.name":
					require.Equal(r, system, a.Value.AsString())
				case "server.address":
					require.Equal(r, "::1", a.Value.AsString())
				case "server.port":
					require.EqualValues(r, 31337, a.Value.AsInt64())
				default:
					key += " " + a.Value.AsString()
				}
			}
			require.NotContains(r, got, key)
			got[key] = p.Value
		}
	}
	return got
}

func TestThePackageCommentNamesEveryInstrument(t *testing.T) {
	comment, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	named := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_.]+) +([^ \n]+)`).FindAllStringSubmatch(string(comment), -1) {
		named[m[1]] = m[2]
	}
	r := measured(t)
	_, err = flightotel.Register(r.meters.Meter("test"), numbers())
	require.NoError(t, err)
	_, err = flightotel.RegisterBudget(r.meters.Meter("test"), "fleet", budgetOf(), limiterOf())
	require.NoError(t, err)
	for name, m := range r.collect() {
		require.Equal(t, named[name], m.Unit, name)
		delete(named, name)
	}
	for name := range want {
		_, value, _ := strings.Cut(name, " ")
		require.Contains(t, string(comment), value)
	}
	delete(named, "flightpool.acquire") // spans
	delete(named, "flightpool.batch")
	delete(named, "flightpool.cancel")
	delete(named, "flightpool.connect")
	require.Len(t, named, 5, "the histograms are left: %v", named)
}

// A broken meter makes no instruments.
type broken struct{ noop.Meter }

func (broken) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errors.New("broken")
}

func TestAFaultOfTheMeterIsTold(t *testing.T) {
	_, err := flightotel.Register(broken{}, numbers())
	require.ErrorContains(t, err, "broken")
}
