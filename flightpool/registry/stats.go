package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// Waits is how long callers waited for a connection, those who did not wait
// included, and those apart who got none. What they waited for in a pool that was
// replaced meanwhile is left out. Percentiles are at most a quarter too high.
type Waits struct {
	Mean, P50, P90, P99, P999 time.Duration
}

// Pool is what one or more pools are and have done.
type Pool struct {
	// Connections: Active ones are on loan, Idle ones are not, those that are being
	// checked included.
	Total, Active, Idle, Opening, Closing int
	Waiting                               int // callers

	Acquires, Releases uint64
	AcquireTimeouts    uint64 // callers whose wait ended without a connection, by a timeout, a cancelled context or an open that failed
	Shed               uint64 // callers refused without a wait
	ConnectionErrors   uint64 // opens that failed
	ResetFailures      uint64 // connections of database/sql that were closed because their session could not be reset
	ValidationFailures uint64 // checks of idle connections that failed
	Created, Destroyed uint64 // connections

	Queries, QueryFailures uint64
	MeanQuery              time.Duration
	BytesSent, BytesRead   uint64
	BytesCounted           bool // the kind's connections can be counted, and some were

	// MeanLifetime is of all connections, until their end or now.
	MeanLifetime time.Duration
}

// Stats is what a registry is and has done.
type Stats struct {
	Servers, HealthyServers, UnhealthyServers int
	Users                                     int // pools of users
	Pool
	Errors uint64 // opens and checks that failed, and waits that ended without a connection
}

// ServerStats is what one server's pools are and have done.
type ServerStats struct {
	ServerName string
	Kind       string

	Healthy         bool
	UnhealthyReason string    // empty: healthy
	UnhealthySince  time.Time // zero: healthy
	NextProbe       time.Time // zero: healthy
	LastHealthy     time.Time // of the latest open or check that succeeded; zero: none yet

	ChecksPassed, ChecksFailed uint64 // opens and checks, as health has counted them

	UserPools      int
	MaxConnections int
	Pool

	CreatedAt time.Time
	// LastActivity is when a connection was last lent or given back; zero when
	// none of those that are open ever was.
	LastActivity time.Time
}

// UserStats is what one user's pool on a server is and has done.
type UserStats struct {
	ServerName, User, RemoteUser string
	Pool
	Wait Waits
}

// ConnectionStats is one open connection.
type ConnectionStats struct {
	ServerName, User  string
	ID                uint64 // 0: the kind has none
	InUse             bool
	OpenedAt, UsedAt  time.Time
	Uses              uint64
	Queries, Failures uint64        // of the kinds of database/sql
	QueryTime         time.Duration // likewise
}

// pool is the account of one user.
func (u *userPool) pool() Pool {
	st := u.stats()
	queued := min(st.Opening, u.member.Unadmitted()) // an open without a slot is no connection yet
	c := u.counters(st)
	active := min(st.InUse, int(c.acquires-c.releases)) //nolint:gosec // a number of connections
	p := Pool{
		Total: st.Total - queued, Active: active, Idle: st.Idle + st.InUse - active, Opening: st.Opening - queued, Closing: st.Closing, Waiting: st.Waiting,
		Acquires: c.acquires, Releases: c.releases, AcquireTimeouts: c.failedWaits, Shed: st.Shed + u.shed.Load(),
		ConnectionErrors: u.openFailures.Load(), ValidationFailures: st.CheckFailures, ResetFailures: u.resetFailures.Load(),
		Created: u.created.Load(), Destroyed: u.destroyed.Load(),
		Queries: u.queries.Load(), QueryFailures: u.queryFailures.Load(),
		BytesSent: u.traffic.sent.Load(), BytesRead: u.traffic.received.Load(), BytesCounted: u.traffic.counted.Load(),
	}
	p.MeanQuery = mean(time.Duration(u.queryTime.Load()), p.Queries)
	open := time.Duration(st.InUse+st.Idle) * time.Since(u.born)
	p.MeanLifetime = mean(max(0, time.Duration(u.lifetime.Load())+open), p.Created)
	return p
}

func mean(sum time.Duration, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}

// plus adds b up; means are weighted.
func (p Pool) plus(b Pool) Pool {
	p.MeanQuery = mean(p.MeanQuery*time.Duration(p.Queries)+b.MeanQuery*time.Duration(b.Queries), p.Queries+b.Queries)
	p.MeanLifetime = mean(p.MeanLifetime*time.Duration(p.Created)+b.MeanLifetime*time.Duration(b.Created), p.Created+b.Created)
	p.Total += b.Total
	p.Active += b.Active
	p.Idle += b.Idle
	p.Opening += b.Opening
	p.Closing += b.Closing
	p.Waiting += b.Waiting
	p.Acquires += b.Acquires
	p.Releases += b.Releases
	p.AcquireTimeouts += b.AcquireTimeouts
	p.Shed += b.Shed
	p.ConnectionErrors += b.ConnectionErrors
	p.ResetFailures += b.ResetFailures
	p.ValidationFailures += b.ValidationFailures
	p.Created += b.Created
	p.Destroyed += b.Destroyed
	p.Queries += b.Queries
	p.QueryFailures += b.QueryFailures
	p.BytesSent += b.BytesSent
	p.BytesRead += b.BytesRead
	p.BytesCounted = p.BytesCounted || b.BytesCounted
	return p
}

