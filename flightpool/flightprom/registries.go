package flightprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightpool/flightpool/flightpool/registry"
)

var (
	ofServer = []string{"server", "kind"}
	ofUser   = []string{"server", "user"}

	serverMetrics = []metric[registry.ServerStats]{
		gauge("Whether the server can be reached.", "registry_server_healthy", ofServer, func(s *registry.ServerStats) float64 {
			if s.Healthy {
				return 1
			}
			return 0
		}),
		counter("Opens and health checks of a server by outcome.", "registry_checks_total outcome=ok", ofServer, func(s *registry.ServerStats) float64 { return float64(s.ChecksPassed) }),
		counter("", "registry_checks_total outcome=failed", ofServer, func(s *registry.ServerStats) float64 { return float64(s.ChecksFailed) }),
	}
)

// userMetrics are the series of a user's pool, in the order of the package comment.
var userMetrics = func() []metric[registry.UserStats] {
	type stats = registry.UserStats
	var all []metric[stats]
	now := func(help, series string, value func(*stats) int) {
		all = append(all, gauge(help, series, ofUser, func(s *stats) float64 { return float64(value(s)) }))
	}
	count := func(help, series string, value func(*stats) uint64) {
		all = append(all, counter(help, series, ofUser, func(s *stats) float64 { return float64(value(s)) }))
	}
	now("Connections by state.", "registry_connections state=idle", func(s *stats) int { return s.Idle })
	now("", "registry_connections state=in_use", func(s *stats) int { return s.Active })
	now("", "registry_connections state=opening", func(s *stats) int { return s.Opening })
	now("", "registry_connections state=closing", func(s *stats) int { return s.Closing })
	now("Callers who wait for a connection.", "registry_callers_waiting", func(s *stats) int { return s.Waiting })
	count("Calls for a connection by outcome.", "registry_acquires_total outcome=ok", func(s *stats) uint64 { return s.Acquires })
	count("", "registry_acquires_total outcome=failed", func(s *stats) uint64 { return s.AcquireTimeouts })
	count("", "registry_acquires_total outcome=rejected", func(s *stats) uint64 { return s.Rejected })
	count("Connections that were given back.", "registry_releases_total", func(s *stats) uint64 { return s.Releases })
	count("Opens of connections by outcome.", "registry_opens_total outcome=ok", func(s *stats) uint64 { return s.Created })
	count("", "registry_opens_total outcome=failed", func(s *stats) uint64 { return s.ConnectionErrors })
	count("Connections closed.", "registry_closes_total", func(s *stats) uint64 { return s.Destroyed })
	count("Calls.", "registry_calls_total", func(s *stats) uint64 { return s.Queries })
	count("Calls that failed.", "registry_call_failures_total", func(s *stats) uint64 { return s.QueryFailures })
	count("Bytes sent, of the kinds that count them.", "registry_sent_bytes_total", func(s *stats) uint64 { return s.BytesSent })
	count("Bytes received, of the kinds that count them.", "registry_received_bytes_total", func(s *stats) uint64 { return s.BytesRead })
	return all
}()

// collectRegistry leaves out servers that are unregistered meanwhile.
func collectRegistry(r *registry.Registry, out chan<- prometheus.Metric) {
	for _, name := range r.Servers() {
		server, err := r.ServerStats(name)
		if err != nil {
			continue
		}
		for _, m := range serverMetrics {
			out <- m.of(&server, name, server.Kind)
		}
		users, _ := r.UserStats(name) // none where it is gone
		for i := range users {
			for _, m := range userMetrics {
				out <- m.of(&users[i], name, users[i].User)
			}
		}
	}
}
