package flightprom

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
)

func asked(t testing.TB, c *Collector, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
	return w
}

// What the collector answers itself is what the client library makes of its metrics, line by line.
func TestTheHandlerAnswersWhatTheClientLibraryDoes(t *testing.T) {
	c, pool := start(t)
	require.Contains(t, asked(t, c, http.MethodGet).Body.String(), `flightpool_registry_calls_total{registry="main",server="warehouse",user="ana"} 1`)
	c.RemoveRegistry("main") // which may still open or check a connection
	idle := registry.New()
	t.Cleanup(func() { require.NoError(t, idle.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, idle.Register(t.Context(), registry.ServerDefinition{Name: "warehouse", Kind: "flightsql", Options: map[string]string{"host": "127.0.0.1", "port": "1"}}))
	c.AddRegistry("idle", idle)
	for _, name := range []string{"other", "caf\xe9", `"caf\xe9"`, "a\"b\\c\nd", ""} {
		c.Add(name, pool)
	}
	leases, limiter := lease.NewLeases("fleet", 2_000_000), lease.NewLimiter("fleet", 1, 5)
	c.AddBudget("fleet", leases, limiter)
	c.AddBudget("half", nil, limiter)
	own := asked(t, c, http.MethodGet)
	same(t, scrape(t, c), own.Body.String())
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", own.Header().Get("Content-Type"))

	begun, at := map[string]bool{}, ""
	for line := range strings.Lines(own.Body.String()) {
		if name, is := strings.CutPrefix(line, "# TYPE "); is {
			at, _, _ = strings.Cut(name, " ")
			require.False(t, begun[at], "%s stands in two places", at)
			begun[at] = true
		} else if !strings.HasPrefix(line, "#") {
			require.True(t, strings.HasPrefix(line, at), line)
		}
	}
	require.Empty(t, asked(t, NewCollector(), http.MethodGet).Body.String())
}

func TestNumbersAreWrittenAsTheClientLibraryDoes(t *testing.T) {
	values := []float64{0, 1, -1, 999_999, 1e6, 1_234_567, -1e6, 1e20, 1e21, .5, 0.000256, 1 / 3., math.MaxInt64, math.MaxUint64, math.Inf(1), math.Inf(-1), math.NaN(), math.SmallestNonzeroFloat64}
	table := series.NewTable[float64]("test_", "of")
	table.Gauge("A number.", "number", func(v *float64) float64 { return *v })
	var all []series.Reading[float64]
	for i, v := range values {
		all = append(all, table.Read(v, fmt.Sprint(i)))
	}
	same(t, scrape(t, collected[float64]{table, values, func(i int) []string { return []string{fmt.Sprint(i)} }}), text(t, table, all))
}

func TestUsersAreWrittenAsTheClientLibraryDoes(t *testing.T) {
	users := []registry.UserStats{{User: "ana"}, {User: "b\"o"}}
	users[0].Idle, users[0].Acquires, users[1].QueryFailures, users[1].BytesRead = 1, 1<<40, 3, 999_999
	labels := func(i int) []string { return []string{"all", "lake", users[i].User} }
	same(t, scrape(t, collected[registry.UserStats]{ofUsers, users, labels}),
		text(t, ofUsers, []series.Reading[registry.UserStats]{ofUsers.Read(users[0], labels(0)...), ofUsers.Read(users[1], labels(1)...)}))
}

func text[S any](t *testing.T, table *series.Table[S], all []series.Reading[S]) string {
	var own strings.Builder
	to := series.NewText(&own)
	table.WriteText(to, all)
	require.NoError(t, to.Flush())
	return own.String()
}

// same compares two answers, whatever the order of their lines.
func same(t *testing.T, want, is string) {
	t.Helper()
	a, b := slices.Sorted(strings.Lines(want)), slices.Sorted(strings.Lines(is))
	for i := range min(len(a), len(b)) {
		require.Equal(t, a[i], b[i])
	}
	require.Len(t, b, len(a))
	require.NotEmpty(t, a)
}

func TestTheHandlerOnlyReadsAndTellsOfPanics(t *testing.T) {
	c, _ := start(t)
	require.Equal(t, http.StatusMethodNotAllowed, asked(t, c, http.MethodPost).Code)
	require.Equal(t, http.StatusOK, asked(t, c, http.MethodHead).Code)
	c.AddBudget("broken", brokenLeases{}, nil)
	failed := asked(t, c, http.MethodGet)
	require.Equal(t, http.StatusInternalServerError, failed.Code)
	require.NotContains(t, failed.Body.String(), "flightpool_")
	require.NotContains(t, failed.Body.String(), "m4rker")
}

func TestAScraperThatHasGoneEndsTheAnswer(t *testing.T) {
	c, pool := start(t)
	for i := range 100 {
		c.Add(fmt.Sprint(i), pool)
	}
	w := &gone{ResponseRecorder: httptest.NewRecorder()}
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, 1, w.writes)
}

type gone struct {
	*httptest.ResponseRecorder
	writes int
}

func (g *gone) Write([]byte) (int, error) {
	g.writes++
	return 0, context.Canceled
}

// collected are sources of one kind as the client library sees them.
type collected[S any] struct {
	table  *series.Table[S]
	values []S
	labels func(int) []string
}

func (c collected[S]) Describe(out chan<- *prometheus.Desc) { c.table.Describe(out) }

func (c collected[S]) Collect(out chan<- prometheus.Metric) {
	for i := range c.values {
		c.table.Collect(out, &c.values[i], c.labels(i)...)
	}
}
