package flightpool

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// option is one setting that a DSN can make.
type option struct {
	field string // of Config
	read  func(text string) (assign func(*Config), err error)
	isSet func(*Config) bool
}

// setting is the option that sets the field at, as parse reads it.
func setting[T any](field string, at func(*Config) *T, parse func(text string) (T, error)) option {
	return option{
		field: field,
		read: func(text string) (func(*Config), error) {
			v, err := parse(text)
			return func(c *Config) { *at(c) = v }, err
		},
		isSet: func(c *Config) bool { return !reflect.ValueOf(at(c)).Elem().IsZero() },
	}
}

var errNotOff = errors.New("cannot be switched off")

// number reads a count. Zero is off, which a Config says by a negative number.
func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is not a number", quoteValue(text))
	case n <= 0:
		return -1, nil
	default:
		return n, nil
	}
}

// positive reads a count for which off means nothing.
func positive(text string) (int, error) {
	n, err := number(text)
	if err == nil && n < 0 {
		err = errors.New("must be at least 1")
	}
	return n, err
}

// duration reads a duration. Zero is off, which a Config says by a negative one.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is not a duration such as 30s", quoteValue(text))
	case d <= 0:
		return -1, nil
	default:
		return d, nil
	}
}

// bound reads a duration that cannot be off.
func bound(text string) (time.Duration, error) {
	d, err := duration(text)
	if err == nil && d < 0 {
		err = errNotOff
	}
	return d, err
}

func boolean(text string) (bool, error) {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s is neither true nor false", quoteValue(text))
	}
	return b, nil
}

// quoteValue shows the value of an option that holds no secret.
func quoteValue(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return strconv.Quote(text)
}

func verbatim(text string) (string, error) { return text, nil }

func choice[T any](values map[string]T) func(string) (T, error) {
	return func(text string) (T, error) {
		v, ok := values[text]
		if !ok {
			return v, fmt.Errorf("%s is none of %s", quoteValue(text), strings.Join(sortedKeys(values), ", "))
		}
		return v, nil
	}
}

func exhaustion(text string) (Exhaustion, error) {
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
		return Wait, fmt.Errorf("%s is none of wait, fail_fast, overflow:n", quoteValue(text))
	}
}

func insecureTLS(text string) (*tls.Config, error) {
	skip, err := boolean(text)
	if err != nil {
		return nil, err
	}
	return &tls.Config{InsecureSkipVerify: skip, MinVersion: tls.VersionTLS12}, nil //nolint:gosec // named for what it is, off by default
}

func bearer(text string) (Auth, error) {
	switch {
	case text == "":
		return Auth{}, errors.New("is empty")
	case strings.ContainsAny(text, " \t\r\n"):
		return Auth{}, errors.New("contains a space; + is written %2B")
	}
	return BearerAuth(text), nil
}

