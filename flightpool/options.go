package flightpool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/session"
)

// ParseTarget takes a DSN apart: the target that New takes, and the options
// that its user part and query string carry.
//
//	grpc://host:port               plain text (also grpc+tcp://)
//	grpc+tls://host:port           TLS
//	grpc+unix:///path/to/socket    a Unix socket
//	flightsql://user:pass@host:port/?max_size=8&transport=tls
//
// flightsql:// is TLS unless the host is localhost or a loopback address, or
// the option transport says tcp, tls or unix. With the other schemes transport
// may only repeat what they say.
//
// User, password and option values must be percent-encoded where they contain
// one of # / ? % & + @ or a space: # is %23, / is %2F, ? is %3F, % is %25. No
// error shows the part of a DSN that may hold a password.
//
// The options, each at most once, with the field of Config that they set:
//
//	min_idle, max_size, max_waiters             MinIdle, MaxSize, MaxWaiters
//	max_concurrent_opens                        MaxConcurrentOpens
//	acquire_timeout, dial_timeout               AcquireTimeout, DialTimeout
//	close_timeout, query_timeout                CloseTimeout, DefaultQueryTimeout
//	idle_ttl, max_lifetime                      IdleTTL, MaxLifetime
//	lifetime_jitter, guard_window               LifetimeJitter, GuardWindow
//	health_check                                HealthCheck.Kind: ping, query, full_validate
//	health_check_sql                            HealthCheck.SQL
//	health_check_interval, health_check_timeout HealthCheck.Interval, HealthCheck.Timeout
//	validate_on_acquire                         HealthCheck.ValidateOnAcquire
//	validate_on_release                         HealthCheck.ValidateOnRelease
//	on_exhausted                                OnExhausted: wait, fail_fast, overflow:n
//	open_retry                                  OpenRetry: deadline, never, always
//	on_return                                   OnReturn: auto, discard, none
//	disable_retry, leak_after                   DisableRetry, LeakAfter
//	statement_cache                             StatementCache
//	token, session_header                       Auth: BearerAuth; SessionHeader
//	tls_insecure_skip_verify                    TLS: InsecureSkipVerify
//
// Durations are Go's ("30s"), flags true or false. Unlike a zero field of
// Config, which is its default, 0 in a DSN means off, as a negative number
// does: min_idle=0 keeps no connection ready, idle_ttl=0 and max_lifetime=0 let
// connections live, acquire_timeout=0 leaves the wait to the context,
// max_concurrent_opens=0 leaves it to max_size. Where off makes no sense it is
// a fault. Every fault is reported at once, in one *Error.
func ParseTarget(target string) (clean string, cfg Config, err error) {
	d, faults := parseDSN(target)
	cfg, more := d.merge(Config{})
	faults = append(faults, more...)
	if len(faults) == 0 {
		faults = append(faults, d.checkTLS(cfg.TLS))
	}
	if err := errjoin.Join(faults...); err != nil {
		return "", Config{}, &Error{Op: "ParseTarget", Stage: backend.StageArgument, Fault: FaultUsage, Unsent: true, Err: err}
	}
	return d.bareTarget, cfg, nil
}

type (
	intField      = option.Field[Config, int]
	durationField = option.Field[Config, time.Duration]
	boolField     = option.Field[Config, bool]
	textField     = option.Field[Config, string]
)

// How a DSN writes values: 0 and less is off, where that makes sense.
var (
	count                 = option.Number{Least: math.MinInt, Wrong: "is not a number"}.Read
	parsePositive         = option.NeverOff(count, "must be at least 1")
	parseDuration         = option.Duration{Least: math.MinInt64, Wrong: "is not a duration such as 30s"}.Read
	parsePositiveDuration = option.NeverOff(parseDuration, "cannot be switched off")
)

