package registry

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry/ddl"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/fairshare"
	"github.com/flightpool/flightpool/internal/option"
)

// Public is the local user whose mapping holds for every user without a mapping of
// their own.
const Public = ddl.Public

// ServerDefinition says how to reach a server, as whom, and how its connections
// are kept. The zero value of a field is its default; a negative number or
// duration turns the field off where that makes sense. Every field but Kind, Name,
// Options and Users has an option in text, whose name SetOptions tells.
type ServerDefinition struct {
	// Name is what callers name the server by. Required.
	Name string
	// Kind is the sort of server: flightsql, postgresql, mysql, mssql, firebird,
	// or one of Config.Kinds. Required.
	Kind string
	// Target is where the server is, as the kind writes it: the URL of a Flight
	// SQL server, the DSN of a database/sql driver. Default: made from the
	// options host, port, dbname and those that the kind knows. Options in a URL that would
	// not hold beside the fields here are refused.
	Target string
	// Options are the kind's own: host, port, dbname, driver, and whatever the
	// driver takes.
	Options map[string]string
	// Users maps local users to what they are on the server.
	Users map[string]UserMapping

	// MinIdle is how many idle connections each user's pool keeps ready
	// (1; negative: none).
	MinIdle int
	// MaxSize bounds the connections of all users together that exist:
	// opening, idle, in use and closing (10).
	MaxSize int
	// UserReserved is how many of them each user can have at once, whatever
	// the others do (0). When all users' do not fit into MaxSize, each has
	// an equal part of it.
	UserReserved int
	// UserMaxSize bounds those of one user (MaxSize), what is still on
	// loan of a pool that was removed, by CloseAll or with its mapping, included.
	UserMaxSize int
	// MaxConcurrentOpens bounds the connections of the server that are being
	// opened at a time (8).
	MaxConcurrentOpens int

	OpenTimeout    time.Duration // bounds one open (5s)
	QueryTimeout   time.Duration // bounds one call (30s; negative: none)
	AcquireTimeout time.Duration // bounds the wait for a connection (5s; negative: none)
	IdleTTL        time.Duration // an idle connection beyond MinIdle is closed after it (5m; negative: never)
	MaxLifetime    time.Duration // age from which a connection is replaced (1h; negative: never)
	LeakAfter      time.Duration // a loan that is out for longer is counted, and logged with its borrower (never)

	HealthCheck HealthCheck

	KeepSession       bool          // do not reset a session when its connection comes back
	ValidateOnAcquire bool          // check a connection before it is lent
	ValidateOnRelease bool          // check a connection when it comes back
	ValidateAfter     time.Duration // ValidateOnAcquire spares connections used more recently (30s; negative: none)

	// WarmupConnections is how many connections a user's pool opens when it is
	// made, without being asked (1; negative: none). The pools of the named Users
	// are made by Register, unless it is negative.
	WarmupConnections int
	// DisableWarmup is as if WarmupConnections were negative.
	DisableWarmup bool

	// OnExhausted is what happens to a caller when all connections are taken:
	// Wait (default), FailFast, or Overflow(n): n connections beyond
	// MaxSize for as long as somebody waits.
	OnExhausted flightpool.Exhaustion
	// MaxWaiters bounds the callers of one user who wait (no bound).
	MaxWaiters int

	// UserIdleTimeout is after how long without a call a user's pool is removed,
	// its idle connections with it (5m; negative: never). An outage of the server does not count.
	UserIdleTimeout time.Duration

	DisableStatistics bool // no wait times
	DisableQueryStats bool // no query times

	// Of a resolved one.
	byLowerCase map[string]string // the local users' names by their lower case
	place       *place            // where it leads: that of the definition before, if that led there too
}

// UserMapping is who a local user is on a server.
type UserMapping struct {
	User     string
	Password string
	// Options are added to those of the server; where both have one, this holds.
	Options map[string]string
}

// HealthCheck says how a server is watched.
type HealthCheck struct {
	Disabled bool                  // nothing is checked; the server is always taken to be healthy
	Kind     flightpool.HealthKind // Ping (default), Query or FullValidate
	Query    string                // for Query and FullValidate (the kind's own, mostly "SELECT 1")
	Timeout  time.Duration         // bounds one check (5s)
	Interval time.Duration         // between checks of an idle connection, and the longest pause between probes of an unhealthy server (30s)

	// FailureThreshold faults of the connection in a row make a server unhealthy
	// (3). RecoveryThreshold probes in a row that succeed make it healthy (2).
	FailureThreshold, RecoveryThreshold int
}

// clone makes a copy that shares nothing with d. What the caller has given may be
// changed by the caller later.
func (d ServerDefinition) clone() ServerDefinition {
	d.Options = maps.Clone(d.Options)
	users := make(map[string]UserMapping, len(d.Users))
	for name, m := range d.Users {
		m.Options = maps.Clone(m.Options)
		users[name] = m
	}
	d.Users = users
	return d
}

