package registry_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

func TestOptionsAreAddedOnceAndChangedOnlyWhereTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		require.NoError(t, g.ApplyDDL(t.Context(), `CREATE SERVER s FOREIGN DATA WRAPPER fake OPTIONS (host 'h', min_connections '0');
			CREATE USER MAPPING FOR a SERVER s OPTIONS (user 'u', sslmode 'x')`))
		for sql, want := range map[string]string{
			"ALTER SERVER s OPTIONS (DROP max_conections)":                                                                 "line 1, column 25: max_conections: is not set",
			"ALTER SERVER s OPTIONS (SET hosst 'x')":                                                                       "hosst: is not set; use ADD",
			"ALTER SERVER s OPTIONS (SET max_connections '3')":                                                             "max_connections: is not set; use ADD",
			"ALTER SERVER s OPTIONS (host 'x')":                                                                            "host: is set already; use SET",
			"ALTER SERVER s OPTIONS (ADD min_connections '1')":                                                             "min_connections: is set already",
			"ALTER SERVER s OPTIONS (ADD validation_interval '1s', ADD validation_interval_seconds '5')":                   "which is the same",
			"ALTER USER MAPPING FOR a SERVER s OPTIONS (ADD sslmode 'x')":                                                  "sslmode: is set already",
			"ALTER USER MAPPING FOR a SERVER s OPTIONS (SET password 's3cret')":                                            "password: is not set; use ADD",
			"ALTER USER MAPPING FOR a SERVER s OPTIONS (DROP nothing)":                                                     "nothing: is not set",
			"CREATE SERVER t FOREIGN DATA WRAPPER fake OPTIONS (validation_interval '1', validation_interval_seconds '1')": "which is the same",
		} {
			err := g.ApplyDDL(t.Context(), sql)
			if assert.ErrorContains(t, err, want, sql) {
				assert.NotContains(t, err.Error(), "s3cret")
				assert.NotRegexp(t, `registry: line \d+, column \d+: registry: `, err.Error())
			}
		}
		require.NoError(t, g.ApplyDDL(t.Context(), `ALTER SERVER s OPTIONS (SET host 'i', ADD max_connections '3', DROP min_connections, SET validate_on_acquire 'true');
			ALTER USER MAPPING FOR a SERVER s OPTIONS (ADD password 'p', SET user 'v', DROP sslmode)`))
		d, err := g.Definition("s")
		require.NoError(t, err)
		require.Equal(t, registry.ServerDefinition{Name: "s", Kind: "fake", MaxSize: 3, ValidateOnAcquire: true, Options: map[string]string{"host": "i"},
			Users: map[string]registry.UserMapping{"a": {User: "v", Password: "p", Options: map[string]string{}}}}, d)
		d.Options = nil
		require.ErrorContains(t, d.SetOptions(map[string]string{"validation_interval": "1", "validation_interval_seconds": "1"}), "the same")
	})
}

// Whether warm-up is on and how many it opens are two options, in any order.
func TestWarmupIsSwitchedOffAndOnAgain(t *testing.T) {
	for _, first := range []string{"warmup_on_create 'false', warmup_connections '3'", "warmup_connections '3', warmup_on_create 'false'"} {
		bubble(t, func(t *testing.T, g *rig) {
			require.NoError(t, g.ApplyDDL(t.Context(), "CREATE SERVER s FOREIGN DATA WRAPPER fake OPTIONS ("+first+", min_connections '0'); CREATE USER MAPPING FOR a SERVER s"))
			require.NoError(t, acquire(t, g, "a").Release())
			require.Equal(t, 1, g.fake("s").read(&g.fake("s").opens))
			require.NoError(t, g.ApplyDDL(t.Context(), "ALTER SERVER s OPTIONS (SET warmup_on_create 'true')"))
			d, err := g.Definition("s")
			require.NoError(t, err)
			require.Equal(t, 3, d.WarmupConnections)
			require.False(t, d.DisableWarmup)
		})
	}
}

func TestNamesOfUsersAreWhoTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		require.NoError(t, g.ApplyDDL(t.Context(), `CREATE SERVER s FOREIGN DATA WRAPPER fake OPTIONS (min_connections '0', reset_on_release 'false');
			CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (user 'everybody'); CREATE USER MAPPING FOR Ann SERVER s OPTIONS (user 'the admin')`))
		for user, want := range map[string]string{"ann": "the admin", "bob": "everybody"} {
			c := acquire(t, g, user)
			require.Equal(t, want, whoami(t, c))
			require.NoError(t, c.Release())
		}
		_, err := g.Acquire(t.Context(), "s", "Ann")
		require.ErrorIs(t, err, registry.ErrNoMapping, "she is not everybody")
		require.ErrorContains(t, err, `"ann"`)
		require.NoError(t, g.ApplyDDL(t.Context(), `CREATE USER MAPPING FOR "Ann" SERVER s OPTIONS (user 'herself')`))
		c := acquire(t, g, "Ann")
		require.Equal(t, "herself", whoami(t, c))
		require.NoError(t, c.Release())
		require.ErrorContains(t, g.ApplyDDL(t.Context(), `CREATE USER MAPPING FOR "PUBLIC" SERVER s`), "PUBLIC without quotes")
	})
}

