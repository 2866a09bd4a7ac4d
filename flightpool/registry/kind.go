package registry

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A Kind knows how to reach one sort of server. Exactly one of Flight and
// Connector is set.
type Kind struct {
	// Name is the Kind of the definitions that it serves.
	Name string
	// Flight makes the pool of one user of a Flight SQL server, without
	// connecting: of r.Target and r.Config, over whichever backend.
	Flight func(ctx context.Context, r Reach) (*flightpool.FlightSQLPool, error)
	// Connector makes the connector of one user of a database/sql server. Where it is
	// an io.Closer, it is closed after the last of its connections.
	Connector func(r Reach) (driver.Connector, error)
	// SQL is how sessions of a database/sql server are checked and reset.
	SQL sqlconn.Kind
}

// Reach is what a Kind needs to reach a server as a user.
type Reach struct {
	Server string
	// Target is the definition's, or empty.
	Target string
	// Options are the definition's and the mapping's.
	Options map[string]string
	User    string
	// Password is secret.
	Password string
	// Config is what a Flight pool has to be made with.
	Config flightpool.Config
	// Count counts what goes over c, a socket of a database/sql driver that can be
	// given one. What no socket was counted of, the statistics do not know. Flight
	// pools count by Config.DialOptions.
	Count func(c net.Conn) net.Conn
}

// builtin are the kinds that need no packages but the driver's, which the
// program must import.
func builtin() map[string]Kind {
	kinds := map[string]Kind{}
	for _, k := range []Kind{
		{Name: "flightsql", Flight: openFlight},
		{Name: "postgresql", Connector: connector("pgx", urlDSN("postgres", "5432", pathDB)), SQL: sqlconn.PostgreSQL},
		{Name: "mysql", Connector: connector("mysql", mysqlDSN), SQL: sqlconn.MySQL},
		{Name: "mssql", Connector: connector("sqlserver", urlDSN("sqlserver", "1433", queryDB)), SQL: sqlconn.SQLServer},
		{Name: "firebird", Connector: connector("firebirdsql", firebirdDSN), SQL: sqlconn.Firebird},
	} {
		kinds[k.Name] = k
	}
	return kinds
}

// kindNames are the names of foreign data wrappers and other spellings.
var kindNames = map[string]string{
	"flightsql_fdw": "flightsql", "flight_sql": "flightsql", "arrow_flight_sql": "flightsql",
	"postgresql_fdw": "postgresql", "postgres_fdw": "postgresql", "postgres": "postgresql", "pg": "postgresql",
	"mysql_fdw": "mysql", "mariadb": "mysql", "mariadb_fdw": "mysql",
	"mssql_fdw": "mssql", "tds_fdw": "mssql", "sqlserver": "mssql",
	"firebird_fdw": "firebird", "dsql_fdw": "dsql", "aurora_dsql": "dsql",
}

// canonicalKind gives the kind that a name stands for.
func canonicalKind(name string) string {
	name = strings.ToLower(name)
	if kind, ok := kindNames[name]; ok {
		return kind
	}
	return name
}

func openFlight(ctx context.Context, r Reach) (*flightpool.FlightSQLPool, error) {
	target, cfg := FlightTarget(r)
	return flightpool.New(ctx, target, cfg)
}

// FlightTarget is what a kind of Flight SQL server gives to flightpool.New, or to
// what takes the same: Target or what the options host, port and tls make of it, and
// Config with the credentials of the option token or of User and Password.
func FlightTarget(r Reach) (string, flightpool.Config) {
	target, cfg := r.Target, r.Config
	if target == "" {
		scheme := "grpc"
		if tls := r.Options["tls"]; tls == "true" || tls == "on" {
			scheme = "grpc+tls"
		}
		target = scheme + "://" + net.JoinHostPort(option(r, "host", "localhost"), option(r, "port", "31337"))
	}
	switch {
	case r.Options["token"] != "":
		cfg.Auth = flightpool.BearerAuth(r.Options["token"])
	case r.User != "":
		cfg.Auth = flightpool.BasicAuth(r.User, r.Password)
	}
	return target, cfg
}

func option(r Reach, name, byDefault string) string {
	if v := r.Options[name]; v != "" {
		return v
	}
	return byDefault
}

// connector finds the database/sql driver of the option driver, or the default
// one, and gives it Target or what dsn makes of the options.
func connector(byDefault string, dsn func(Reach) string) func(Reach) (driver.Connector, error) {
	return func(r Reach) (driver.Connector, error) {
		name := option(r, "driver", byDefault)
		if !slices.Contains(sql.Drivers(), name) {
			return nil, fmt.Errorf("driver: the program does not import the database/sql driver %q", name)
		}
		source := r.Target
		if source == "" {
			source = dsn(r)
		}
		db, err := sql.Open(name, source)
		if err != nil {
			return nil, errors.New("target: the driver does not take it") // its words may quote the password
		}
		d := db.Driver()
		_ = db.Close() // it has opened nothing
		if dc, ok := d.(driver.DriverContext); ok {
			return dc.OpenConnector(source)
		}
		return dsnConnector{source, d}, nil
	}
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// rest are the options that are not named: the driver's own parameters.
func rest(r Reach, without ...string) url.Values {
	values := url.Values{}
	for name, v := range r.Options {
		if !slices.Contains(without, name) {
			values.Set(name, v)
		}
	}
	return values
}

var addressOptions = []string{"host", "port", "dbname", "driver"}

func pathDB(u *url.URL, db string)  { u.Path = "/" + db }
func queryDB(u *url.URL, db string) { q := u.Query(); q.Set("database", db); u.RawQuery = q.Encode() }

func urlDSN(scheme, port string, db func(*url.URL, string)) func(Reach) string {
	return func(r Reach) string {
		u := &url.URL{Scheme: scheme, Host: net.JoinHostPort(option(r, "host", "localhost"), option(r, "port", port)), RawQuery: rest(r, addressOptions...).Encode()}
		if r.User != "" {
			u.User = url.UserPassword(r.User, r.Password)
		}
		if name := r.Options["dbname"]; name != "" {
			db(u, name)
		}
		return u.String()
	}
}

func mysqlDSN(r Reach) string {
	address := "tcp(" + net.JoinHostPort(option(r, "host", "localhost"), option(r, "port", "3306")) + ")"
	if socket := r.Options["socket"]; socket != "" {
		address = "unix(" + socket + ")"
	}
	dsn := r.User + ":" + r.Password + "@" + address + "/" + url.PathEscape(r.Options["dbname"])
	if q := rest(r, append(slices.Clone(addressOptions), "socket")...); len(q) > 0 {
		dsn += "?" + q.Encode()
	}
	return dsn
}

func firebirdDSN(r Reach) string {
	u := url.URL{Host: net.JoinHostPort(option(r, "host", "localhost"), option(r, "port", "3050")), User: url.UserPassword(r.User, r.Password), Path: "/" + strings.TrimPrefix(r.Options["dbname"], "/"), RawQuery: rest(r, addressOptions...).Encode()}
	return strings.TrimPrefix(u.String(), "//")
}

// kinds are the built-in ones and the program's own, which go before.
func kinds(own []Kind) (map[string]Kind, error) {
	all := builtin()
	var faults []error
	for _, k := range own {
		if k.Name == "" || (k.Flight == nil) == (k.Connector == nil) {
			faults = append(faults, fmt.Errorf("registry: Kinds: %q needs a name and one of Flight and Connector", k.Name))
		}
		all[k.Name] = k
	}
	return maps.Clone(all), errjoin.Join(faults...)
}
