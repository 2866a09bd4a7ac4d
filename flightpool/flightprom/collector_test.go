package flightprom

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
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
	c.AddRegistry("main", reg)
	return c, pool
}

// scrape is what Prometheus reads.
func scrape(t testing.TB, of ...prometheus.Collector) string {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(of...)
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
		`flightpool_acquires_total{outcome="ok",pool="main"}`:                                             float64(stats.Acquired),
		`flightpool_calls_total{pool="main"}`:                                                             4,
		`flightpool_call_failures_total{pool="main"}`:                                                     1,
		`flightpool_connections{pool="main",state="idle"}`:                                                float64(stats.Idle),
		`flightpool_connections_max{pool="main"}`:                                                         1,
		`flightpool_healthy{pool="main"}`:                                                                 1,
		`flightpool_call_seconds_count{pool="main"}`:                                                      float64(stats.Times.Call.Count()),
		`flightpool_call_seconds_sum{pool="main"}`:                                                        stats.Times.Call.Seconds(),
		`flightpool_hold_seconds_bucket{pool="main",le="+Inf"}`:                                           4,
		`flightpool_first_batch_seconds_count{pool="main"}`:                                               3,
		`flightpool_open_seconds_count{pool="main"}`:                                                      float64(stats.Times.Open.Count()),
		`flightpool_registry_server_healthy{kind="flightsql",registry="main",server="warehouse"}`:         1,
		`flightpool_registry_acquires_total{outcome="ok",registry="main",server="warehouse",user="ana"}`:  1,
		`flightpool_registry_callers_waiting{registry="main",server="warehouse",user="ana"}`:              0,
		`flightpool_registry_opens_total{outcome="failed",registry="main",server="warehouse",user="ana"}`: 0,
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

// With anything else in a label the scrape would fail, and the name of a user may be
// whatever a caller came with.
func TestNamesThatAreNotUTF8AreQuoted(t *testing.T) {
	c, pool := start(t)
	c.Add("caf\xe9", pool)
	c.Add(`"caf\xe9"`, pool)
	c.AddBudget("\xff", lease.NewLeases("", 1), nil)
	text := scrape(t, c)
	require.Contains(t, text, `flightpool_healthy{pool="\"caf\\xe9\""} 1`)
	require.Contains(t, text, `flightpool_healthy{pool="\"\\\"caf\\\\xe9\\\"\""} 1`, "which is called like that one is quoted")
	require.Contains(t, text, `flightpool_lease_limit{budget="\"\\xff\""} 1`)
}

func TestTwoRegistriesMayHaveServersOfOneName(t *testing.T) {
	c, _ := start(t)
	reg := registry.New()
	t.Cleanup(func() { require.NoError(t, reg.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{
		Name: "warehouse", Kind: "flightsql", Options: map[string]string{"host": "127.0.0.1", "port": "1"}, Users: map[string]registry.UserMapping{"ana": {User: "ana"}},
	}))
	c.AddRegistry("other", reg)
	text := scrape(t, c)
	for _, name := range []string{"main", "other"} {
		require.Contains(t, text, fmt.Sprintf(`flightpool_registry_server_healthy{kind="flightsql",registry=%q,server="warehouse"} 1`, name))
	}
	c.RemoveRegistry("other")
	require.NotContains(t, scrape(t, c), `registry="other"`)
}

type brokenLeases struct{ lease.Leases }

func (brokenLeases) Stats() lease.Stats { panic("m4rker") }

func TestStatsThatPanicFailTheScrapeAndNotTheProcess(t *testing.T) {
	c, _ := start(t)
	c.AddBudget("broken", brokenLeases{}, nil)
	all := prometheus.NewRegistry()
	all.MustRegister(c)
	families, err := all.Gather()
	require.ErrorContains(t, err, "m4rker")
	require.NotEmpty(t, families)
	c.RemoveBudget("broken")
	require.NotContains(t, scrape(t, c), "broken")
}

func TestBudgetsAreWhatTheirStatsSay(t *testing.T) {
	leases, limiter := lease.NewLeases("fleet", 2), lease.NewLimiter("fleet", 1, 5)
	release, err := leases.Acquire(t.Context())
	require.NoError(t, err)
	defer release()
	require.NoError(t, limiter.Wait(t.Context()))
	var c Collector
	c.AddBudget("fleet", leases, limiter)
	text := scrape(t, &c)
	for line, value := range map[string]int{
		`lease_limit`: 2, `lease_used`: 1, `lease_in_use`: 1, `lease_spare`: 0, `lease_opens_waiting`: 0, `lease_table_reachable`: 1,
		`limiter_table_reachable`: 1, `limiter_opens_waiting`: 0,
	} {
		require.Contains(t, text, fmt.Sprintf("\nflightpool_%s{budget=\"fleet\"} %d\n", line, value))
	}
	require.Contains(t, text, `flightpool_lease_grants_total{budget="fleet",outcome="ok"} 1`)
	require.Contains(t, text, `flightpool_limiter_permits_total{budget="fleet",outcome="ok"} 1`)
}

// Under load, while pools and servers come and go, no scrape fails, no counter goes back,
// and no histogram has more in a bucket than in the next.
func TestScrapesBesideEverythingElse(t *testing.T) {
	c, pool := start(t)
	ctx, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	repeat := func(f func(i int)) {
		beside.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
			}
		})
	}
	for range 4 {
		repeat(func(int) { _ = pool.QueryRow(ctx, "SELECT 7").Scan(new(int64)) })
	}
	repeat(func(i int) {
		name := fmt.Sprint("pool", i%3)
		c.Add(name, pool)
		c.Remove(name)
		c.AddRegistry(name, registry.New())
		c.RemoveRegistry(name)
	})
	for _, reg := range c.registries.All() {
		repeat(func(int) { _ = reg.QueryRow(ctx, "warehouse", "ana", "SELECT 7").Scan(new(int64)) })
		repeat(func(i int) { // new connections take the place of the old
			def, err := reg.Definition("warehouse")
			require.NoError(t, err)
			def.Users = map[string]registry.UserMapping{"ana": {User: "ana", Password: fmt.Sprint(i)}}
			_ = reg.Update(ctx, def)
		})
	}
	before := map[string]float64{}
	for range 25 {
		all := prometheus.NewPedanticRegistry()
		all.MustRegister(c)
		families, err := all.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				at := fmt.Sprint(f.GetName(), m.GetLabel())
				if strings.Contains(at, "pool0") || strings.Contains(at, "pool1") || strings.Contains(at, "pool2") {
					continue
				}
				last, now := before[at], m.GetCounter().GetValue()
				if h := m.GetHistogram(); h != nil {
					now = float64(h.GetSampleCount())
					within := uint64(0)
					for _, b := range h.GetBucket() {
						require.GreaterOrEqual(t, b.GetCumulativeCount(), within, at)
						within = b.GetCumulativeCount()
					}
					require.GreaterOrEqual(t, h.GetSampleCount(), within, at)
				}
				require.GreaterOrEqual(t, now, last, at)
				before[at] = now
			}
		}
	}
	stop()
	beside.Wait()
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
	var documented []string
	for _, line := range regexp.MustCompile(`(?m)^//\t(flightpool_\w+)`).FindAllStringSubmatch(string(doc), -1) {
		documented = append(documented, line[1])
	}
	require.ElementsMatch(t, documented, names(NewCollector()))
}

