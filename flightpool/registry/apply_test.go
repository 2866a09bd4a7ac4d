package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

const whole = `
-- the servers of the house
CREATE SERVER s
    TYPE 'fake' FOREIGN DATA WRAPPER whatever_fdw
    OPTIONS (
        host 'db.example.com', /* a comment /* in a comment */ */
        dbname 'it''s',
        -- Pool configuration
        min_connections '2',
        max_connections '20',
        connect_timeout '5000',
        query_timeout '1m',
        reset_on_release 'false'
    );
CREATE USER MAPPING FOR a SERVER s OPTIONS (user 'remote a', password 'p;--');
CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (user 'guest');
CREATE USER MAPPING FOR "Ann Lee" SERVER s OPTIONS (user 'ann', sslmode 'require');
ALTER SERVER s OPTIONS (SET max_connections '30', DROP query_timeout, ADD sslmode 'prefer');
ALTER USER MAPPING FOR a SERVER s OPTIONS (SET password 'new');
DROP USER MAPPING FOR PUBLIC SERVER s;
DROP USER MAPPING IF EXISTS FOR PUBLIC SERVER s;
CREATE SERVER IF NOT EXISTS s FOREIGN DATA WRAPPER postgres_fdw;
DROP SERVER IF EXISTS nowhere CASCADE
`

func TestAFileOfStatementsConfiguresARegistry(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		require.NoError(t, g.ApplyDDL(t.Context(), whole))
		d, err := g.Definition("s")
		require.NoError(t, err)
		require.Equal(t, registry.ServerDefinition{
			Name: "s", Kind: "fake", MinIdle: 2, MaxSize: 30, OpenTimeout: 5 * time.Second, KeepSession: true,
			Options: map[string]string{"host": "db.example.com", "dbname": "it's", "sslmode": "prefer"},
			Users: map[string]registry.UserMapping{
				"a":       {User: "remote a", Password: "new"},
				"Ann Lee": {User: "ann", Options: map[string]string{"sslmode": "require"}},
			},
		}, d)
		c := acquire(t, g, "Ann Lee")
		require.Equal(t, "ann", whoami(t, c))
		require.NoError(t, c.Release())
		require.NoError(t, g.ApplyDDL(t.Context(), "DROP SERVER s"))
		require.Empty(t, g.Servers())
	})
}

func TestAStatementThatFailsSaysWhereAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		before, err := g.Definition("s")
		require.NoError(t, err)
		for sql, want := range map[string]string{
			"ALTER SERVER s OPTIONS (\n SET max_connections 'many')":          "line 2, column 2",
			"ALTER SERVER s OPTIONS (SET exhaustion_policy 'panic')":          "exhaustion_policy",
			"ALTER SERVER s OPTIONS (SET exhaustion_policy 'wait:5')":         "exhaustion_policy",
			"ALTER SERVER s OPTIONS (SET exhaustion_policy 'fail_fast:')":     "exhaustion_policy",
			"\nCREATE USER MAPPING FOR a SERVER s":                            "line 2, column 1",
			"ALTER USER MAPPING FOR z SERVER s OPTIONS (user 'x')":            `"z"`,
			"CREATE USER MAPPING FOR a SERVER nowhere":                        "unknown server",
			"CREATE SERVER t FOREIGN DATA WRAPPER oracle_fdw":                 "oracle_fdw",
			"CREATE SERVER s TYPE 'fake' FOREIGN DATA WRAPPER w":              "exists already",
			"ALTER SERVER s OPTIONS (SET min_connections '11')":               "MinIdle",
			"ALTER SERVER s OPTIONS (SET health_check_type 'x', SET a 'b')":   "health_check_type",
			"CREATE SERVER t TYPE 'fake' FOREIGN DATA WRAPPER w; DROP SERVER": "expected the name",
		} {
			err := g.ApplyDDL(t.Context(), sql)
			require.ErrorContains(t, err, want, "%s", sql)
			require.Regexp(t, `^registry: line \d+, column \d+: `, err.Error())
			require.NotRegexp(t, `registry: line \d+, column \d+: registry: `, err.Error())
		}
		after, err := g.Definition("s")
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, []string{"s"}, g.Servers())
	})
}

