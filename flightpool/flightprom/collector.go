package flightprom

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// Collector is a prometheus.Collector of pools and registries. Its methods may be called
// from any goroutine.
type Collector struct {
	mu         sync.RWMutex
	pools      map[string]*flightpool.FlightSQLPool
	registries []*registry.Registry
}

// NewCollector makes a Collector without pools.
func NewCollector() *Collector {
	return &Collector{pools: map[string]*flightpool.FlightSQLPool{}}
}

// Add shows a pool by a name, in the place of the one that had it. A pool that is closed
// is shown until it is removed.
func (c *Collector) Add(name string, pool *flightpool.FlightSQLPool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[name] = pool
}

// Remove shows a pool no longer.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, name)
}

// AddRegistry shows the servers and users of a registry. No two of a Collector may have
// servers of one name.
func (c *Collector) AddRegistry(r *registry.Registry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registries = append(c.registries, r)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range slices.Concat(slices.Collect(maps.Values(described)), histograms()) {
		out <- m
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.RLock()
	pools, registries := maps.Clone(c.pools), slices.Clone(c.registries)
	c.mu.RUnlock()
	for name, pool := range pools {
		stats := pool.Stats()
		for _, m := range poolMetrics {
			out <- m.of(&stats, name)
		}
		for _, h := range poolHistograms {
			out <- h.of(&stats.Times, name)
		}
	}
	for _, r := range registries {
		collectRegistry(r, out)
	}
}

// A metric is one series of a source.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label []string // the value of the label that the series has besides its source's
	value func(*S) float64
}

func (m *metric[S]) of(s *S, source ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), append(slices.Clip(source), m.label...)...)
}

// described are the descriptions by name: series that differ in a label share theirs.
var described = map[string]*prometheus.Desc{}

// gauge and counter describe a series. series is its name, and behind a blank the label
// that it has besides those of its source, as in "opens_total outcome=ok".
func gauge[S any](help, series string, source []string, value func(*S) float64) metric[S] {
	return newMetric(prometheus.GaugeValue, help, series, source, value)
}

func counter[S any](help, series string, source []string, value func(*S) float64) metric[S] {
	return newMetric(prometheus.CounterValue, help, series, source, value)
}

func newMetric[S any](kind prometheus.ValueType, help, series string, source []string, value func(*S) float64) metric[S] {
	name, label, _ := strings.Cut(series, " ")
	key, given, labelled := strings.Cut(label, "=")
	m := metric[S]{kind: kind, value: value}
	if labelled {
		source, m.label = append(slices.Clip(source), key), []string{given}
	}
	m.desc = cmp.Or(described[name], prometheus.NewDesc("flightpool_"+name, help, source, nil))
	described[name] = m.desc
	return m
}