func TestADSNSaysEachThingOnce(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgresql://a:s3cret@h/db?max_connections=5&max_connections=50": "max_connections: is there 2 times",
		"postgresql://a:s3cret@h/db?dbname=other":                         "dbname: the URL says that",
	} {
		_, err := registry.ParseDSN(dsn)
		if assert.ErrorContains(t, err, want) {
			assert.NotContains(t, err.Error(), "s3cret")
		}
	}
}

// What the users' pools would refuse is refused before anything is changed.
func TestWhatPoolsRefuseTheDefinitionRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		d := define(t, g, nil)
		require.NoError(t, acquire(t, g, "a").Release())
		d.MaxLifetime = 1
		d.MaxSize = 3
		var fault *registry.DefinitionError
		require.ErrorAs(t, g.Update(t.Context(), d), &fault)
		require.ErrorContains(t, fault, "MaxLifetime")
		st, err := g.ServerStats("s")
		require.NoError(t, err)
		require.Equal(t, 10, st.MaxSize)
	})
}

// Targets, addresses and credentials that no pool can be made of are faults of the
// definition, also where nobody's pool is made yet.
func TestWhatFlightPoolsRefuseTheDefinitionRefuses(t *testing.T) {
	r := registry.New()
	defer r.Close(t.Context()) //nolint:errcheck // nothing is connected
	type options = map[string]string
	user := registry.UserMapping{User: "ann", Password: "s3cret"}
	for want, d := range map[string]registry.ServerDefinition{
		"its scheme is none of": {Target: "gprc://h:1"},
		"has no port":           {Target: "grpc://h"},
		"MaxSize: set in the target and in the Config": {Target: "grpc://h:1?max_size=3"},
		"Auth: set in the target and in the Config":    {Target: "grpc://u:s3cret@h:1"},
		"on_exhausted would not hold":                  {Target: "grpc://h:1?on_exhausted=fail_fast"},
		"by the option exhaustion_policy":              {Target: "grpc://h:1?on_exhausted=overflow:3"},
		"by the option max_waiters":                    {Target: "grpc://h:1?max_waiters=1"},
		"by the option validate_on_acquire":            {Target: "grpc://h:1?validate_on_acquire=true"},
		"lifetime_jitter would not hold":               {Target: "grpc://h:1?lifetime_jitter=1m"},
		"guard_window would not hold":                  {Target: "grpc://h:1?guard_window=20s&max_waiters=1"},
		"has a malformed host":                         {Options: options{"host": "[::1]"}},
		"the port is not between":                      {Options: options{"port": "0"}},
		"token: there is a password too":               {Options: options{"token": "s3cret"}},
		"token: there is a user too":                   {Options: options{"token": "s3cret"}, Users: map[string]registry.UserMapping{"a": {User: "ann"}}},
		"password: there is no user":                   {Users: map[string]registry.UserMapping{"a": {Password: "s3cret"}}},
		"the user of BasicAuth must not":               {Users: map[string]registry.UserMapping{"a": {User: "a:b"}}},
		"MaxSize: -1 is less than 1":                   {Target: "grpc://h:1", MaxSize: -1},
	} {
		d.Name, d.Kind = "s", "flightsql"
		if d.Users == nil {
			d.Users = map[string]registry.UserMapping{registry.Public: user} // for whom no pool is made at first
		}
		var fault *registry.DefinitionError
		err := r.Register(t.Context(), d)
		if assert.ErrorAs(t, err, &fault, want) {
			assert.ErrorContains(t, err, want)
			assert.NotContains(t, err.Error(), "s3cret")
		}
	}
	for _, d := range []registry.ServerDefinition{
		{Target: "grpc://h:1"}, {Target: "grpc+tls://h:1?tls_insecure_skip_verify=true"}, {Options: options{"host": "::1", "tls": "on"}}, {Options: options{}},
	} {
		d.Name, d.Kind, d.Users = "s", "flightsql", map[string]registry.UserMapping{registry.Public: user}
		require.NoError(t, r.Register(t.Context(), d))
		require.NoError(t, r.Unregister(t.Context(), "s"))
	}
}

// 30 is 30 nanoseconds, and what nobody can mean.
func TestTimesWithoutAUnitAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		for name, set := range map[string]func(*registry.ServerDefinition){
			"OpenTimeout":          func(d *registry.ServerDefinition) { d.OpenTimeout = 30 },
			"QueryTimeout":         func(d *registry.ServerDefinition) { d.QueryTimeout = 30 },
			"AcquireTimeout":       func(d *registry.ServerDefinition) { d.AcquireTimeout = 30 },
			"IdleTTL":              func(d *registry.ServerDefinition) { d.IdleTTL = 30 },
			"MaxLifetime":          func(d *registry.ServerDefinition) { d.MaxLifetime = 30 },
			"UserIdleTimeout":      func(d *registry.ServerDefinition) { d.UserIdleTimeout = 30 },
			"ValidateAfter":        func(d *registry.ServerDefinition) { d.ValidateAfter = 30 },
			"HealthCheck.Timeout":  func(d *registry.ServerDefinition) { d.HealthCheck.Timeout = 30 },
			"HealthCheck.Interval": func(d *registry.ServerDefinition) { d.HealthCheck.Interval = 30 },
		} {
			d := registry.ServerDefinition{Name: "s", Kind: "fake"}
			set(&d)
			require.ErrorContains(t, g.Register(t.Context(), d), "is the unit missing?", name)
		}
	})
}
