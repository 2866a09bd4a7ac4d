package registry

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/reservoir"
)

// WaitStats is how long callers waited for a connection, those who did not wait
// included, and those apart who got none. What they waited for in a pool that was
// replaced meanwhile is left out. Percentiles are at most a quarter too high.
type WaitStats struct {
	Mean, P50, P90, P99, P999 time.Duration
}

// PoolStats is what one or more pools are and have done.
type PoolStats struct {
	// Connections: Active ones are borrowed, Idle ones are not, those that are being
	// checked included.
	Total, Active, Idle, Opening, Closing int
	Waiting                               int // callers

	Acquires, Releases uint64
	AcquireTimeouts    uint64 // callers whose wait ended without a connection, by a timeout, a cancelled context or an open that failed
	Rejected           uint64 // callers refused without a wait
	ConnectionErrors   uint64 // opens that failed
	ResetFailures      uint64 // connections of database/sql that were closed because their session could not be reset
	ValidationFailures uint64 // checks of idle connections that failed
	Leaks              uint64 // loans that LeakAfter has found

	// CancelsConfirmed and CancelsUnconfirmed count statements that were cut short, by whether
	// they are known to have stopped on the server; of database/sql, those of the kinds that have
	// a StopSQL.
	CancelsConfirmed, CancelsUnconfirmed uint64

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
	PoolStats
	Errors uint64 // opens and checks that failed, and callers who got no connection, refused ones among them
}

// ServerStats is what one server's pools are and have done.
type ServerStats struct {
	ServerName string
	Kind       string

	Healthy         bool
	UnhealthyReason string    // empty: healthy
	UnhealthySince  time.Time // zero: healthy
	NextProbe       time.Time // zero: healthy
	LastHealthy     time.Time // of the latest open or check that ChecksPassed counts; zero: none yet

	// ChecksPassed counts opens and checks but for those that could not reach the server, which
	// ChecksFailed counts: one that refuses a password, or has yet to be asked since there is no token, is not down.
	ChecksPassed, ChecksFailed uint64

	UserPools int
	MaxSize   int
	PoolStats

	CreatedAt time.Time
	// LastActivity is when a connection was last lent or given back; zero when
	// none of those that are open ever was.
	LastActivity time.Time
}

// UserStats is what one user's pool on a server is and has done.
type UserStats struct {
	ServerName, User, RemoteUser string
	PoolStats
	Wait WaitStats
}

// ConnectionStats is one open connection.
type ConnectionStats struct {
	ServerName, User  string
	ID                uint64 // no other of the server's has or had it
	InUse             bool
	OpenedAt, UsedAt  time.Time
	Uses              uint64
	Queries, Failures uint64        // of the kinds of database/sql
	QueryTime         time.Duration // likewise
	// Borrower is where the loan was taken, with LeakAfter; nil: there is none, or it is not known.
	Borrower *reservoir.BorrowStack
}

// poolStats is the account of one user, all versions of its pool included. Loans of
// probes count as idle connections, and opens without a slot as none. The counters are
// read one after the other: sums may differ by what happens meanwhile, but none goes
// back.
func (u *userPool) poolStats() PoolStats {
	st := u.stats()
	queued := min(st.Opening, u.member.Unadmitted()) // an open without a slot is no connection yet
	c := u.counters(st)
	active := min(st.InUse, int(c.acquires-c.releases)) //nolint:gosec // a number of connections
	p := PoolStats{
		Total: st.Total - queued, Active: active, Idle: st.Idle + st.InUse - active, Opening: st.Opening - queued, Closing: st.Closing, Waiting: st.Waiting,
		Acquires: c.acquires, Releases: c.releases, AcquireTimeouts: c.failedWaits, Rejected: st.Rejected + u.rejected.Load(),
		ConnectionErrors: u.openFailures.Load(), ValidationFailures: st.CheckFailures, ResetFailures: u.resetFailures.Load(), Leaks: st.Leaks,
		CancelsConfirmed: u.cancelsConfirmed.Load(), CancelsUnconfirmed: u.cancelsUnconfirmed.Load(),
		Created: u.created.Load(), Destroyed: u.destroyed.Load(),
		Queries: u.queries.Load(), QueryFailures: u.queryFailures.Load(),
		BytesSent: u.traffic.sent.Load() + u.traffic.flight.Sent(), BytesRead: u.traffic.received.Load() + u.traffic.flight.Received(), BytesCounted: u.traffic.anyCounted.Load(),
	}
	p.MeanQuery = mean(u.queryTime.seconds(), p.Queries)
	open := float64(st.InUse+st.Idle) * time.Since(u.createdAt).Seconds()
	p.MeanLifetime = mean(max(0, u.lifetimeSum.seconds()+open), p.Created)
	return p
}

