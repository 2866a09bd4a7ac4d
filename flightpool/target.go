package flightpool

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// address is a target taken apart.
type address struct {
	network string // "tcp" or "unix"
	addr    string
	secure  bool
}

// ParseTarget takes a DSN apart: the target that New takes, and the options
// that its user part and query string carry.
//
//	grpc://host:port               plain text (also grpc+tcp://)
//	grpc+tls://host:port           TLS
//	grpc+unix:///path/to/socket    a Unix socket
//	flightsql://user:pass@host:port/?max_size=8&transport=tls
//
// flightsql:// is TLS unless the host is a loopback address or transport says
// tcp, tls or unix. The options are min_idle, max_size, max_waiters,
// max_concurrent_opens, acquire_timeout, dial_timeout, close_timeout, idle_ttl,
// max_lifetime, lifetime_jitter, guard_window, query_timeout, leak_after,
// disable_retry, on_exhausted (wait, fail_fast, overflow:n), on_return (auto,
// discard, none), health_check (ping, query, full_validate), health_check_sql,
// health_check_interval, health_check_timeout, validate_on_acquire,
// validate_on_release, token, session_header, transport and
// tls_insecure_skip_verify.
// Durations are Go's ("30s"). Every fault is reported at once.
func ParseTarget(dsn string) (target string, cfg Config, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", Config{}, fmt.Errorf("target: %w", hideSecrets(err))
	}
	var faults []error
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		faults = append(faults, fmt.Errorf("target: query: %w", err))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		cfg.Auth = BasicAuth(u.User.Username(), password)
	}
	scheme := u.Scheme
	if scheme == "flightsql" {
		scheme, err = flightsqlScheme(u, query)
		faults = append(faults, err)
	}
	query.Del("transport")
	faults = append(faults, applyOptions(&cfg, query)...)
	clean := url.URL{Scheme: scheme, Host: u.Host, Path: u.Path}
	if scheme != "grpc+unix" {
		clean.Path = strings.TrimSuffix(clean.Path, "/")
	}
	target = clean.String()
	if _, err := parseAddress(target); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return "", Config{}, err
	}
	return target, cfg, nil
}

// flightsqlScheme is the gRPC scheme that a flightsql:// URL stands for.
func flightsqlScheme(u *url.URL, query url.Values) (string, error) {
	switch transport := query.Get("transport"); transport {
	case "tls":
		return "grpc+tls", nil
	case "tcp":
		return "grpc", nil
	case "unix":
		return "grpc+unix", nil
	case "":
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback()) {
			return "grpc", nil
		}
		return "grpc+tls", nil
	default:
		return "grpc", fmt.Errorf("target: transport: %q is none of tls, tcp, unix", transport)
	}
}

// parseAddress takes a target without options apart.
func parseAddress(target string) (address, error) {
	u, err := url.Parse(target)
	if err != nil {
		return address{}, fmt.Errorf("target: %w", hideSecrets(err))
	}
	a := address{network: "tcp", addr: u.Host}
	switch u.Scheme {
	case "grpc", "grpc+tcp":
	case "grpc+tls":
		a.secure = true
	case "grpc+unix":
		if a.network, a.addr = "unix", u.Host+u.Path; a.addr == "" {
			return a, errors.New("target: grpc+unix:// needs the path of a socket")
		}
		return a, nil
	default:
		return a, fmt.Errorf("target: scheme %q is none of grpc, grpc+tcp, grpc+tls, grpc+unix, flightsql", u.Scheme)
	}
	switch port, err := strconv.Atoi(u.Port()); {
	case u.Hostname() == "":
		return a, fmt.Errorf("target: %q has no host", target)
	case u.Port() == "":
		return a, fmt.Errorf("target: %q has no port", target)
	case err != nil || port < 1 || port > 65535:
		return a, fmt.Errorf("target: port %s is not between 1 and 65535", u.Port())
	case strings.Trim(u.Path, "/") != "":
		return a, fmt.Errorf("target: path %q means nothing here; options go after ?", u.Path)
	}
	return a, nil
}

// hideSecrets drops the URL, and with it a password, from a parse error.
func hideSecrets(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// option sets one field of a Config from the text of a DSN.
type option func(cfg *Config, text string) error

func number(field func(*Config) *int) option {
	return func(cfg *Config, text string) (err error) {
		*field(cfg), err = strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		return nil
	}
}

func duration(field func(*Config) *time.Duration) option {
	return func(cfg *Config, text string) (err error) {
		*field(cfg), err = time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s", text)
		}
		return nil
	}
}

func flag(field func(*Config) *bool) option {
	return func(cfg *Config, text string) (err error) {
		*field(cfg), err = strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		return nil
	}
}

func choice[T any](field func(*Config) *T, values map[string]T) option {
	return func(cfg *Config, text string) error {
		v, ok := values[text]
		if !ok {
			return fmt.Errorf("%q is none of %s", text, strings.Join(sortedKeys(values), ", "))
		}
		*field(cfg) = v
		return nil
	}
}