// fields are those of Config that have a key in a DSN, a default or bounds of
// their own. Where no Default stands here, the zero value is it, or the reservoir
// and flightconn have it, which know what it depends on.
var fields = option.Table[Config]{
	intField{Name: "MinIdle", Key: "min_idle", At: func(c *Config) *int { return &c.MinIdle }, Read: count, Default: 1},
	intField{Name: "MaxSize", Key: "max_size", At: func(c *Config) *int { return &c.MaxSize }, Read: parsePositive, DefaultBy: func(c *Config) int { return max(4, min(16, 2*runtime.NumCPU()), c.MinIdle) }},
	intField{Name: "MaxWaiters", Key: "max_waiters", At: func(c *Config) *int { return &c.MaxWaiters }, Read: parsePositive},
	intField{Name: "MaxConcurrentOpens", Key: "max_concurrent_opens", At: func(c *Config) *int { return &c.MaxConcurrentOpens }, Read: count},
	durationField{Name: "AcquireTimeout", Key: "acquire_timeout", At: func(c *Config) *time.Duration { return &c.AcquireTimeout }, Read: parseDuration, Default: 30 * time.Second, Check: option.HasUnit},
	durationField{Name: "DialTimeout", Key: "dial_timeout", At: func(c *Config) *time.Duration { return &c.DialTimeout }, Read: parsePositiveDuration, Default: 5 * time.Second, Check: option.Bounds},
	durationField{Name: "CloseTimeout", Key: "close_timeout", At: func(c *Config) *time.Duration { return &c.CloseTimeout }, Read: parsePositiveDuration, Default: 5 * time.Second, Check: option.Bounds},
	durationField{Name: "IdleTTL", Key: "idle_ttl", At: func(c *Config) *time.Duration { return &c.IdleTTL }, Read: parseDuration},
	durationField{Name: "MaxLifetime", Key: "max_lifetime", At: func(c *Config) *time.Duration { return &c.MaxLifetime }, Read: parseDuration},
	durationField{Name: "LifetimeJitter", Key: "lifetime_jitter", At: func(c *Config) *time.Duration { return &c.LifetimeJitter }, Read: parseDuration},
	durationField{Name: "GuardWindow", Key: "guard_window", At: func(c *Config) *time.Duration { return &c.GuardWindow }, Read: parseDuration},
	durationField{Name: "DefaultQueryTimeout", Key: "query_timeout", At: func(c *Config) *time.Duration { return &c.DefaultQueryTimeout }, Read: parseDuration, Check: option.HasUnit},
	durationField{Name: "LeakAfter", Key: "leak_after", At: func(c *Config) *time.Duration { return &c.LeakAfter }, Read: parseDuration},
	intField{Name: "StatementCache", Key: "statement_cache", At: func(c *Config) *int { return &c.StatementCache }, Read: count},
	boolField{Name: "DisableRetry", Key: "disable_retry", At: func(c *Config) *bool { return &c.DisableRetry }, Read: option.Bool},
	option.Field[Config, Exhaustion]{Name: "OnExhausted", Key: "on_exhausted", At: func(c *Config) *Exhaustion { return &c.OnExhausted }, Read: parseExhaustion},
	option.Field[Config, OpenRetry]{Name: "OpenRetry", Key: "open_retry", At: func(c *Config) *OpenRetry { return &c.OpenRetry }, Read: option.Choice("always, deadline, never", OpenRetryAlways, OpenRetryTimed, OpenRetryNever)},
	option.Field[Config, SessionReset]{Name: "OnReturn", Key: "on_return", At: func(c *Config) *SessionReset { return &c.OnReturn }, Read: option.Choice("auto, discard, none", ResetAuto, ResetDiscard, ResetNone)},
	option.Field[Config, HealthKind]{Name: "HealthCheck.Kind", Key: "health_check", At: func(c *Config) *HealthKind { return &c.HealthCheck.Kind }, Read: option.Choice("full_validate, ping, query", FullValidate, Ping, Query), Check: option.Refuse(func(k HealthKind) bool { return k > FullValidate }, "%v is unknown")},
	textField{Name: "HealthCheck.SQL", Key: "health_check_sql", At: func(c *Config) *string { return &c.HealthCheck.SQL }, Read: option.Text, Default: "SELECT 1", Check: session.CheckHealthSQL},
	durationField{Name: "HealthCheck.Timeout", Key: "health_check_timeout", At: func(c *Config) *time.Duration { return &c.HealthCheck.Timeout }, Read: parsePositiveDuration, Default: 5 * time.Second, Check: option.Bounds},
	durationField{Name: "HealthCheck.Interval", Key: "health_check_interval", At: func(c *Config) *time.Duration { return &c.HealthCheck.Interval }, Read: parseDuration},
	boolField{Name: "HealthCheck.ValidateOnAcquire", Key: "validate_on_acquire", At: func(c *Config) *bool { return &c.HealthCheck.ValidateOnAcquire }, Read: option.Bool},
	boolField{Name: "HealthCheck.ValidateOnRelease", Key: "validate_on_release", At: func(c *Config) *bool { return &c.HealthCheck.ValidateOnRelease }, Read: option.Bool},
	textField{Name: "SessionHeader", Key: "session_header", At: func(c *Config) *string { return &c.SessionHeader }, Read: option.Text},
	option.Field[Config, Auth]{Name: "Auth", Key: "token", At: func(c *Config) *Auth { return &c.Auth }, Read: parseBearer, Check: Auth.validate},
	option.Field[Config, *tls.Config]{Name: "TLS", Key: "tls_insecure_skip_verify", At: func(c *Config) **tls.Config { return &c.TLS }, Read: parseInsecureTLS},

	// Fields that a DSN cannot set.
	intField{Name: "HealthCheck.FailureThreshold", At: func(c *Config) *int { return &c.HealthCheck.FailureThreshold }, Default: 3},
	durationField{Name: "HealthCheck.UnhealthyAfter", At: func(c *Config) *time.Duration { return &c.HealthCheck.UnhealthyAfter }, Default: 5 * time.Second},
	intField{Name: "HealthCheck.RecoveryThreshold", At: func(c *Config) *int { return &c.HealthCheck.RecoveryThreshold }, Default: 2, Check: option.NotOff[int]},
	durationField{Name: "Cancel.Grace", At: func(c *Config) *time.Duration { return &c.Cancel.Grace }, Default: 250 * time.Millisecond, Check: option.Bounds},
	durationField{Name: "Cancel.Budget", At: func(c *Config) *time.Duration { return &c.Cancel.Budget }, Default: 5 * time.Second, Check: option.Bounds},
	intField{Name: "MaxMessage", At: func(c *Config) *int { return &c.MaxMessage }, Check: option.NotOff[int]},
}