// A timeSum adds up the times of many connections or calls. In nanoseconds, those of a
// thousand connections would overflow within four months.
type timeSum struct{ microseconds atomic.Int64 }

func (t *timeSum) add(d time.Duration) {
	t.microseconds.Add(int64(d.Round(time.Microsecond) / time.Microsecond))
}

func (t *timeSum) seconds() float64 { return float64(t.microseconds.Load()) / 1e6 }

func mean(seconds float64, n uint64) time.Duration {
	if n == 0 {
		return 0
	}
	return time.Duration(seconds / float64(n) * float64(time.Second))
}

// weighted is the mean of two means.
func weighted(a time.Duration, n uint64, b time.Duration, m uint64) time.Duration {
	return mean(a.Seconds()*float64(n)+b.Seconds()*float64(m), n+m)
}

// add adds b up; means are weighted.
func (p PoolStats) add(b PoolStats) PoolStats {
	query := weighted(p.MeanQuery, p.Queries, b.MeanQuery, b.Queries)
	lifetime := weighted(p.MeanLifetime, p.Created, b.MeanLifetime, b.Created)
	addNumbers(&p, b)
	p.MeanQuery, p.MeanLifetime, p.BytesCounted = query, lifetime, p.BytesCounted || b.BytesCounted
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
		st.PoolStats = st.add(s.poolStats())
	}
	st.Errors = st.ConnectionErrors + st.ValidationFailures + st.AcquireTimeouts + st.Rejected
	return st
}

// poolStats adds all users of a server up, those who are gone included.
func (s *server) poolStats() PoolStats {
	pools, sum := s.allPools()
	for _, u := range pools {
		sum = sum.add(u.poolStats())
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
		ServerName: s.name, Kind: d.Kind, Healthy: true, UserPools: len(users), MaxSize: d.MaxSize,
		PoolStats: s.poolStats(), CreatedAt: s.created, LastHealthy: s.health.lastHealthy(),
		ChecksPassed: s.health.checksPassed.Load(), ChecksFailed: s.health.checksFailed.Load(),
	}
	if down := s.health.down.Load(); down != nil {
		st.Healthy, st.UnhealthyReason, st.UnhealthySince, st.NextProbe = false, down.Reason.Error(), down.Since, down.Next
	}
	for _, u := range users {
		for _, c := range u.version.Load().connections() {
			if c.Uses > 0 && c.UsedAt.After(st.LastActivity) {
				st.LastActivity = c.UsedAt
			}
		}
	}
	return st
}

// UserStats describes every user's pool on a server, in the order of their names. Users
// who are gone are left out; ServerStats has them.
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
		probes := uint64(max(0, u.probeLoans.Load())) //nolint:gosec // not negative
		direct := st.Acquired - min(st.Acquired, st.AcquiredWaited+probes)
		waits := u.waitTimes.Load().Snapshot()
		all = append(all, UserStats{
			ServerName: name, User: user, RemoteUser: u.version.Load().connKey.Mapping.User, PoolStats: u.poolStats(),
			Wait: WaitStats{
				Mean: mean(u.waitTimeSum.seconds(), acquires), P50: waits.Quantile(.5, direct), P90: waits.Quantile(.9, direct),
				P99: waits.Quantile(.99, direct), P999: waits.Quantile(.999, direct),
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
	users, _ := s.allPools()
	slices.SortStableFunc(users, func(a, b *userPool) int { return strings.Compare(a.name, b.name) })
	var all []ConnectionStats
	for _, u := range users {
		for _, g := range u.allVersions() {
			for _, c := range g.connections() {
				c.ServerName, c.User = name, u.name
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// connectionStats is what a reservoir knows of a connection. What its statements did,
// the connections of database/sql know themselves.
func connectionStats[C any](i reservoir.Info[C]) ConnectionStats {
	return ConnectionStats{ID: i.ID, InUse: i.InUse, OpenedAt: i.Opened, UsedAt: i.Used, Uses: i.Loans, Borrower: i.Borrower}
}

func (g *sqlVersion) connections() (all []ConnectionStats) {
	for _, i := range g.Connections() {
		c := connectionStats(i)
		c.Queries, c.Failures, c.QueryTime = i.Value.Queries()
		all = append(all, c)
	}
	return all
}

func (g flightVersion) connections() (all []ConnectionStats) {
	for _, i := range g.Connections() {
		all = append(all, connectionStats(i))
	}
	return all
}
