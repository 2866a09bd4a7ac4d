package registry

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
)

// setting is one of a definition's fields as text.
type setting struct {
	set   func(d *ServerDefinition, value string) error
	reset func(d *ServerDefinition)
	isSet func(d *ServerDefinition) bool
	// vague: a text may mean what the field is when it was not set at all.
	vague bool
}

// field makes a setting of a field and a way to read its text.
func field[T comparable](at func(d *ServerDefinition) *T, parse func(string) (T, error)) setting {
	var vague bool
	switch any(*new(T)).(type) {
	case int, time.Duration: // 0 is no text's value
	default:
		vague = true
	}
	return setting{
		vague: vague,
		isSet: func(d *ServerDefinition) bool { return *at(d) != *new(T) },
		set: func(d *ServerDefinition, value string) error {
			v, err := parse(value)
			if err == nil {
				*at(d) = v
			}
			return err
		},
		reset: func(d *ServerDefinition) {
			var none T
			*at(d) = none
		},
	}
}

// options are all there are beside those of the kinds. Durations are Go's, or
// numbers of milliseconds. A zero turns off what can be turned off.
var options = map[string]setting{
	"min_connections":             field(func(d *ServerDefinition) *int { return &d.MinConnections }, parseCount),
	"max_connections":             field(func(d *ServerDefinition) *int { return &d.MaxConnections }, parsePositive),
	"reserved_connections":        field(func(d *ServerDefinition) *int { return &d.ReservedConnections }, parseCount),
	"user_max_connections":        field(func(d *ServerDefinition) *int { return &d.UserMaxConnections }, parsePositive),
	"max_concurrent_opens":        field(func(d *ServerDefinition) *int { return &d.MaxConcurrentOpens }, parsePositive),
	"connect_timeout":             field(func(d *ServerDefinition) *time.Duration { return &d.ConnectTimeout }, parseDuration(time.Millisecond)),
	"query_timeout":               field(func(d *ServerDefinition) *time.Duration { return &d.QueryTimeout }, parseDuration(time.Millisecond)),
	"acquire_timeout":             field(func(d *ServerDefinition) *time.Duration { return &d.AcquireTimeout }, parseDuration(time.Millisecond)),
	"idle_timeout":                field(func(d *ServerDefinition) *time.Duration { return &d.IdleTimeout }, parseDuration(time.Millisecond)),
	"max_lifetime":                field(func(d *ServerDefinition) *time.Duration { return &d.MaxLifetime }, parseDuration(time.Millisecond)),
	"user_idle_timeout":           field(func(d *ServerDefinition) *time.Duration { return &d.UserIdleTimeout }, parseDuration(time.Millisecond)),
	"enable_health_check":         field(func(d *ServerDefinition) *bool { return &d.HealthCheck.Disabled }, parseNot),
	"health_check_interval":       field(func(d *ServerDefinition) *time.Duration { return &d.HealthCheck.Interval }, parseDuration(time.Millisecond)),
	"health_check_timeout":        field(func(d *ServerDefinition) *time.Duration { return &d.HealthCheck.Timeout }, parseDuration(time.Millisecond)),
	"health_check_type":           field(func(d *ServerDefinition) *flightpool.HealthKind { return &d.HealthCheck.Kind }, parseHealthKind),
	"health_check_query":          field(func(d *ServerDefinition) *string { return &d.HealthCheck.Query }, parseText),
	"failure_threshold":           field(func(d *ServerDefinition) *int { return &d.HealthCheck.FailureThreshold }, parsePositive),
	"recovery_threshold":          field(func(d *ServerDefinition) *int { return &d.HealthCheck.RecoveryThreshold }, parsePositive),
	"reset_on_release":            field(func(d *ServerDefinition) *bool { return &d.KeepSession }, parseNot),
	"validate_on_acquire":         field(func(d *ServerDefinition) *bool { return &d.ValidateOnAcquire }, parseBool),
	"validate_on_release":         field(func(d *ServerDefinition) *bool { return &d.ValidateOnRelease }, parseBool),
	"validation_interval":         field(func(d *ServerDefinition) *time.Duration { return &d.ValidateAfter }, parseDuration(time.Millisecond)),
	"warmup_connections":          field(func(d *ServerDefinition) *int { return &d.WarmupConnections }, parseCount),
	"exhaustion_policy":           field(func(d *ServerDefinition) *flightpool.Exhaustion { return &d.OnExhausted }, parseExhaustion),
	"max_waiters":                 field(func(d *ServerDefinition) *int { return &d.MaxWaiters }, parsePositive),
	"collect_statistics":          field(func(d *ServerDefinition) *bool { return &d.DisableStatistics }, parseNot),
	"collect_query_stats":         field(func(d *ServerDefinition) *bool { return &d.DisableQueryStats }, parseNot),
	"target":                      field(func(d *ServerDefinition) *string { return &d.Target }, parseText),
	"validation_interval_seconds": field(func(d *ServerDefinition) *time.Duration { return &d.ValidateAfter }, parseDuration(time.Second)),
	"warmup_on_create":            field(func(d *ServerDefinition) *bool { return &d.DisableWarmup }, parseNot),
}