func parseExhaustion(text string) (Exhaustion, error) {
	kind, n, _ := strings.Cut(text, ":")
	extra, err := strconv.Atoi(n)
	switch {
	case text == "wait":
		return Wait, nil
	case text == "fail_fast":
		return FailFast, nil
	case kind == "overflow" && err == nil && extra > 0:
		return Overflow(extra), nil
	default:
		return Wait, fmt.Errorf("%s is none of wait, fail_fast, overflow:n", option.Quote(text))
	}
}

func parseInsecureTLS(text string) (*tls.Config, error) {
	skip, err := option.Bool(text)
	if err != nil || !skip { // false is the default, of targets without TLS too
		return nil, err
	}
	return &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, nil //nolint:gosec // named for what it is, off by default
}

func parseBearer(text string) (Auth, error) {
	switch {
	case text == "":
		return Auth{}, errors.New("is empty")
	case strings.ContainsAny(text, " \t\r\n"):
		return Auth{}, errors.New("contains a space; + is written %2B")
	}
	return BearerAuth(text), nil
}

// resolve fills in the defaults, or returns every fault.
func (c Config) resolve() (Config, error) {
	faults := append(fields.Faults(&c), c.faults()...)
	fields.Fill(&c)
	if c.Cancel.Grace > c.Cancel.Budget {
		faults = append(faults, fmt.Errorf("Cancel.Grace: %v is more than Cancel.Budget %v", c.Cancel.Grace, c.Cancel.Budget))
	}
	never := func(context.Context) (backend.Conn, error) { return nil, ErrClosed }
	err := reservoirConfig(c, never, backend.Conn.Close).Validate()
	return c, errjoin.Join(append(faults, option.Translated(err, "reservoir: ", namesOfReservoir, faults)...)...)
}

// namesOfReservoir are the fields that the reservoir calls otherwise.
var namesOfReservoir = map[string]string{
	"OpenTimeout": "DialTimeout", "CheckTimeout": "HealthCheck.Timeout", "CheckInterval": "HealthCheck.Interval",
	"IdleBeforeCheck": "HealthCheck.IdleBeforeCheck",
}

