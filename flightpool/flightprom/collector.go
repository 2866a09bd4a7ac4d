package flightprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
)

// Collector is a prometheus.Collector of pools, registries and budgets, and an http.Handler
// that answers a scrape of them. Its methods may
// be called from any goroutine. Names of each kind are apart.
type Collector struct {
	pools      series.Named[*flightpool.FlightSQLPool]
	registries series.Named[*registry.Registry]
	leases     series.Named[lease.Leases]
	limiters   series.Named[lease.Limiter]
}

// NewCollector makes a Collector that shows nothing yet.
func NewCollector() *Collector { return &Collector{} }

// Add shows a pool by a name, in the place of the one that had it. A pool that is closed
// is shown until it is removed.
func (c *Collector) Add(name string, pool *flightpool.FlightSQLPool) { c.pools.Set(name, pool) }

// Remove shows a pool no longer.
func (c *Collector) Remove(name string) { c.pools.Remove(name) }

// AddRegistry shows the servers and users of a registry, in the place of the one that had
// the name.
func (c *Collector) AddRegistry(name string, r *registry.Registry) { c.registries.Set(name, r) }

// RemoveRegistry shows a registry no longer.
func (c *Collector) RemoveRegistry(name string) { c.registries.Remove(name) }

// AddBudget shows what a fleet's budget of connections and that of opens tell, in the
// place of those that had the name. Either may be nil.
func (c *Collector) AddBudget(name string, leases lease.Leases, limiter lease.Limiter) {
	c.RemoveBudget(name)
	if leases != nil {
		c.leases.Set(name, leases)
	}
	if limiter != nil {
		c.limiters.Set(name, limiter)
	}
}

// RemoveBudget shows a budget no longer.
func (c *Collector) RemoveBudget(name string) {
	c.leases.Remove(name)
	c.limiters.Remove(name)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	ofPools.Describe(out)
	ofServers.Describe(out)
	ofUsers.Describe(out)
	ofLeases.Describe(out)
	ofLimiters.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for name, pool := range c.pools.All() {
		stats := pool.Stats()
		ofPools.Collect(out, &stats, name)
	}
	for name, r := range c.registries.All() {
		readRegistry(name, r,
			func(s *registry.ServerStats, labels ...string) { ofServers.Collect(out, s, labels...) },
			func(s *registry.UserStats, labels ...string) { ofUsers.Collect(out, s, labels...) })
	}
	for name, l := range c.leases.All() {
		stats := l.Stats()
		ofLeases.Collect(out, &stats, name)
	}
	for name, l := range c.limiters.All() {
		stats := l.Stats()
		ofLimiters.Collect(out, &stats, name)
	}
}