// Every option of the document, its default, and the same from text.
func TestEveryOptionHasItsDefaultAndIsReadFromText(t *testing.T) {
	texts := map[string]string{
		"min_connections": "2", "max_connections": "20", "reserved_connections": "1", "user_max_connections": "5", "max_concurrent_opens": "3",
		"connect_timeout": "1000", "query_timeout": "2s", "acquire_timeout": "3000", "idle_timeout": "4000", "max_lifetime": "5m",
		"enable_health_check": "false", "health_check_interval": "6000", "health_check_timeout": "7000", "health_check_type": "FULL_VALIDATE",
		"health_check_query": "SELECT 2", "failure_threshold": "8", "recovery_threshold": "9", "reset_on_release": "off", "validate_on_acquire": "true",
		"validate_on_release": "on", "validation_interval_seconds": "10", "warmup_connections": "4", "exhaustion_policy": "overflow:3", "max_waiters": "11",
		"collect_statistics": "no", "collect_query_stats": "0", "user_idle_timeout": "12s", "leak_after": "13s", "host": "h",
	}
	want := registry.ServerDefinition{
		Name: "s", Kind: "fake", MinIdle: 2, MaxSize: 20, UserReserved: 1, UserMaxSize: 5, MaxConcurrentOpens: 3,
		OpenTimeout: time.Second, QueryTimeout: 2 * time.Second, AcquireTimeout: 3 * time.Second, IdleTTL: 4 * time.Second, MaxLifetime: 5 * time.Minute,
		HealthCheck: registry.HealthCheck{Disabled: true, Interval: 6 * time.Second, Timeout: 7 * time.Second, Kind: flightpool.FullValidate, Query: "SELECT 2",
			FailureThreshold: 8, RecoveryThreshold: 9},
		KeepSession: true, ValidateOnAcquire: true, ValidateOnRelease: true, ValidateAfter: 10 * time.Second, WarmupConnections: 4,
		OnExhausted: flightpool.Overflow(3), MaxWaiters: 11, DisableStatistics: true, DisableQueryStats: true, UserIdleTimeout: 12 * time.Second, LeakAfter: 13 * time.Second,
		Options: map[string]string{"host": "h"},
	}
	got := registry.ServerDefinition{Name: "s", Kind: "fake"}
	require.NoError(t, got.SetOptions(texts))
	require.Equal(t, want, got)

	err := got.SetOptions(map[string]string{"max_connections": "0", "connect_timeout": "soon", "warmup_on_create": "maybe"})
	for _, name := range []string{"max_connections", "connect_timeout", "warmup_on_create"} {
		require.ErrorContains(t, err, name)
	}
	off := registry.ServerDefinition{}
	require.NoError(t, off.SetOptions(map[string]string{"min_connections": "0", "idle_timeout": "0", "warmup_on_create": "false"}))
	require.Equal(t, registry.ServerDefinition{MinIdle: -1, IdleTTL: -1, DisableWarmup: true}, off, "a zero turns off")
}

func TestADSNIsADefinition(t *testing.T) {
	d, err := registry.ParseDSN("postgres://app:s%2Fcret@db.example.com:5432/production?server_name=legacy&max_connections=20&sslmode=require")
	require.NoError(t, err)
	require.Equal(t, registry.ServerDefinition{
		Name: "legacy", Kind: "postgres", MaxSize: 20,
		Options: map[string]string{"host": "db.example.com", "port": "5432", "dbname": "production", "sslmode": "require"},
		Users:   map[string]registry.UserMapping{registry.Public: {User: "app", Password: "s/cret"}},
	}, d)
	for _, bad := range []string{"postgres://u:secret@h:x/", "postgres://u:secret@h/?max_connections=0", "postgres://u:secret@h/?a=%zz"} {
		_, err := registry.ParseDSN(bad)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

// user and username are one, so that order must not decide.
func TestAMappingNamesItsUserOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, nil)
		for _, options := range []string{"user 'x', username 'y'", "username 'y', password 'z', user 'x'"} {
			err := g.ApplyDDL(t.Context(), "CREATE USER MAPPING FOR z SERVER s OPTIONS ("+options+")")
			require.ErrorContains(t, err, "user and username are the same")
		}
		require.NoError(t, g.ApplyDDL(t.Context(), "CREATE USER MAPPING FOR z SERVER s OPTIONS (username 'y')"))
	})
}