// resolve fills in the defaults, or returns every fault. What comes back is a copy,
// which nobody changes from then on.
func (d ServerDefinition) resolve() (ServerDefinition, error) {
	faults := append(d.faults(), options.Faults(&d)...)
	d = d.clone()
	options.Fill(&d)
	if d.DisableWarmup {
		d.WarmupConnections = 0
	}
	for name := range d.Users {
		if d.byLowerCase == nil {
			d.byLowerCase = map[string]string{}
		}
		if name != Public {
			d.byLowerCase[strings.ToLower(name)] = name
		}
	}
	d.UserMaxSize = min(d.UserMaxSize, d.MaxSize)
	d.WarmupConnections = min(d.WarmupConnections, d.UserMaxSize)
	if d.MinIdle > d.UserMaxSize && d.MaxSize > 0 {
		faults = append(faults, fmt.Errorf("MinIdle: %d is more than a user's bound of %d", d.MinIdle, d.UserMaxSize))
	}
	if len(faults) == 0 {
		faults = option.Translated(checkReservoirConfig(&d), "reservoir: ", namesOfReservoir, nil)
	}
	if err := errjoin.Join(faults...); err != nil {
		return d, &DefinitionError{Server: d.Name, Err: err}
	}
	return d, nil
}

// namesOfReservoir are the fields that the reservoir calls otherwise.
var namesOfReservoir = map[string]string{"CheckTimeout": "HealthCheck.Timeout", "CheckInterval": "HealthCheck.Interval"}

// checkReservoirConfig says why the users' reservoirs would refuse the sizes and times.
// So they are told as faults of the definition, not of a user's first call.
func checkReservoirConfig(d *ServerDefinition) error {
	c := reservoirConfig[struct{}](d)
	c.Open = func(context.Context) (struct{}, error) { return struct{}{}, nil }
	c.Close = func(struct{}) error { return nil }
	c.Check = func(context.Context, struct{}) error { return nil }
	return c.Validate()
}

// faults finds what is wrong with the fields that no option sets.
func (d ServerDefinition) faults() []error {
	fault, faults := option.Collect("")
	_, nameless := d.Users[""]
	fault(d.Name == "", "Name: required")
	fault(d.Kind == "", "Kind: required")
	fault(nameless, "Users: a local user has no name")
	return *faults
}

// overflow is how many connections beyond MaxSize may exist.
func (d *ServerDefinition) overflow() int { return max(0, int(d.OnExhausted)) }

// mapping finds who a local user is. Whose name is another's but for the case is
// not everybody else: SQL folds names that are not in double quotes.
func (d *ServerDefinition) mapping(local string) (UserMapping, bool) {
	if m, ok := d.Users[local]; ok {
		return m, true
	}
	if d.byLowerCase[strings.ToLower(local)] != "" {
		return UserMapping{}, false
	}
	m, ok := d.Users[Public]
	return m, ok
}

// connKey is what a connection is made with: when it changes, new connections take the
// place of the old ones. It is compared by value.
type connKey struct {
	Kind, Target                            string
	Options                                 map[string]string
	Mapping                                 UserMapping
	Check                                   flightpool.HealthKind
	CheckSQL                                string
	KeepSession, ValidateOnRelease          bool
	QueryTimeout, OpenTimeout, CheckTimeout time.Duration
	LeakAfter                               time.Duration
	DisableQueryStats, DisableHealthCheck   bool
}

// connectParams is what a kind is told of a definition. Passwords are in it, as in
// connKey.
func (d *ServerDefinition) connectParams(f connKey) ConnectParams {
	return ConnectParams{Server: d.Name, Target: f.Target, Options: f.Options, User: f.Mapping.User, Password: f.Mapping.Password}
}

// connKeyFor leaves out what the kind's pools read when they use it. Flight pools get
// their times when they are made; those of database/sql read them.
func (d *ServerDefinition) connKeyFor(m UserMapping, flight bool) connKey {
	options := maps.Clone(d.Options)
	if options == nil {
		options = map[string]string{}
	}
	maps.Copy(options, m.Options)
	f := connKey{
		Kind: d.Kind, Target: d.Target, Options: options, Mapping: UserMapping{User: m.User, Password: m.Password},
		Check: d.HealthCheck.Kind, CheckSQL: d.HealthCheck.Query,
		KeepSession: d.KeepSession, ValidateOnRelease: d.ValidateOnRelease, DisableQueryStats: d.DisableQueryStats, LeakAfter: d.LeakAfter,
	}
	if flight {
		f.QueryTimeout, f.OpenTimeout, f.CheckTimeout, f.DisableHealthCheck = d.QueryTimeout, d.OpenTimeout, d.HealthCheck.Timeout, d.HealthCheck.Disabled
	}
	return f
}

// boundsOf are what a definition says of all users together.
func boundsOf(d *ServerDefinition) fairshare.Bounds {
	return fairshare.Bounds{
		Max: d.MaxSize, Overflow: d.overflow(), Reserved: d.UserReserved, MaxOpening: d.MaxConcurrentOpens,
		FailFast: d.OnExhausted == flightpool.FailFast && !d.ValidateOnAcquire, // otherwise callers who wait for a check are not known
	}
}

// userMaxSize is what a user's reservoir may grow to. Package fairshare keeps all of
// them together within the server's bound.
func userMaxSize(d *ServerDefinition) int { return d.UserMaxSize + d.overflow() }
