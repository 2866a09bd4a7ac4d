package registry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// What of tls is not clearly false is TLS, also where nobody has validated it: no
// spelling sends a password in plain text.
func TestNoSpellingOfTLSIsPlainText(t *testing.T) {
	for value, scheme := range map[string]string{
		"true": "grpc+tls", "TRUE": "grpc+tls", "on": "grpc+tls", "yes": "grpc+tls", "1": "grpc+tls", "require": "grpc+tls", "verify-full": "grpc+tls", " ": "grpc+tls",
		"false": "grpc", "OFF": "grpc", "no": "grpc", "0": "grpc", "": "flightsql",
	} {
		target, _ := registry.FlightTarget(registry.ConnectParams{Options: map[string]string{"tls": value, "host": "h", "port": "1"}, User: "u", Password: "p"})
		assert.Equal(t, scheme+"://h:1", target, "tls %q", value)
	}
}

// A DSN is TLS where flightpool.New takes it for TLS: one text is not plain text here
// and TLS there.
func TestADSNIsTLSWhereThatOfAPoolIs(t *testing.T) {
	for _, dsn := range []string{"flightsql://db.example.com:1", "flightsql://127.0.0.1:1", "flightsql://localhost:1", "flightsql://[::1]:1", "flightsql://[fe80::1%25eth0]:1"} {
		want, _, err := flightpool.ParseTarget(dsn)
		require.NoError(t, err)
		d, err := registry.ParseDSN(dsn)
		require.NoError(t, err)
		target, _ := registry.FlightTarget(registry.ConnectParams{Options: d.Options})
		got, _, err := flightpool.ParseTarget(target)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// neverDriver stands for the drivers of the built-in kinds.
type neverDriver struct{}

func (neverDriver) Open(string) (driver.Conn, error) { return nil, errors.New("no") }

func init() {
	for _, name := range []string{"mysql", "sqlserver", "firebirdsql", "other"} {
		sql.Register(name, neverDriver{})
	}
}

// Every kind takes what it declares, and says what is wrong with the rest.
func TestKindsRefuseWhatTheyDoNotKnow(t *testing.T) {
	for _, c := range []struct{ server, mapping, want string }{
		{"flightsql_fdw OPTIONS (host 'h', port '1', tls 'YES', max_connections '3')", "user 'u', password 's3cret'", ""},
		{"flightsql_fdw OPTIONS (target 'grpc://h:1')", "token 's3cret'", ""},
		{"flightsql_fdw OPTIONS (host 'h', max_conections '5')", "user 'u'", "max_conections: unknown option"},
		{"flightsql_fdw OPTIONS (host 'h', sslmode 'verify-full')", "user 'u'", "sslmode: unknown option"},
		{"flightsql_fdw OPTIONS (host 'h', tls 'require')", "user 'u'", `tls: "require" is neither true nor false`},
		{"flightsql_fdw OPTIONS (host 'h', port 'x')", "user 'u'", `port: "x" is not a port`},
		{"flightsql_fdw OPTIONS (host 'h')", "pasword 's3cret'", `user "a": pasword: unknown option`},
		{"flightsql_fdw OPTIONS (host 'h', password 's3cret')", "user 'u'", "password: belongs to a user mapping"},
		{"flightsql_fdw OPTIONS (target 'grpc://h:1', tls 'true')", "user 'u'", "tls: the target says that already"},
		{"flightsql_fdw OPTIONS (host 'h', token 's3cret')", "user 'u', password 's3cret'", "token: there is a password too"},
		{"postgres_fdw OPTIONS (host 'h', dbname 'd', sslmode 'disable', application_name 'x', options '-c a.b=c')", "user 'u', password 's3cret'", ""},
		{"postgres_fdw OPTIONS (host 'h', ssl_mode 'disable')", "user 'u'", "ssl_mode: unknown option"},
		{"postgres_fdw OPTIONS (target 'postgres://h/d')", "user 'u', password 's3cret'", ""},
		{"postgres_fdw OPTIONS (target 'postgres://v:s3cret@h/d')", "", ""},
		{"postgres_fdw OPTIONS (target 'postgres://v:s3cret@h/d')", "user 'u', password 's3cret'", "it names a user, and so does the mapping"},
		{"postgres_fdw OPTIONS (target 'host=h')", "user 'u'", "not a URL"},
		{"postgres_fdw OPTIONS (target 'postgres://h/d', sslmode 'require')", "user 'u'", "sslmode: the target says that already"},
		{`mysql_fdw OPTIONS (host 'h', "parseTime" 'true')`, "user 'u'", ""},
		{"mysql_fdw OPTIONS (host 'h', parseTime 'true')", "user 'u'", `it is written "parseTime"`},
		{"mysql_fdw OPTIONS (host 'h')", "user 'u:v'", "a colon"},
		{"mssql_fdw OPTIONS (host 'h', encrypt 'strict')", "user 'u'", ""},
		{"mssql_fdw OPTIONS (host 'h', encript 'strict')", "user 'u'", "encript: unknown option"},
		{"firebird_fdw OPTIONS (host 'h', wire_crypt 'true')", "user 'u'", ""},
		{"firebird_fdw OPTIONS (host 'h', wirecrypt 'true')", "user 'u'", "wirecrypt: unknown option"},
		{"mssql_fdw OPTIONS (host 'h', driver 'other', anything 'x')", "user 'u'", ""},
	} {
		r := registry.New()
		err := r.ApplyDDL(t.Context(), "CREATE SERVER s FOREIGN DATA WRAPPER "+c.server[:len(c.server)-1]+", min_connections '0', warmup_connections '0')")
		if err == nil {
			mapping := ""
			if c.mapping != "" {
				mapping = "OPTIONS (" + c.mapping + ")"
			}
			err = r.ApplyDDL(t.Context(), "CREATE USER MAPPING FOR a SERVER s "+mapping)
		}
		if c.want == "" {
			assert.NoError(t, err, c.server)
		} else if assert.ErrorContains(t, err, c.want, c.server) {
			assert.NotContains(t, err.Error(), "s3cret")
		}
		require.NoError(t, r.Close(t.Context()))
	}
}

// A program's own kind is used whatever its name is like.
func TestAProgramsOwnKindGoesBeforeTheBuiltInOnes(t *testing.T) {
	mine := errors.New("mine")
	own := func(name string) registry.Kind {
		return registry.Kind{Name: name, Connector: func(registry.ConnectParams) (driver.Connector, error) { return nil, mine }}
	}
	for name, asked := range map[string]string{"postgres": "postgres", "MyDB": "mydb", "mydb": "MYDB", "mariadb": "MariaDB", "postgresql": "postgres_fdw"} {
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{own(name)}})
		require.NoError(t, err)
		err = r.Register(context.Background(), registry.ServerDefinition{Name: "s", Kind: asked, Users: map[string]registry.UserMapping{"a": {}}})
		assert.ErrorIs(t, err, mine, "%s for %s", name, asked)
		require.NoError(t, r.Close(t.Context()))
	}
	_, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{own("MyDB"), own("mydb")}})
	require.ErrorContains(t, err, "same name")
}
