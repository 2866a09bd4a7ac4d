package flightprom

import (
	"errors"
	"net/http"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
)

var errStats = errors.New("flightprom: the Stats of a source panicked")

// ServeHTTP answers a scrape with the metrics of c alone, in Prometheus' text format. They
// are the same as those of a prometheus.Registry with promhttp, for a tenth of its time, which
// matters to programs with hundreds of pools. Such a c has a path and a scrape job of its own, and
// is in no Registry. Answers are not compressed. Where the Stats of a source panic, it is a 500.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "flightprom: it only reads", http.StatusMethodNotAllowed)
		return
	}
	all, err := c.read()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	to := series.NewText(w)
	ofPools.WriteText(to, all.pools)
	ofServers.WriteText(to, all.servers)
	ofUsers.WriteText(to, all.users)
	ofLeases.WriteText(to, all.leases)
	ofLimiters.WriteText(to, all.limiters)
	_ = to.Flush() // the scraper has gone
}

// readings are all sources at the time of a scrape.
type readings struct {
	pools    []series.Reading[flightpool.Stats]
	servers  []series.Reading[registry.ServerStats]
	users    []series.Reading[registry.UserStats]
	leases   []series.Reading[lease.Stats]
	limiters []series.Reading[lease.LimiterStats]
}

// read asks all sources before anything is written, so that a failure can be told.
func (c *Collector) read() (all readings, err error) {
	defer func() {
		if recover() != nil {
			err = errStats
		}
	}()
	all.pools = make([]series.Reading[flightpool.Stats], 0, c.pools.Len()) // a few KB each
	for name, pool := range c.pools.All() {
		all.pools = append(all.pools, ofPools.Read(pool.Stats(), name))
	}
	for name, r := range c.registries.All() {
		readRegistry(name, r,
			func(s *registry.ServerStats, labels ...string) {
				all.servers = append(all.servers, ofServers.Read(*s, labels...))
			},
			func(s *registry.UserStats, labels ...string) {
				all.users = append(all.users, ofUsers.Read(*s, labels...))
			})
	}
	for name, l := range c.leases.All() {
		all.leases = append(all.leases, ofLeases.Read(l.Stats(), name))
	}
	for name, l := range c.limiters.All() {
		all.limiters = append(all.limiters, ofLimiters.Read(l.Stats(), name))
	}
	return all, nil
}