// maxStatementCache bounds Config.StatementCache.
const maxStatementCache = 1000

// faults finds what is wrong with lists of texts and with headers. The
// reservoir's own check covers sizes and lifetimes.
func (c Config) faults() []error {
	fault, faults := option.Collect("")
	for i, name := range c.Cancel.Actions {
		fault(strings.TrimSpace(name) == "", "Cancel.Actions: name %d is empty", i)
	}
	fault(c.StatementCache > maxStatementCache, "StatementCache: %d is more than %d", c.StatementCache, maxStatementCache)
	fault(c.StatementCache > 0 && c.DisableRetry, "StatementCache: not with DisableRetry, since a statement that the server has forgotten is prepared again")
	fault(c.StatementCache > 0 && c.OnReturn.String() == ResetNone.String(), "StatementCache: not with ResetNone, by which borrowers may change what a statement means")
	for i, sql := range c.OnReturn.Statements() {
		fault(strings.TrimSpace(sql) == "", "OnReturn: statement %d is empty", i)
	}
	if err := flightconn.CheckHeaders(c.Headers); err != nil {
		fault(true, "Headers: %w", err)
	}
	if err := flightconn.CheckHeaders(metadata.MD{c.SessionHeader: nil}); c.SessionHeader != "" && err != nil {
		fault(true, "SessionHeader: %w", err)
	}
	fault(strings.EqualFold(c.SessionHeader, "authorization"), "SessionHeader: is not for credentials; put authorization into Auth")
	for key := range c.Headers {
		fault(c.SessionHeader != "" && strings.EqualFold(key, c.SessionHeader), "SessionHeader: %q is in Headers too, where all connections share it", key)
		fault(strings.EqualFold(key, "authorization"), "Headers: put authorization into Auth")
	}
	if c.Tracer != nil {
		err := (&tracing{}).add(c.Tracer)
		fault(err != nil, "Tracer: %w", err)
	}
	return *faults
}

// reservoirConfig is the part of a Config that the reservoir carries out.
func reservoirConfig(c Config, open func(context.Context) (backend.Conn, error), closeConn func(backend.Conn) error) reservoir.Config[backend.Conn] {
	return reservoir.Config[backend.Conn]{
		Open: open, Close: closeConn, Check: func(context.Context, backend.Conn) error { return nil },
		MinIdle: c.MinIdle, MaxSize: c.MaxSize, MaxConcurrentOpens: c.MaxConcurrentOpens, MaxWaiters: c.MaxWaiters,
		AcquireTimeout: c.AcquireTimeout, OpenTimeout: c.DialTimeout, CloseTimeout: c.CloseTimeout, CheckTimeout: c.HealthCheck.Timeout,
		IdleTTL: c.IdleTTL, MaxLifetime: c.MaxLifetime, LifetimeJitter: c.LifetimeJitter, GuardWindow: c.GuardWindow,
		CheckInterval: c.HealthCheck.Interval, IdleBeforeCheck: c.HealthCheck.IdleBeforeCheck,
		CheckOnAcquire: c.HealthCheck.ValidateOnAcquire, CheckOnRelease: c.HealthCheck.ValidateOnRelease,
		OnExhausted: c.OnExhausted, LeakAfter: c.LeakAfter, OpenRetry: c.OpenRetry,
	}
}

func endpointConfig(at dsn, cfg Config, auth credentialSource) flightconn.Config {
	c := flightconn.Config{
		Network: at.network, Address: at.addr,
		Basic: auth.basic, Authorization: auth.get, Locations: cfg.Locations, Headers: cfg.Headers, SessionHeader: cfg.SessionHeader,
		DialOptions: cfg.DialOptions, Dialer: cfg.Dialer, Allocator: cfg.Allocator,
		DialTimeout: cfg.DialTimeout, CloseTimeout: cfg.CloseTimeout,
		MaxMessage: cfg.MaxMessage, CancelActions: cfg.Cancel.Actions,
	}
	if cfg.Traffic != nil {
		c.CountBytes = cfg.Traffic.add
	}
	if at.secure {
		if c.TLS = cfg.TLS; c.TLS == nil {
			c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	return c
}
