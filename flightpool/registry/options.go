package registry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/session"
)

type (
	intField      = option.Field[ServerDefinition, int]
	durationField = option.Field[ServerDefinition, time.Duration]
	boolField     = option.Field[ServerDefinition, bool]
	textField     = option.Field[ServerDefinition, string]
)

// How options are written: durations are Go's, or numbers of milliseconds. A zero
// turns off what can be turned off.
var (
	count             = option.Number{Least: 0, Most: math.MaxInt32, Wrong: "is not a number"}.Read
	positive          = option.Number{Least: 1, Most: math.MaxInt32, Wrong: "is not a number above 0"}.Read
	milliseconds      = option.Duration{Least: 0, Unit: time.Millisecond, Wrong: "is not a duration"}.Read
	seconds           = option.Duration{Least: 0, Unit: time.Second, Wrong: "is not a duration"}.Read
	parseBool         = option.Switch
	parseInvertedBool = option.Not(option.Switch)
)

// What is refused.
var (
	knownKind   = option.Refuse(func(k flightpool.HealthKind) bool { return k > flightpool.FullValidate }, "%v is unknown")
	needsNumber = option.Refuse(func(e flightpool.Exhaustion) bool { return e < flightpool.FailFast }, "Overflow needs a number above 0")
	fewEnough   = option.Refuse(func(n int) bool { return n > math.MaxInt32 }, fmt.Sprintf("%%v is more than %d", math.MaxInt32))
)

