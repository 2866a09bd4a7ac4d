package flightprom

import (
	"github.com/flightpool/flightpool/flightpool/flightprom/internal/series"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// ofServers are the metrics of a registry's server.
var ofServers = func() *series.Table[registry.ServerStats] {
	type stats = registry.ServerStats
	all := series.NewTable[stats]("flightpool_registry_", "kind", "registry", "server")
	now, count := series.Of(all)
	now("Whether the server can be reached.", "server_healthy", func(s *stats) int { return series.Flag(s.Healthy) })
	count("Opens and health checks of a server by outcome.", "checks_total outcome=ok", func(s *stats) uint64 { return s.ChecksPassed })
	count("", "checks_total outcome=failed", func(s *stats) uint64 { return s.ChecksFailed })
	return all
}()

// ofUsers are the metrics of a user's pool, in the order of the package comment.
var ofUsers = func() *series.Table[registry.UserStats] {
	type stats = registry.UserStats
	all := series.NewTable[stats]("flightpool_registry_", "registry", "server", "user")
	now, count := series.Of(all)
	now("Connections by state.", "connections state=idle", func(s *stats) int { return s.Idle })
	now("", "connections state=in_use", func(s *stats) int { return s.Active })
	now("", "connections state=opening", func(s *stats) int { return s.Opening })
	now("", "connections state=closing", func(s *stats) int { return s.Closing })
	now("Callers who wait for a connection.", "callers_waiting", func(s *stats) int { return s.Waiting })
	count("Calls for a connection by outcome.", "acquires_total outcome=ok", func(s *stats) uint64 { return s.Acquires })
	count("", "acquires_total outcome=failed", func(s *stats) uint64 { return s.AcquireTimeouts })
	count("", "acquires_total outcome=rejected", func(s *stats) uint64 { return s.Rejected })
	count("Connections that were given back.", "releases_total", func(s *stats) uint64 { return s.Releases })
	count("Opens of connections by outcome.", "opens_total outcome=ok", func(s *stats) uint64 { return s.Created })
	count("", "opens_total outcome=failed", func(s *stats) uint64 { return s.ConnectionErrors })
	count("Connections borrowed for longer than LeakAfter.", "leaks_total", func(s *stats) uint64 { return s.Leaks })
	count("Cancels by whether the statement is known to have stopped.", "cancels_total outcome=confirmed", func(s *stats) uint64 { return s.CancelsConfirmed })
	count("", "cancels_total outcome=unconfirmed", func(s *stats) uint64 { return s.CancelsUnconfirmed })
	count("Connections closed.", "closes_total", func(s *stats) uint64 { return s.Destroyed })
	count("Calls.", "calls_total", func(s *stats) uint64 { return s.Queries })
	count("Calls that failed.", "call_failures_total", func(s *stats) uint64 { return s.QueryFailures })
	count("Bytes sent, of the kinds that count them.", "sent_bytes_total", func(s *stats) uint64 { return s.BytesSent })
	count("Bytes received, of the kinds that count them.", "received_bytes_total", func(s *stats) uint64 { return s.BytesRead })
	return all
}()

// readRegistry tells of the servers and users of a registry, but not of servers that are
// unregistered meanwhile.
func readRegistry(name string, r *registry.Registry, server func(*registry.ServerStats, ...string), user func(*registry.UserStats, ...string)) {
	for _, at := range r.Servers() {
		stats, err := r.ServerStats(at)
		if err != nil {
			continue
		}
		server(&stats, stats.Kind, name, at)
		users, _ := r.UserStats(at) // none where it is gone
		for i := range users {
			user(&users[i], name, at, users[i].User)
		}
	}
}