// What the documents say of how much a scrape is, is so.
func TestTheDocumentsCountTheSeries(t *testing.T) {
	pool, histograms := counted(t, func(out chan<- prometheus.Metric) { ofPools.Collect(out, &flightpool.Stats{}, "a") })
	user, none := counted(t, func(out chan<- prometheus.Metric) { ofUsers.Collect(out, &registry.UserStats{}, "a", "b", "c") })
	require.Zero(t, none)
	lines := len(bounds) + 3 // the bucket without a bound, the sum and the count
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(doc), "//", "")), " "),
		fmt.Sprintf("A pool has %d series and %d histograms with %d lines each, a user of a registry %d series,", pool, histograms, lines, user))
	watching, err := os.ReadFile("../../docs/watching.md")
	require.NoError(t, err)
	require.Contains(t, string(watching), fmt.Sprintf("A scrape of 1,000 pools that were used is %d,000 lines,", pool+histograms*lines))
}

// counted is how many series and histograms a source has.
func counted(t *testing.T, collect func(chan<- prometheus.Metric)) (series, histograms int) {
	out := make(chan prometheus.Metric)
	go func() { collect(out); close(out) }()
	for m := range out {
		var written dto.Metric
		require.NoError(t, m.Write(&written))
		if written.Histogram != nil {
			histograms++
		} else {
			series++
		}
	}
	return series, histograms
}

// names are those that a collector describes.
func names(c prometheus.Collector) (all []string) {
	descs := make(chan *prometheus.Desc)
	go func() { c.Describe(descs); close(descs) }()
	for d := range descs {
		all = append(all, regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1])
	}
	return all
}

// What of a scrape is the collector's, and what the client library's: the text alone is
// written from families that are there already.
func BenchmarkScrapeOfAThousandPools(b *testing.B) {
	server, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
	require.NoError(b, err)
	defer func() { require.NoError(b, server.Close()) }()
	c, pools := NewCollector(), make([]*flightpool.FlightSQLPool, 1000)
	for i := range pools {
		pools[i], err = flightpool.New(b.Context(), "grpc://server:1", flightpool.Config{MaxSize: 1, Dialer: server.Dial})
		require.NoError(b, err)
		defer func() { require.NoError(b, pools[i].Close(context.WithoutCancel(b.Context()))) }()
		require.NoError(b, pools[i].QueryRow(b.Context(), "SELECT 7").Scan(new(int64)))
		c.Add(fmt.Sprint("pool", i), pools[i])
	}
	all := prometheus.NewRegistry()
	all.MustRegister(c)
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			for _, pool := range pools {
				_ = pool.Stats()
			}
		}
	})
	b.Run("collect", func(b *testing.B) {
		for b.Loop() {
			out := make(chan prometheus.Metric, 1000)
			go func() { c.Collect(out); close(out) }()
			for range out {
				continue
			}
		}
	})
	b.Run("gather", func(b *testing.B) {
		for b.Loop() {
			_, _ = all.Gather()
		}
	})
	b.Run("text alone", func(b *testing.B) {
		families, err := all.Gather()
		require.NoError(b, err)
		for b.Loop() {
			text := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
			for _, f := range families {
				require.NoError(b, text.Encode(f))
			}
		}
	})
	b.Run("handler", func(b *testing.B) {
		for b.Loop() {
			c.ServeHTTP(&discard{}, httptest.NewRequestWithContext(b.Context(), "GET", "/metrics", nil))
		}
	})
	b.Run("answer", func(b *testing.B) {
		handler := promhttp.HandlerFor(all, promhttp.HandlerOpts{DisableCompression: true})
		for b.Loop() {
			handler.ServeHTTP(&discard{}, httptest.NewRequestWithContext(b.Context(), "GET", "/metrics", nil))
		}
	})
}

// discard is who reads an answer and forgets it.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}
func (*discard) Write(text []byte) (int, error) { return len(text), nil }
func (*discard) WriteHeader(int)                {}
