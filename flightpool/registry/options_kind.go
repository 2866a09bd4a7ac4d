package registry

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/option"
)

// Options are those that a kind takes beside a definition's own: by name, what says
// that a value is wrong, or nil where any text will do. Names are as they are written,
// in their case.
type Options map[string]func(value string) error

// Validate refuses what is not declared, and values that are wrong.
func (o Options) Validate(r ConnectParams) error {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(r.Options)) {
		check, ok := o[name]
		switch {
		case !ok:
			faults = append(faults, o.unknownError(name))
		case check != nil:
			if err := check(r.Options[name]); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return errjoin.Join(faults...)
}

// unknownError says of an option that is not declared what may have been meant.
func (o Options) unknownError(name string) error {
	for known := range o {
		if strings.EqualFold(known, name) {
			return fmt.Errorf("%s: unknown option; it is written %q, in double quotes in SQL", name, known)
		}
	}
	if name == "user" || name == "username" || name == "password" {
		return fmt.Errorf("%s: belongs to a user mapping", name)
	}
	return fmt.Errorf("%s: unknown option; beside those of every server there are %s", name, strings.Join(slices.Sorted(maps.Keys(o)), ", "))
}

// textOptions declares options that take any text, except the port.
func textOptions(names ...string) Options {
	o := Options{}
	for _, name := range names {
		o[name] = nil
	}
	o["port"] = checkPort
	return o
}

func checkPort(value string) error {
	if _, err := strconv.ParseUint(value, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port", value)
	}
	return nil
}

func checkBool(value string) error {
	_, err := parseBool(value)
	return err
}

var flightOptions = Options{"host": nil, "port": checkPort, "tls": checkBool, "token": nil}

// ValidateFlight is the Validate of kinds whose Flight uses FlightTarget: the
// options are host, port, tls and token, nothing may contradict the target or a token, the
// target has no option that the definition decides, and flightpool.New has to take what
// comes of it.
func ValidateFlight(r ConnectParams) error {
	faults := []error{flightOptions.Validate(r), checkNotInTarget(r, "host", "port", "tls"), checkHeldOfTarget(r.Target)}
	switch token := r.Options["token"] != ""; {
	case token && r.Password != "":
		faults = append(faults, errors.New("token: there is a password too: leave out one of them"))
	case token && r.User != "":
		faults = append(faults, errors.New("token: there is a user too: leave out one of them"))
	case r.User == "" && r.Password != "":
		faults = append(faults, errors.New("password: there is no user"))
	}
	if err := errjoin.Join(faults...); err != nil {
		return err
	}
	return checkFlightTarget(r)
}

// checkHeldOfTarget refuses options of a target that would not hold: reservoirConfig sets
// what they mean from the definition, whether it says so or not.
func checkHeldOfTarget(target string) error {
	_, given, _ := flightpool.ParseTarget(target) // checkFlightTarget tells what is wrong with it
	fault, faults := option.Collect("target: ")
	fault(given.OnExhausted != flightpool.Wait, "on_exhausted would not hold: it is set by the option exhaustion_policy")
	fault(given.MaxWaiters != 0, "max_waiters would not hold: it is set by the option max_waiters")
	fault(given.HealthCheck.ValidateOnAcquire, "validate_on_acquire would not hold: it is set by the option validate_on_acquire")
	fault(given.LifetimeJitter != 0, "lifetime_jitter would not hold: there is no option for it")
	fault(given.GuardWindow != 0, "guard_window would not hold: there is no option for it")
	return errjoin.Join(*faults...)
}

// checkFlightTarget makes a pool, which does not connect, to see whether it can be
// made. So a definition with a target that cannot be is refused at Register, not at the
// first call.
func checkFlightTarget(r ConnectParams) error {
	target, cfg := FlightTarget(r)
	cfg.MinIdle = -1
	pool, err := flightpool.New(detached(), target, cfg)
	if err == nil {
		return pool.Close(detached()) // it has opened nothing
	}
	if fault := new(flightpool.Error); errors.As(err, &fault) {
		return fault.Err
	}
	return err
}

// checkNotInTarget refuses options beside a target that says the same.
func checkNotInTarget(r ConnectParams, names ...string) error {
	if r.Target == "" {
		return nil
	}
	var faults []error
	for _, name := range names {
		if _, ok := r.Options[name]; ok {
			faults = append(faults, fmt.Errorf("%s: the target says that already: leave out one of them", name))
		}
	}
	return errjoin.Join(faults...)
}

// validateSQL is the Validate of a built-in kind of database/sql servers. The
// options are the default driver's; of another one they are not known. A target
// has all of them in it.
func validateSQL(byDefault string, options Options) func(r ConnectParams) error {
	return func(r ConnectParams) error {
		var faults []error
		if driver := r.Options["driver"]; driver == "" || driver == byDefault {
			faults = append(faults, options.Validate(r))
		}
		if r.Target != "" {
			others := maps.Clone(r.Options)
			delete(others, "driver")
			faults = append(faults, checkNotInTarget(r, slices.Sorted(maps.Keys(others))...))
		}
		_, err := SQLTarget(r)
		return errjoin.Join(append(faults, err)...)
	}
}

// ValidatePostgreSQL is the Validate of kinds that reach PostgreSQL by pgx: the
// options are those of libpq and pgx, and the settings of a session that are known
// here; the others go into the option options, as '-c name=value'.
func ValidatePostgreSQL(r ConnectParams) error { return validateSQL("pgx", postgresOptions)(r) }

var postgresOptions = textOptions("host", "dbname", "driver",
	// of the connection
	"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslsni", "sslnegotiation", "passfile", "service", "servicefile",
	"target_session_attrs", "krbsrvname", "krbspn", "channel_binding", "require_auth", "min_protocol_version", "max_protocol_version",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
	// of the session
	"options", "application_name", "search_path", "client_encoding", "client_min_messages", "datestyle", "intervalstyle", "timezone", "role",
	"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout",
	"default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable", "synchronous_commit",
	"extra_float_digits", "bytea_output", "standard_conforming_strings", "row_security", "jit", "plan_cache_mode",
	"work_mem", "maintenance_work_mem", "temp_buffers", "max_parallel_workers_per_gather", "replication")

var mysqlOptions = textOptions("host", "dbname", "driver", "socket",
	// of the connection
	"allowAllFiles", "allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "allowOldPasswords", "charset",
	"checkConnLiveness", "clientFoundRows", "collation", "columnsWithAlias", "compress", "connectionAttributes", "interpolateParams", "loc",
	"maxAllowedPacket", "multiStatements", "parseTime", "readTimeout", "rejectReadOnly", "serverPubKey", "timeout", "timeTruncate", "tls", "writeTimeout",
	// of the session
	"sql_mode", "time_zone", "transaction_isolation", "tx_isolation", "transaction_read_only", "tx_read_only", "autocommit",
	"max_execution_time", "max_statement_time", "wait_timeout", "net_read_timeout", "net_write_timeout", "lock_wait_timeout",
	"innodb_lock_wait_timeout", "foreign_key_checks", "unique_checks", "group_concat_max_len", "sql_select_limit", "max_join_size")

// validateMySQL also refuses a user that the driver would cut: its DSN has a
// colon between the user and the password.
func validateMySQL(r ConnectParams) error {
	err := validateSQL("mysql", mysqlOptions)(r)
	if r.Target == "" && strings.Contains(r.User, ":") {
		err = errjoin.Join(err, errors.New("user: a colon cannot be written in a DSN of the MySQL driver"))
	}
	return err
}

var mssqlOptions = textOptions("host", "dbname", "driver",
	"encrypt", "trustservercertificate", "certificate", "servercertificate", "hostnameincertificate", "tlsmin", "app name", "workstation id",
	"connection timeout", "dial timeout", "keepalive", "packet size", "failoverpartner", "failoverport", "serverspn", "applicationintent",
	"multisubnetfailover", "columnencryption", "authenticator", "protocol", "pipe", "log", "disableretry", "timezone", "guid conversion",
	"epa enabled", "notraceid", "change password")

var firebirdOptions = textOptions("host", "dbname", "driver",
	"auth_plugin_name", "charset", "column_name_to_lower", "role", "timezone", "wire_compress", "wire_crypt")

// declaredOptions are those of the built-in kinds, with their default drivers.
var declaredOptions = map[string]Options{"flightsql": flightOptions, "postgresql": postgresOptions, "mysql": mysqlOptions, "mssql": mssqlOptions, "firebird": firebirdOptions}

// secretOptions are those whose values are secrets, whether a kind takes them or not. A target may have a password in it.
var secretOptions = []string{"token", "password", "sslpassword", "change password", "target"}

// checkBehindSecrets refuses, in the query of a DSN, what may be the rest of a secret with an & in it:
// behind the name of one, what has no value, or is no option of the kind. The names of options are shown.
func checkBehindSecrets(kind string, query string) error {
	declared, known := declaredOptions[canonicalKind(kind)]
	known = known && !queryHas(query, "driver") // whose options are its own
	secret := ""
	for part := range strings.SplitSeq(query, "&") {
		raw, _, hasValue := strings.Cut(part, "=")
		name, err := url.QueryUnescape(raw)
		_, ofAll := options.Find(name)
		_, ofKind := declared[name]
		switch {
		case part == "":
		case secret != "" && (err != nil || !hasValue || known && !ofAll && !ofKind && name != "server_name" && !slices.Contains(secretOptions, name)):
			return fmt.Errorf("an option behind %s, whose name is not shown, is none of this kind; an & in a value is written %%26", secret)
		case slices.Contains(secretOptions, name):
			secret = name
		}
	}
	return nil
}