// Stats adds all servers up. Like all statistics it holds no lock for longer than
// reading some counters takes.
func (r *Registry) Stats() Stats {
	var st Stats
	for _, s := range r.view.Load().servers {
		st.Servers++
		if s.health.down.Load() == nil {
			st.HealthyServers++
		} else {
			st.UnhealthyServers++
		}
		st.Users += len(*s.users.Load())
		st.Pool = st.plus(s.pool())
	}
	st.Errors = st.ConnectionErrors + st.ValidationFailures + st.AcquireTimeouts + st.Shed
	return st
}

// pool adds all users of a server up, those who are gone included.
func (s *server) pool() Pool {
	sum := s.past.pool()
	for _, u := range *s.users.Load() {
		sum = sum.plus(u.pool())
	}
	return sum
}

// ServerStats describes one server.
func (r *Registry) ServerStats(name string) (ServerStats, error) {
	s, err := r.server(name)
	if err != nil {
		return ServerStats{}, err
	}
	return s.stats(), nil
}

func (s *server) stats() ServerStats {
	d := s.def.Load()
	users := *s.users.Load()
	st := ServerStats{
		ServerName: s.name, Kind: d.Kind, Healthy: true, UserPools: len(users), MaxConnections: d.MaxConnections,
		Pool: s.pool(), CreatedAt: s.created, LastHealthy: s.health.lastHealthy(),
		ChecksPassed: s.health.passed.Load(), ChecksFailed: s.health.failures.Load(),
	}
	if down := s.health.down.Load(); down != nil {
		st.Healthy, st.UnhealthyReason, st.UnhealthySince, st.NextProbe = false, down.Reason.Error(), down.Since, down.Next
	}
	for _, u := range users {
		for _, c := range u.gen.Load().connections() {
			if c.Uses > 0 && c.UsedAt.After(st.LastActivity) {
				st.LastActivity = c.UsedAt
			}
		}
	}
	return st
}

// UserStats describes every user's pool on a server, in the order of their names.
func (r *Registry) UserStats(name string) ([]UserStats, error) {
	s, err := r.server(name)
	if err != nil {
		return nil, err
	}
	users := *s.users.Load()
	all := make([]UserStats, 0, len(users))
	for _, user := range slices.Sorted(maps.Keys(users)) {
		u := users[user]
		st := u.stats()
		acquires := u.counters(st).acquires
		probes := uint64(max(0, u.probes.Load())) //nolint:gosec // not negative
		direct := st.Acquired - min(st.Acquired, st.AcquiredWaited+probes)
		waited, waits := time.Duration(u.waited.Load()), u.waits.Load()
		all = append(all, UserStats{
			ServerName: name, User: user, RemoteUser: u.gen.Load().fixed.Mapping.User, Pool: u.pool(),
			Wait: Waits{
				Mean: mean(waited, acquires), P50: waits.percentile(.5, direct), P90: waits.percentile(.9, direct),
				P99: waits.percentile(.99, direct), P999: waits.percentile(.999, direct),
			},
		})
	}
	return all, nil
}

// Connections describes every open connection to a server, by user, those of pools
// that drain included.
func (r *Registry) Connections(name string) ([]ConnectionStats, error) {
	s, err := r.server(name)
	if err != nil {
		return nil, err
	}
	users := append(slices.Collect(maps.Values(*s.users.Load())), s.past.draining()...)
	slices.SortStableFunc(users, func(a, b *userPool) int { return strings.Compare(a.name, b.name) })
	var all []ConnectionStats
	for _, u := range users {
		for _, g := range u.generations() {
			for _, c := range g.connections() {
				c.ServerName, c.User = name, u.name
				all = append(all, c)
			}
		}
	}
	return all, nil
}

func described[C any](i reservoir.Info[C]) ConnectionStats {
	return ConnectionStats{InUse: i.InUse, OpenedAt: i.Opened, UsedAt: i.Used, Uses: i.Loans}
}

func (g *sqlGeneration) connections() (all []ConnectionStats) {
	for _, i := range g.conns.Connections() {
		c := described(i)
		c.ID = i.Value.ID()
		c.Queries, c.Failures, c.QueryTime = i.Value.Queries()
		all = append(all, c)
	}
	return all
}

func (g flightGeneration) connections() (all []ConnectionStats) {
	for _, i := range g.conns.Connections() {
		all = append(all, described(i))
	}
	return all
}
