package kinds_test

import (
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// pgx reads what a definition and a mapping say as they say it: its URLs are libpq's, where
// a plus is no blank and a host may be a directory.
func TestPgxReadsWhatTheOptionsSay(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"blanks and separators":  {"host": "db", "options": "-c statement_timeout=5s -c search_path=a+b;c&d%20", "application_name": "night + day"},
		"a directory of sockets": {"host": "/var/run/postgresql", "dbname": "a b"},
		"several hosts":          {"host": "db1,db2", "port": "5433"},
		"an address":             {"host": "::1"},
	} {
		for _, password := range []string{"", "p w+%&=;:@/?#[]é'\\"} {
			t.Run(name, func(t *testing.T) {
				with := maps.Clone(options)
				with["sslmode"] = "disable"
				source, err := registry.PostgreSQLTarget(registry.ConnectParams{User: "an n@+", Password: password, Options: with})
				require.NoError(t, err)
				cfg, err := pgx.ParseConfig(source)
				require.NoError(t, err)
				require.Equal(t, "an n@+", cfg.User)
				require.Equal(t, password, cfg.Password)
				require.Equal(t, options["dbname"], cfg.Database)
				hosts := cfg.Host
				for _, f := range cfg.Fallbacks {
					hosts += "," + f.Host
				}
				require.Equal(t, options["host"], hosts)
				for _, setting := range []string{"options", "application_name"} {
					require.Equal(t, options[setting], cfg.RuntimeParams[setting])
				}
			})
		}
	}
}

// What pgx does not take of a target is not dropped: a sslmode that is would have the password
// sent in plain text.
func TestNothingOfATargetIsDropped(t *testing.T) {
	for _, c := range []struct {
		target string
		takes  bool
	}{
		{"postgres://db/?sslmode=verify-full;", false},
		{"postgres://db/?sslmode=verify-full;application_name=x", false},
		{"postgres://db/?sslmode=verify-ful%6", false},
		{"postgres://db/?sslmode", false},
		{"postgres://db/?options=-c%20a%3Db;c&sslmode=verify-full", true},
		{"postgres://db/?options=-c%20a%3Db+c&sslmode=verify-full&", true},
		{"postgres://db1:5432,db2:5433/x?sslmode=verify-full", true},
		{"postgres://db?", true},
		{"postgres://db", true},
	} {
		t.Run(c.target, func(t *testing.T) {
			_, wantErr := pgx.ParseConfig(c.target)
			require.Equal(t, c.takes, wantErr == nil)
			want, _ := pgx.ParseConfig(c.target)
			source, err := registry.PostgreSQLTarget(registry.ConnectParams{Target: c.target, User: "ann", Password: "hers"})
			require.NoError(t, err)
			got, err := pgx.ParseConfig(source)
			require.Equal(t, c.takes, err == nil, "%s: %v", source, err)
			if c.takes {
				require.Equal(t, want.RuntimeParams, got.RuntimeParams)
				require.Equal(t, want.Host, got.Host)
				require.Equal(t, len(want.Fallbacks), len(got.Fallbacks))
				require.Equal(t, want.TLSConfig == nil, got.TLSConfig == nil)
			}
		})
	}
}

// A driver takes parameters that package url drops: they would be in place of the mapping's.
func TestATargetThatNamesAUserTakesNoOther(t *testing.T) {
	for _, query := range []string{"user=x", "user=x;y", "us%65r=x", "password=x;y", "sslmode=disable&password=x"} {
		_, err := registry.PostgreSQLTarget(registry.ConnectParams{Target: "postgres://db/?" + query, User: "ann", Password: "hers"})
		require.ErrorContains(t, err, "it names a user", query)
	}
}