var options = map[string]option{
	"min_idle":              number(func(c *Config) *int { return &c.MinIdle }),
	"max_size":              number(func(c *Config) *int { return &c.MaxSize }),
	"max_waiters":           number(func(c *Config) *int { return &c.MaxWaiters }),
	"max_concurrent_opens":  number(func(c *Config) *int { return &c.MaxConcurrentOpens }),
	"acquire_timeout":       duration(func(c *Config) *time.Duration { return &c.AcquireTimeout }),
	"dial_timeout":          duration(func(c *Config) *time.Duration { return &c.DialTimeout }),
	"close_timeout":         duration(func(c *Config) *time.Duration { return &c.CloseTimeout }),
	"idle_ttl":              duration(func(c *Config) *time.Duration { return &c.IdleTTL }),
	"max_lifetime":          duration(func(c *Config) *time.Duration { return &c.MaxLifetime }),
	"lifetime_jitter":       duration(func(c *Config) *time.Duration { return &c.LifetimeJitter }),
	"guard_window":          duration(func(c *Config) *time.Duration { return &c.GuardWindow }),
	"query_timeout":         duration(func(c *Config) *time.Duration { return &c.DefaultQueryTimeout }),
	"leak_after":            duration(func(c *Config) *time.Duration { return &c.LeakAfter }),
	"health_check_interval": duration(func(c *Config) *time.Duration { return &c.HealthCheck.Interval }),
	"health_check_timeout":  duration(func(c *Config) *time.Duration { return &c.HealthCheck.Timeout }),
	"disable_retry":         flag(func(c *Config) *bool { return &c.DisableRetry }),
	"validate_on_acquire":   flag(func(c *Config) *bool { return &c.HealthCheck.ValidateOnAcquire }),
	"validate_on_release":   flag(func(c *Config) *bool { return &c.HealthCheck.ValidateOnRelease }),
	"health_check":          choice(func(c *Config) *HealthKind { return &c.HealthCheck.Kind }, map[string]HealthKind{"ping": Ping, "query": Query, "full_validate": FullValidate}),
	"on_return":             choice(func(c *Config) *SessionReset { return &c.OnReturn }, map[string]SessionReset{"auto": ResetAuto, "discard": ResetDiscard, "none": ResetNone}),
	"health_check_sql": func(c *Config, text string) error {
		c.HealthCheck.SQL = text
		return nil
	},
	"token": func(c *Config, text string) error {
		if c.Auth.kind != "" {
			return errors.New("excludes a user in the target")
		}
		c.Auth = BearerAuth(text)
		return nil
	},
	"on_exhausted": func(c *Config, text string) error {
		kind, n, _ := strings.Cut(text, ":")
		extra, err := strconv.Atoi(n)
		switch {
		case text == "wait":
			c.OnExhausted = Wait
		case text == "fail_fast":
			c.OnExhausted = FailFast
		case kind == "overflow" && err == nil && extra > 0:
			c.OnExhausted = Overflow(extra)
		default:
			return fmt.Errorf("%q is none of wait, fail_fast, overflow:n", text)
		}
		return nil
	},
	"session_header": func(c *Config, text string) error { c.SessionHeader = text; return nil },
	"tls_insecure_skip_verify": func(c *Config, text string) error {
		skip, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		c.TLS = &tls.Config{InsecureSkipVerify: skip, MinVersion: tls.VersionTLS12} //nolint:gosec // named for what it is, off by default
		return nil
	},
}

func applyOptions(cfg *Config, query url.Values) []error {
	var faults []error
	for _, name := range sortedKeys(query) {
		set, known := options[name]
		switch values := query[name]; {
		case !known:
			faults = append(faults, fmt.Errorf("target: option %q is none of %s", name, strings.Join(sortedKeys(options), ", ")))
		case len(values) > 1:
			faults = append(faults, fmt.Errorf("target: option %s is given %d times", name, len(values)))
		default:
			if err := set(cfg, values[0]); err != nil {
				faults = append(faults, fmt.Errorf("target: option %s: %w", name, err))
			}
		}
	}
	return faults
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// merge adds the options of a target to cfg. A field that both set is a fault,
// since neither can be taken to be meant.
func merge(cfg, fromTarget Config) (Config, error) {
	var faults []error
	var walk func(dst, src reflect.Value, path string)
	walk = func(dst, src reflect.Value, path string) {
		for i := range dst.NumField() {
			name := path + dst.Type().Field(i).Name
			d, s := dst.Field(i), src.Field(i)
			switch {
			case s.IsZero():
			case d.Kind() == reflect.Struct && d.Type() == reflect.TypeFor[HealthCheck]():
				walk(d, s, name+".")
			case !d.IsZero():
				faults = append(faults, fmt.Errorf("%s: set in the target and in the Config", name))
			default:
				d.Set(s)
			}
		}
	}
	walk(reflect.ValueOf(&cfg).Elem(), reflect.ValueOf(fromTarget), "")
	return cfg, errors.Join(faults...)
}
