package flightprom

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

const password = "m4rker-p4ssword"

// start gives a collector of a pool and a registry that have been used.
func start(t testing.TB) (*Collector, *flightpool.FlightSQLPool) {
	server, err := testserver.Start(testserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	address, err := url.Parse(server.URI())
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	pool, err := flightpool.New(ctx, server.URI(), flightpool.Config{MaxSize: 1}) // so that nothing is opened behind the calls
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(ctx)) })
	reg := registry.New()
	t.Cleanup(func() { require.NoError(t, reg.Close(ctx)) })
	require.NoError(t, reg.Register(ctx, registry.ServerDefinition{
		Name: "warehouse", Kind: "flightsql", Options: map[string]string{"host": address.Hostname(), "port": address.Port()},
		Users: map[string]registry.UserMapping{"ana": {User: "ana", Password: password}},
	}))
	for range 3 {
		var n int64
		require.NoError(t, pool.QueryRow(ctx, "SELECT 7").Scan(&n))
	}
	require.Error(t, pool.QueryRow(ctx, "SELECT error('m4rker-text')").Scan(new(int64)))
	require.NoError(t, reg.QueryRow(ctx, "warehouse", "ana", "SELECT 7").Scan(new(int64)))
	c := NewCollector()
	c.Add("main", pool)
	c.AddRegistry(reg)
	return c, pool
}

// scrape is what Prometheus reads.
func scrape(t testing.TB, c *Collector) string {
	all := prometheus.NewPedanticRegistry()
	require.NoError(t, all.Register(c))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 200, answer.Code, string(text))
	return string(text)
}

func TestMetricsAreTheNumbersOfStats(t *testing.T) {
	c, pool := start(t)
	text := scrape(t, c)
	stats := pool.Stats()
	for line, value := range map[string]float64{
		`flightpool_acquires_total{outcome="ok",pool="main"}`:                             float64(stats.Acquired),
		`flightpool_calls_total{pool="main"}`:                                             4,
		`flightpool_call_failures_total{pool="main"}`:                                     1,
		`flightpool_connections{pool="main",state="idle"}`:                                float64(stats.Idle),
		`flightpool_connections_max{pool="main"}`:                                         1,
		`flightpool_healthy{pool="main"}`:                                                 1,
		`flightpool_call_seconds_count{pool="main"}`:                                      float64(stats.Times.Call.Count()),
		`flightpool_call_seconds_sum{pool="main"}`:                                        stats.Times.Call.Seconds(),
		`flightpool_hold_seconds_bucket{pool="main",le="+Inf"}`:                           4,
		`flightpool_first_batch_seconds_count{pool="main"}`:                               3,
		`flightpool_open_seconds_count{pool="main"}`:                                      float64(stats.Times.Open.Count()),
		`flightpool_registry_server_healthy{kind="flightsql",server="warehouse"}`:         1,
		`flightpool_registry_acquires_total{outcome="ok",server="warehouse",user="ana"}`:  1,
		`flightpool_registry_callers_waiting{server="warehouse",user="ana"}`:              0,
		`flightpool_registry_opens_total{outcome="failed",server="warehouse",user="ana"}`: 0,
	} {
		require.Contains(t, text, "\n"+line+" "+fmt.Sprint(value)+"\n")
	}
	for _, secret := range []string{password, "m4rker", "SELECT", "127.0.0.1"} {
		require.NotContains(t, text, secret)
	}
	c.Remove("main")
	require.NotContains(t, scrape(t, c), `pool="main"`)
}

func TestEveryBucketHasWhatIsWithinIt(t *testing.T) {
	c, pool := start(t)
	text := scrape(t, c)
	stats := pool.Stats()
	for _, bound := range bounds {
		want := uint64(0)
		for upto, n := range stats.Times.Call.Buckets() {
			if upto <= bound {
				want = n
			}
		}
		require.Contains(t, text, fmt.Sprintf("\nflightpool_call_seconds_bucket{pool=\"main\",le=\"%v\"} %d\n", bound.Seconds(), want))
	}
	require.NotContains(t, text, "flightpool_call_seconds_bucket{pool=\"main\",le=\"+Inf\"} 0\n", "something was counted")
}

func TestNamesFollowPrometheusRules(t *testing.T) {
	c, _ := start(t)
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// What the package comment lists is what there is.
func TestTheDocumentationNamesEveryMetric(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	c, _ := start(t)
	found := regexp.MustCompile(`# TYPE flightpool_(\w+)`).FindAllStringSubmatch(scrape(t, c), -1)
	require.NotEmpty(t, found)
	for _, name := range found {
		require.Contains(t, string(doc), strings.TrimPrefix(name[1], "registry_"))
	}
	for _, name := range regexp.MustCompile(`\tflightpool_(\w+)`).FindAllStringSubmatch(string(doc), -1) {
		require.Contains(t, scrape(t, c), "# TYPE flightpool_"+name[1]+" ")
	}
}

func BenchmarkScrapeOfAThousandPools(b *testing.B) {
	_, pool := start(b)
	c := NewCollector()
	for i := range 1000 {
		c.Add(fmt.Sprint("pool", i), pool)
	}
	all := prometheus.NewRegistry()
	all.MustRegister(c)
	handler := promhttp.HandlerFor(all, promhttp.HandlerOpts{DisableCompression: true})
	b.Run("collect", func(b *testing.B) {
		for b.Loop() {
			out := make(chan prometheus.Metric, 1000)
			go func() { c.Collect(out); close(out) }()
			for range out {
				continue
			}
		}
	})
	b.Run("answer", func(b *testing.B) {
		for b.Loop() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), "GET", "/metrics", nil))
		}
	})
}