// options are all there are beside those of the kinds.
var options = option.Table[ServerDefinition]{
	intField{Name: "MaxSize", Key: "max_connections", At: func(d *ServerDefinition) *int { return &d.MaxSize }, Read: positive, Default: 10, OffAs: zero, Check: func(n int) error { return cmp.Or(option.AtLeastOne(n), fewEnough(n)) }},
	intField{Name: "UserMaxSize", Key: "user_max_connections", At: func(d *ServerDefinition) *int { return &d.UserMaxSize }, Read: positive, DefaultBy: asMaxConnections, OffAs: asMaxConnections},
	intField{Name: "MinIdle", Key: "min_connections", At: func(d *ServerDefinition) *int { return &d.MinIdle }, Read: count, DefaultBy: func(d *ServerDefinition) int { return min(1, d.UserMaxSize) }, OffAs: zero},
	intField{Name: "UserReserved", Key: "reserved_connections", At: func(d *ServerDefinition) *int { return &d.UserReserved }, Read: count, OffAs: zero},
	intField{Name: "MaxConcurrentOpens", Key: "max_concurrent_opens", At: func(d *ServerDefinition) *int { return &d.MaxConcurrentOpens }, Read: positive, Default: 8, OffAs: unbounded},
	intField{Name: "WarmupConnections", Key: "warmup_connections", At: func(d *ServerDefinition) *int { return &d.WarmupConnections }, Read: count, Default: 1, OffAs: zero},
	boolField{Name: "DisableWarmup", Key: "warmup_on_create", At: func(d *ServerDefinition) *bool { return &d.DisableWarmup }, Read: parseInvertedBool},
	intField{Name: "MaxWaiters", Key: "max_waiters", At: func(d *ServerDefinition) *int { return &d.MaxWaiters }, Read: positive, OffAs: zero},
	option.Field[ServerDefinition, flightpool.Exhaustion]{Name: "OnExhausted", Key: "exhaustion_policy", At: func(d *ServerDefinition) *flightpool.Exhaustion { return &d.OnExhausted }, Read: exhaustion, Check: knownPolicy},
	durationField{Name: "OpenTimeout", Key: "connect_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.OpenTimeout }, Read: milliseconds, Default: 5 * time.Second, Check: option.Bounds},
	durationField{Name: "QueryTimeout", Key: "query_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.QueryTimeout }, Read: milliseconds, Default: 30 * time.Second, Check: option.HasUnit},
	durationField{Name: "AcquireTimeout", Key: "acquire_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.AcquireTimeout }, Read: milliseconds, Default: 5 * time.Second, Check: option.HasUnit},
	durationField{Name: "IdleTTL", Key: "idle_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.IdleTTL }, Read: milliseconds, Default: 5 * time.Minute},
	durationField{Name: "MaxLifetime", Key: "max_lifetime", At: func(d *ServerDefinition) *time.Duration { return &d.MaxLifetime }, Read: milliseconds, Default: time.Hour},
	durationField{Name: "LeakAfter", Key: "leak_after", At: func(d *ServerDefinition) *time.Duration { return &d.LeakAfter }, Read: milliseconds, Check: option.HasUnit},
	durationField{Name: "UserIdleTimeout", Key: "user_idle_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.UserIdleTimeout }, Read: milliseconds, Default: 5 * time.Minute, Check: option.HasUnit},
	boolField{Name: "ValidateOnAcquire", Key: "validate_on_acquire", At: func(d *ServerDefinition) *bool { return &d.ValidateOnAcquire }, Read: parseBool},
	boolField{Name: "ValidateOnRelease", Key: "validate_on_release", At: func(d *ServerDefinition) *bool { return &d.ValidateOnRelease }, Read: parseBool},
	durationField{Name: "ValidateAfter", Key: "validation_interval", At: func(d *ServerDefinition) *time.Duration { return &d.ValidateAfter }, Read: milliseconds, Default: 30 * time.Second, Check: option.HasUnit},
	durationField{Name: "ValidateAfter", Key: "validation_interval_seconds", At: func(d *ServerDefinition) *time.Duration { return &d.ValidateAfter }, Read: seconds},
	boolField{Name: "KeepSession", Key: "reset_on_release", At: func(d *ServerDefinition) *bool { return &d.KeepSession }, Read: parseInvertedBool},
	boolField{Name: "HealthCheck.Disabled", Key: "enable_health_check", At: func(d *ServerDefinition) *bool { return &d.HealthCheck.Disabled }, Read: parseInvertedBool},
	option.Field[ServerDefinition, flightpool.HealthKind]{Name: "HealthCheck.Kind", Key: "health_check_type", At: func(d *ServerDefinition) *flightpool.HealthKind { return &d.HealthCheck.Kind }, Read: option.ChoiceInAnyCase("ping, query, full_validate", flightpool.Ping, flightpool.Query, flightpool.FullValidate), Check: knownKind},
	textField{Name: "HealthCheck.Query", Key: "health_check_query", At: func(d *ServerDefinition) *string { return &d.HealthCheck.Query }, Read: option.Text, Check: session.CheckHealthSQL},
	durationField{Name: "HealthCheck.Timeout", Key: "health_check_timeout", At: func(d *ServerDefinition) *time.Duration { return &d.HealthCheck.Timeout }, Read: milliseconds, Default: 5 * time.Second, Check: option.Bounds},
	durationField{Name: "HealthCheck.Interval", Key: "health_check_interval", At: func(d *ServerDefinition) *time.Duration { return &d.HealthCheck.Interval }, Read: milliseconds, Default: 30 * time.Second, Check: option.Refuse(option.Below0[time.Duration], "cannot be switched off; use Disabled")},
	intField{Name: "HealthCheck.FailureThreshold", Key: "failure_threshold", At: func(d *ServerDefinition) *int { return &d.HealthCheck.FailureThreshold }, Read: positive, Default: 3, OffAs: zero, Check: option.Refuse(option.Below0[int], "cannot be switched off; use Disabled")},
	intField{Name: "HealthCheck.RecoveryThreshold", Key: "recovery_threshold", At: func(d *ServerDefinition) *int { return &d.HealthCheck.RecoveryThreshold }, Read: positive, Default: 2, OffAs: zero, Check: option.AtLeastOne},
	boolField{Name: "DisableStatistics", Key: "collect_statistics", At: func(d *ServerDefinition) *bool { return &d.DisableStatistics }, Read: parseInvertedBool},
	boolField{Name: "DisableQueryStats", Key: "collect_query_stats", At: func(d *ServerDefinition) *bool { return &d.DisableQueryStats }, Read: parseInvertedBool},
	textField{Name: "Target", Key: "target", At: func(d *ServerDefinition) *string { return &d.Target }, Read: option.Text},
}

// The values of numbers that are turned off.
func zero(*ServerDefinition) int               { return 0 }
func unbounded(*ServerDefinition) int          { return math.MaxInt32 }
func asMaxConnections(d *ServerDefinition) int { return d.MaxSize }

func knownPolicy(e flightpool.Exhaustion) error {
	if e > math.MaxInt32 {
		return fmt.Errorf("Overflow(%d) is more than %d", int(e), math.MaxInt32)
	}
	return needsNumber(e)
}

func exhaustion(text string) (flightpool.Exhaustion, error) {
	policy, number, _ := strings.Cut(strings.ToLower(text), ":")
	switch {
	case strings.EqualFold(text, "wait"):
		return flightpool.Wait, nil
	case strings.EqualFold(text, "fail_fast"):
		return flightpool.FailFast, nil
	case policy == "overflow":
		n, err := positive(number)
		return flightpool.Exhaustion(n), err
	}
	return 0, fmt.Errorf("%s is none of wait, fail_fast, overflow:n", option.Quote(text))
}

// optionSynonyms gives the option that sets the same field as another one.
var optionSynonyms = options.Twins()

// SetOptions sets fields by the names of their options; what is no option's name goes to
// Options, for the kind. It returns every fault. Durations are Go's ("30s") or numbers of
// milliseconds, flags true or false, and 0 turns off what can be turned off.
//
//	min_connections, max_connections          MinIdle, MaxSize
//	user_max_connections                      UserMaxSize
//	reserved_connections                      UserReserved
//	max_concurrent_opens, max_waiters         MaxConcurrentOpens, MaxWaiters
//	warmup_connections, warmup_on_create      WarmupConnections, not DisableWarmup
//	exhaustion_policy                         OnExhausted: wait, fail_fast, overflow:n
//	connect_timeout, query_timeout            OpenTimeout, QueryTimeout
//	acquire_timeout, idle_timeout             AcquireTimeout, IdleTTL
//	max_lifetime, leak_after                  MaxLifetime, LeakAfter
//	user_idle_timeout                         UserIdleTimeout
//	validate_on_acquire, validate_on_release  ValidateOnAcquire, ValidateOnRelease
//	validation_interval                       ValidateAfter; as validation_interval_seconds in seconds
//	reset_on_release                          not KeepSession
//	enable_health_check                       not HealthCheck.Disabled
//	health_check_type                         HealthCheck.Kind: ping, query, full_validate
//	health_check_query                        HealthCheck.Query
//	health_check_interval                     HealthCheck.Interval
//	health_check_timeout                      HealthCheck.Timeout
//	failure_threshold                         HealthCheck.FailureThreshold
//	recovery_threshold                        HealthCheck.RecoveryThreshold
//	collect_statistics, collect_query_stats   not DisableStatistics, not DisableQueryStats
//	target                                    Target
func (d *ServerDefinition) SetOptions(values map[string]string) error {
	d.Options = maps.Clone(d.Options)
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := values[optionSynonyms[name]]; ok {
			faults = append(faults, fmt.Errorf("%s: there is %s too, which is the same", name, optionSynonyms[name]))
			continue
		}
		faults = append(faults, d.setOption(name, values[name]))
	}
	return errjoin.Join(faults...)
}

// setOption sets one. d.Options is the caller's own.
func (d *ServerDefinition) setOption(name, value string) error {
	row, ok := options.Find(name)
	if !ok {
		if d.Options == nil {
			d.Options = map[string]string{}
		}
		d.Options[name] = value
		return nil
	}
	set, err := row.Parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	set(d)
	return nil
}

// has says whether an option is set, and isSurelyUnset whether it surely is not: for
// some fields neither is known.
func (d *ServerDefinition) has(name string) bool {
	if row, ok := options.Find(name); ok {
		return row.IsSet(d)
	}
	_, ok := d.Options[name]
	return ok
}

func (d *ServerDefinition) isSurelyUnset(name string) bool {
	row, ok := options.Find(name)
	return !d.has(name) && (!ok || !row.ZeroIsText())
}

// dropOption gives a field its default, or takes an option of the kind away.
// d.Options is the caller's own.
func (d *ServerDefinition) dropOption(name string) {
	if row, ok := options.Find(name); ok {
		row.Reset(d)
		return
	}
	delete(d.Options, name)
}

// splitDSN cuts a DSN into its parts.
//
// INVARIANT: nothing behind the host is taken that may be part of a password. An
// unencoded /, ? or # in one ends the authority for every parser, so that the rest of
// the password would be a database or the name of an option, which are shown. Its own
// errors tell none of the text.
func splitDSN(dsn string) (*url.URL, error) {
	_, rest, found := strings.Cut(dsn, "://")
	end := strings.IndexAny(rest, "/?#")
	switch {
	case !found:
		return nil, errors.New("not a URL; it begins with the kind and ://")
	case end >= 0 && strings.Contains(rest[end:], "@"):
		return nil, errors.New(`has an "@" after the host; percent-encode the user, the password and values (# is %23, / is %2F, ? is %3F, % is %25, @ is %40)`)
	case strings.Contains(rest, "#"):
		return nil, errors.New("has a # part, which means nothing here; options go after ?, and # in a value is %23")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("not a URL") // url's words would quote the password
	}
	switch host := u.Hostname(); {
	case u.Opaque != "":
		return nil, errors.New("not a URL; it begins with the kind and ://")
	case strings.Contains(host, "(") || strings.Contains(host, ":") && !strings.HasPrefix(u.Host, "["):
		return nil, errors.New("not one host and one port; the text of a driver's own, with several hosts or a socket, goes into the option target")
	}
	return u, nil
}

// ParseDSN makes a definition of a URL: its scheme is the kind, its user what
// PUBLIC is on the server, its path the dbname, and its query the options,
// server_name among them, which is the host otherwise.
//
//	postgresql://app:secret@db.example.com:5432/production?server_name=legacy&max_connections=20
//
// User, password and values must be percent-encoded where they contain one of
// # / ? % & + @ or a space. No error shows the part of a DSN that may hold a password.
func ParseDSN(dsn string) (ServerDefinition, error) {
	u, err := splitDSN(dsn)
	if err != nil {
		return ServerDefinition{}, fmt.Errorf("registry: DSN: %w", err)
	}
	d := ServerDefinition{Kind: u.Scheme, Name: u.Hostname()}
	if err := checkBehindSecrets(u.Scheme, u.RawQuery); err != nil {
		return ServerDefinition{}, fmt.Errorf("registry: DSN: %w", err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return ServerDefinition{}, errors.New("registry: DSN: the query is malformed")
	}
	values := map[string]string{}
	var faults []error
	for name, all := range query {
		if len(all) > 1 {
			faults = append(faults, fmt.Errorf("%s: is there %d times", name, len(all)))
		}
		values[name] = all[0]
	}
	if name, ok := values["server_name"]; ok {
		d.Name = name
		delete(values, "server_name")
	}
	for name, value := range map[string]string{"host": u.Hostname(), "port": u.Port(), "dbname": strings.TrimPrefix(u.Path, "/")} {
		if value == "" {
			continue
		}
		if _, ok := values[name]; ok {
			faults = append(faults, fmt.Errorf("%s: the URL says that before its query", name))
		}
		values[name] = value
	}
	if u.User != nil {
		password, _ := u.User.Password()
		d.Users = map[string]UserMapping{Public: {User: u.User.Username(), Password: password}}
	}
	if err := errjoin.Join(append(faults, d.SetOptions(values))...); err != nil {
		return ServerDefinition{}, &DefinitionError{Server: d.Name, Err: err}
	}
	return d, nil
}