// sameField gives the option that sets the same field as another one.
var sameField = map[string]string{"validation_interval_seconds": "validation_interval", "validation_interval": "validation_interval_seconds"}

// SetOptions sets fields by the names of their options, such as max_connections;
// what is no field's name goes to Options, for the kind. It returns every fault.
func (d *ServerDefinition) SetOptions(values map[string]string) error {
	d.Options = maps.Clone(d.Options)
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := values[sameField[name]]; ok {
			faults = append(faults, fmt.Errorf("%s: there is %s too, which is the same", name, sameField[name]))
			continue
		}
		faults = append(faults, d.setOption(name, values[name]))
	}
	return errjoin.Join(faults...)
}

// setOption sets one. d.Options is the caller's own.
func (d *ServerDefinition) setOption(name, value string) error {
	o, ok := options[name]
	if !ok {
		if d.Options == nil {
			d.Options = map[string]string{}
		}
		d.Options[name] = value
		return nil
	}
	if err := o.set(d, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// has says whether an option is set, and lacks whether it surely is not: of some
// fields that is not known.
func (d *ServerDefinition) has(name string) bool {
	if o, ok := options[name]; ok {
		return o.isSet(d)
	}
	_, ok := d.Options[name]
	return ok
}

func (d *ServerDefinition) lacks(name string) bool { return !d.has(name) && !options[name].vague }

// dropOption gives a field its default, or takes an option of the kind away.
// d.Options is the caller's own.
func (d *ServerDefinition) dropOption(name string) {
	if o, ok := options[name]; ok {
		o.reset(d)
		return
	}
	delete(d.Options, name)
}

// ParseDSN makes a definition of a URL: its scheme is the kind, its user what
// PUBLIC is on the server, its path the dbname, and its query the options,
// server_name among them, which is the host otherwise.
//
//	postgresql://app:secret@db.example.com:5432/production?server_name=legacy&max_connections=20
func ParseDSN(dsn string) (ServerDefinition, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return ServerDefinition{}, errors.New("registry: DSN: not a URL") // url's words would quote the password
	}
	d := ServerDefinition{Kind: u.Scheme, Name: u.Hostname()}
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

func parseText(s string) (string, error) { return s, nil }

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "on", "yes", "1":
		return true, nil
	case "false", "off", "no", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseNot(s string) (bool, error) {
	v, err := parseBool(s)
	return !v, err
}

func parsePositive(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number above 0", s)
	}
	return int(n), nil
}

// parseCount reads a number of which 0 means none.
func parseCount(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("%q is not a number", s)
	case n == 0:
		return -1, nil
	}
	return int(n), nil
}

// parseDuration reads a Go duration or a number of units; 0 means off.
func parseDuration(unit time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if n, numErr := strconv.ParseInt(s, 10, 64); numErr == nil {
			d, err = time.Duration(n)*unit, nil
			if d/unit != time.Duration(n) {
				err = errors.New("too long")
			}
		}
		switch {
		case err != nil || d < 0:
			return 0, fmt.Errorf("%q is not a duration", s)
		case d == 0:
			return -1, nil
		}
		return d, nil
	}
}

func parseHealthKind(s string) (flightpool.HealthKind, error) {
	switch strings.ToLower(s) {
	case "ping":
		return flightpool.Ping, nil
	case "query":
		return flightpool.Query, nil
	case "full_validate":
		return flightpool.FullValidate, nil
	}
	return 0, fmt.Errorf("%q is none of ping, query, full_validate", s)
}

func parseExhaustion(s string) (flightpool.Exhaustion, error) {
	policy, number, _ := strings.Cut(strings.ToLower(s), ":")
	switch policy {
	case "wait":
		return flightpool.Wait, nil
	case "fail_fast":
		return flightpool.FailFast, nil
	case "overflow":
		n, err := parsePositive(number)
		return flightpool.Exhaustion(n), err
	}
	return 0, fmt.Errorf("%q is none of wait, fail_fast, overflow:n", s)
}