// Whatever stands unencoded in a password: no error and no definition shows a part of it.
func TestADSNShowsNoPartOfAPassword(t *testing.T) {
	r := registry.New()
	defer r.Close(t.Context()) //nolint:errcheck // nothing is connected
	const part = "hunter2xyz"
	taken := 0
	for _, kind := range []string{"postgresql", "mysql", "flightsql", "unknown"} {
		for _, before := range []string{"", "1", "12"} { // as a port may be
			for _, mark := range strings.Split("/ ? # % & + @ [ ] : ; = < ^ | ~ %23 %2F", " ") {
				for _, behind := range []string{"", "=x", "=x&", "/", "@", "?", "#"} {
					dsn := kind + "://app:" + before + mark + part + behind + "@db.example.com:5432/production?max_connections=3"
					d, err := registry.ParseDSN(dsn)
					require.NotContains(t, fmt.Sprintf("%v %#v", err, d), part, dsn)
					if err != nil {
						continue
					}
					taken++
					require.Equal(t, "db.example.com", d.Name, dsn)
					require.Contains(t, d.Users[registry.Public].Password, part, dsn)
					if err := r.Register(t.Context(), d); err != nil {
						require.NotContains(t, err.Error(), part, dsn)
						continue
					}
					require.NoError(t, r.Unregister(t.Context(), d.Name))
				}
			}
		}
	}
	require.NotZero(t, taken)
}

// What stands behind an & that is not encoded in a secret would be the name of an option.
func TestADSNShowsNoPartOfASecretAmongItsOptions(t *testing.T) {
	r := registry.New()
	defer r.Close(t.Context()) //nolint:errcheck // nothing is connected
	for _, kind := range []string{"flightsql", "flight_sql", "postgresql", "postgres", "mysql", "mssql", "firebird"} {
		for _, name := range []string{"token", "password", "sslpassword", "change%20password", "target"} {
			for _, behind := range []string{"hunter2", "hunter2=", "hunter2%3D=x", "tls=true&hunter2=x", "%zhunter2=x"} {
				dsn := kind + "://db.example.com:5432/?" + name + "=abc&" + behind
				d, err := registry.ParseDSN(dsn)
				if err == nil {
					err = r.Register(t.Context(), d)
				}
				require.Error(t, err, dsn)
				require.NotContains(t, err.Error(), "hunter2", dsn)
			}
		}
	}
	for _, dsn := range []string{
		"flightsql://h:1/?token=abc&tls=true&max_connections=3&server_name=s", "postgresql://h/?sslpassword=a&sslkey=k&sslmode=require",
		"postgresql://h/?driver=other&sslpassword=a&theirs=1", "own://h/?token=abc&theirs=1",
	} {
		_, err := registry.ParseDSN(dsn)
		require.NoError(t, err, dsn)
	}
}

func TestADSNThatNamesNoHostIsRefused(t *testing.T) {
	for _, dsn := range []string{"", "postgresql", "app:hunter2@db/x", "postgresql:hunter2", "postgresql://db/x#hunter2", "postgresql://db/x?y=hunter2@z", "postgresql://db:hunter2/x",
		"postgresql://a:hunter2@db1:5432,db2:5432/x", "mysql://a:hunter2@unix(/tmp/mysql.sock)/x", "mysql://a:hunter2@tcp(db)/x", "mysql://a:hunter2@(db)/x", "postgresql:hunter2://db/x", "jdbc:postgresql://db/x?password=hunter2"} {
		_, err := registry.ParseDSN(dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, dsn := range []string{"postgresql://a:b@[::1]:5432/x", "postgresql://a:b@db1,db2/x", "postgresql:///x?host=/tmp&server_name=s"} {
		_, err := registry.ParseDSN(dsn)
		require.NoError(t, err, dsn)
	}
}