// options are those that a DSN can carry, beside transport.
var options = map[string]option{
	"min_idle":                 setting("MinIdle", func(c *Config) *int { return &c.MinIdle }, number),
	"max_size":                 setting("MaxSize", func(c *Config) *int { return &c.MaxSize }, positive),
	"max_waiters":              setting("MaxWaiters", func(c *Config) *int { return &c.MaxWaiters }, positive),
	"max_concurrent_opens":     setting("MaxConcurrentOpens", func(c *Config) *int { return &c.MaxConcurrentOpens }, number),
	"acquire_timeout":          setting("AcquireTimeout", func(c *Config) *time.Duration { return &c.AcquireTimeout }, duration),
	"dial_timeout":             setting("DialTimeout", func(c *Config) *time.Duration { return &c.DialTimeout }, bound),
	"close_timeout":            setting("CloseTimeout", func(c *Config) *time.Duration { return &c.CloseTimeout }, bound),
	"idle_ttl":                 setting("IdleTTL", func(c *Config) *time.Duration { return &c.IdleTTL }, duration),
	"max_lifetime":             setting("MaxLifetime", func(c *Config) *time.Duration { return &c.MaxLifetime }, duration),
	"lifetime_jitter":          setting("LifetimeJitter", func(c *Config) *time.Duration { return &c.LifetimeJitter }, duration),
	"guard_window":             setting("GuardWindow", func(c *Config) *time.Duration { return &c.GuardWindow }, duration),
	"query_timeout":            setting("DefaultQueryTimeout", func(c *Config) *time.Duration { return &c.DefaultQueryTimeout }, duration),
	"leak_after":               setting("LeakAfter", func(c *Config) *time.Duration { return &c.LeakAfter }, duration),
	"disable_retry":            setting("DisableRetry", func(c *Config) *bool { return &c.DisableRetry }, boolean),
	"health_check_sql":         setting("HealthCheck.SQL", func(c *Config) *string { return &c.HealthCheck.SQL }, verbatim),
	"health_check_interval":    setting("HealthCheck.Interval", func(c *Config) *time.Duration { return &c.HealthCheck.Interval }, duration),
	"health_check_timeout":     setting("HealthCheck.Timeout", func(c *Config) *time.Duration { return &c.HealthCheck.Timeout }, bound),
	"validate_on_acquire":      setting("HealthCheck.ValidateOnAcquire", func(c *Config) *bool { return &c.HealthCheck.ValidateOnAcquire }, boolean),
	"validate_on_release":      setting("HealthCheck.ValidateOnRelease", func(c *Config) *bool { return &c.HealthCheck.ValidateOnRelease }, boolean),
	"on_exhausted":             setting("OnExhausted", func(c *Config) *Exhaustion { return &c.OnExhausted }, exhaustion),
	"token":                    setting("Auth", func(c *Config) *Auth { return &c.Auth }, bearer),
	"session_header":           setting("SessionHeader", func(c *Config) *string { return &c.SessionHeader }, verbatim),
	"tls_insecure_skip_verify": setting("TLS", func(c *Config) **tls.Config { return &c.TLS }, insecureTLS),
	"health_check": setting("HealthCheck.Kind", func(c *Config) *HealthKind { return &c.HealthCheck.Kind },
		choice(map[string]HealthKind{"ping": Ping, "query": Query, "full_validate": FullValidate})),
	"open_retry": setting("OpenRetry", func(c *Config) *OpenRetry { return &c.OpenRetry },
		choice(map[string]OpenRetry{"deadline": OpenRetryTimed, "never": OpenRetryNever, "always": OpenRetryAlways})),
	"on_return": setting("OnReturn", func(c *Config) *SessionReset { return &c.OnReturn },
		choice(map[string]SessionReset{"auto": ResetAuto, "discard": ResetDiscard, "none": ResetNone})),
}

var transports = choice(map[string]string{"tcp": "tcp", "tls": "tls", "unix": "unix"})

// readOptions reads the options of a DSN, and its transport apart.
func readOptions(pairs []pair) (transport string, given []givenOption, faults []error) {
	for _, p := range pairs {
		if p.name == "transport" {
			t, err := transports(p.value)
			if err != nil {
				faults = append(faults, fmt.Errorf("transport: %w", err))
			}
			transport = t
			continue
		}
		o, known := options[p.name]
		if !known {
			faults = append(faults, fmt.Errorf("option %s is none of transport, %s", quoteName(p.name), strings.Join(sortedKeys(options), ", ")))
			continue
		}
		assign, err := o.read(p.value)
		if err != nil {
			faults = append(faults, fmt.Errorf("option %s: %w", p.name, err))
			continue
		}
		given = append(given, givenOption{o, assign})
	}
	return transport, given, faults
}

// userOption is the setting that a DSN's user part makes.
func userOption(user *url.Userinfo, others []givenOption) (givenOption, error) {
	o := options["token"]
	password, _ := user.Password()
	given := givenOption{o, func(c *Config) { c.Auth = BasicAuth(user.Username(), password) }}
	switch {
	case user.Username() == "":
		return given, errors.New("has credentials without a user")
	case slices.ContainsFunc(others, func(g givenOption) bool { return g.field == o.field }):
		return given, errors.New("option token: excludes a user in the target")
	}
	return given, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
