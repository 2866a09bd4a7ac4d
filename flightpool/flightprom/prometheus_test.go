package flightprom

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom/dsqlprom"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/reservoir/dsql"
)

// installed finds a program of Prometheus'.
func installed(t *testing.T, program string) string {
	path, err := exec.LookPath(program)
	require.NoError(t, err, "alerts and dashboard are tried on a real Prometheus: .ci/deps prometheus installs it")
	return path
}

func TestAlertsAndDashboardNameMetricsThatThereAre(t *testing.T) {
	known := append(names(NewCollector()), names(dsqlprom.NewCollector())...)
	alerts, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	asked := string(alerts)
	for _, q := range queries() {
		asked += "\n" + q
	}
	found := map[string]bool{}
	for _, name := range regexp.MustCompile(`\b(?:flightpool|dsql)_\w+`).FindAllString(asked, -1) {
		name = strings.TrimSuffix(name, "_bucket")
		require.Contains(t, known, name)
		found[name] = true
	}
	for _, name := range known {
		require.True(t, found[name], "%s is neither on the dashboard nor in an alert", name)
	}
}

func TestTheDocumentsSayWhatToDoAtEachAlert(t *testing.T) {
	doc, err := os.ReadFile("../../docs/watching.md")
	require.NoError(t, err)
	alerts, err := os.ReadFile("alerts.yml")
	require.NoError(t, err)
	all := regexp.MustCompile(`(?s)alert: (\w+)(.*?)action: '`).FindAllStringSubmatch(string(alerts), -1)
	require.Len(t, all, strings.Count(string(alerts), "- alert:"), "each has an action")
	for _, a := range all {
		require.Contains(t, string(doc), "| `"+a[1]+"` |")
	}
}

// queries are those of the dashboard as Grafana sends them.
func queries() (all []string) {
	for _, r := range panels {
		for _, p := range r.panels {
			for _, q := range p.queries {
				_, expr := expression(q)
				all = append(all, strings.NewReplacer("$instance", ".*", "$pool", ".*", "$__rate_interval", "10s").Replace(expr))
			}
		}
	}
	return all
}

func TestPromtoolFindsNoFault(t *testing.T) {
	promtool := installed(t, "promtool")
	c, _ := start(t)
	c.AddBudget("fleet", lease.NewLeases("fleet", 2), lease.NewLimiter("fleet", 1, 5))
	clusters := dsqlprom.NewCollector()
	clusters.Add("orders", &rising{})
	text := scrape(t, c, clusters)
	own := asked(t, c, http.MethodGet).Body.String()
	for _, run := range []struct{ args, in string }{{"check metrics", text}, {"check metrics", own}, {"check rules alerts.yml", ""}, {"test rules alerts_test.yml", ""}} {
		args := strings.Fields(run.args)
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Stdin = strings.NewReader(run.in)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", args, out)
	}
}

// Every query of the dashboard has an answer with a number in it.
func TestARealPrometheusAnswersTheDashboard(t *testing.T) {
	binary := installed(t, "prometheus")
	c, pool := start(t)
	address := serve(t, binary, c, load(t, c, pool))
	for _, q := range queries() {
		answer := ask(t, address+"/api/v1/query?query="+url.QueryEscape(q))
		var numbers int
		for _, r := range answer.Data.Result {
			n, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
			require.NoError(t, err)
			if !math.IsNaN(n) {
				numbers++
			}
		}
		require.NotZero(t, numbers, "%s: %s", q, answer.Error)
	}
	for _, group := range ask(t, address+"/api/v1/rules").Data.Groups {
		for _, rule := range group.Rules {
			require.NotEqual(t, "err", rule.Health, rule.Name)
		}
	}
}

type answer struct {
	Error string
	Data  struct {
		Result []struct{ Value [2]any }
		Groups []struct {
			Rules []struct{ Name, Health string }
		}
	}
}

func ask(t *testing.T, address string) (a answer) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&a))
	require.NoError(t, response.Body.Close())
	return a
}

// A rising source counts its calls: a cluster that is used without one.
type rising struct {
	mu sync.Mutex
	n  uint64
}

func (r *rising) Stats() dsql.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	return dsql.Stats{Checkouts: r.n, WaitTime: time.Duration(r.n) * time.Millisecond}
}

// load uses a pool, and budgets that it adds, until the test ends. It returns a cluster.
func load(t *testing.T, c *Collector, pool *flightpool.FlightSQLPool) prometheus.Collector {
	table := fleet.NewMemory()
	leases, err := fleet.New(t.Context(), table, fleet.Config{Budget: "fleet", Limit: 10})
	require.NoError(t, err)
	limiter, err := fleet.NewLimiter(t.Context(), table, fleet.LimiterConfig{Budget: "fleet"})
	require.NoError(t, err)
	c.AddBudget("fleet", leases, limiter)
	ctx, stop := context.WithCancel(t.Context())
	var used sync.WaitGroup
	for range 2 {
		used.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_ = pool.QueryRow(ctx, "SELECT 7").Scan(new(int64))
				if i%100 == 0 {
					pool.Reset() // so that connections are opened
				}
			}
		})
	}
	used.Go(func() {
		release, err := leases.Acquire(ctx)
		if err == nil {
			defer release()
			_ = limiter.Wait(ctx)
		}
		<-ctx.Done()
	})
	t.Cleanup(func() {
		stop()
		used.Wait()
		end := context.WithoutCancel(ctx)
		require.NoError(t, leases.Close(end))
		require.NoError(t, limiter.Close(end))
	})
	cluster := dsqlprom.NewCollector()
	cluster.Add("orders", &rising{})
	return cluster
}

// scrapes are how often a Prometheus has to scrape before it can tell a rate.
const scrapes = 4

// serve starts a Prometheus that scrapes the collectors until the test ends, and gives its
// address once it has stored some scrapes.
func serve(t *testing.T, binary string, collectors ...prometheus.Collector) (address string) {
	all := prometheus.NewPedanticRegistry()
	all.MustRegister(collectors...)
	var count atomic.Int64
	stored, listening := make(chan struct{}), make(chan string, 1)
	metrics := promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true}) // which Prometheus prefers
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if count.Add(1) == scrapes+1 { // those before are stored
			close(stored)
		}
		metrics.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	rules, err := filepath.Abs("alerts.yml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs: [{job_name: test, static_configs: [{targets: [%q]}]}]\n",
		rules, strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	cmd := exec.CommandContext(t.Context(), binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if at := regexp.MustCompile(`msg="Listening on" address=(\S+)`).FindStringSubmatch(lines.Text()); at != nil {
				listening <- at[1]
			}
		}
	}()
	t.Cleanup(func() { // the test's context has ended, and with it the process
		<-read
		_ = cmd.Wait()
	})
	select {
	case <-stored:
	case <-time.After(time.Minute):
		t.Fatal("Prometheus does not scrape")
	}
	return "http://" + <-listening
}
