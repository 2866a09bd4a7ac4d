package registry

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// A Kind knows how to reach one sort of server. Exactly one of Flight and
// Connector is set. Its functions are called on goroutines of the registry. A caller
// waits for one until its own context ends, or OpenTimeout; a panic is an error.
type Kind struct {
	// Name is the Kind of the definitions that it serves.
	Name string
	// Flight makes the pool of one user of a Flight SQL server, without
	// connecting: of r.Target and r.Config, over whichever backend.
	Flight func(ctx context.Context, r ConnectParams) (*flightpool.FlightSQLPool, error)
	// Connector makes the connector of one user of a database/sql server. Where it is
	// an io.Closer, it is closed after the last of its connections. Connections with a
	// method ExpiresAt() time.Time are replaced before that. An error of Connect that is
	// ErrExhausted says that it has waited for a permission, and nothing of the server, as does one with a
	// method NotAsked() in its chain. A
	// connector that is a Reclaimer has connections given up for others that are short.
	Connector func(r ConnectParams) (driver.Connector, error)
	// SQL is how sessions of a database/sql server are checked and reset.
	SQL sqlconn.Kind
	// Validate says what is wrong with a target, options and credentials, before
	// anything is made of them: once with the definition's own, and once for every
	// mapping. It must not connect. With a Flight, Config is what the definition says of
	// it, or empty where the definition is wrong itself. See Options. Nil: all of them
	// are taken.
	Validate func(r ConnectParams) error
}

// A Reclaimer is a connector whose connections count against a budget of its own, and that learns
// when others are short of them.
type Reclaimer interface {
	// OnReclaim registers f and returns a function that ends the registration. While others wait
	// for what f's owner has above its share, f is called as lease.NewHolder says; with math.MaxInt where all are revoked.
	OnReclaim(f func(n int) (closing int)) (stop func())
}

// ConnectParams is what a Kind needs to reach a server as a user.
type ConnectParams struct {
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
	// CountBytes counts what goes over c, a socket of a database/sql driver that can be
	// given one. What no socket was counted of, the statistics do not know. Flight
	// pools count by Config.Traffic.
	CountBytes func(c net.Conn) net.Conn
}

// builtinKinds are the kinds that need no packages but the driver's, which the program
// must import. The driver's package is looked for when a connector is made.
func builtinKinds() map[string]Kind {
	kinds := map[string]Kind{}
	for _, k := range []Kind{
		{Name: "flightsql", Flight: openFlight, Validate: ValidateFlight},
		{Name: "postgresql", Connector: sqlConnector("pgx", postgresSource), SQL: sqlconn.PostgreSQL, Validate: validateSQL("pgx", postgresOptions)},
		{Name: "mysql", Connector: sqlConnector("mysql", targetOr(mysqlDSN)), SQL: sqlconn.MySQL, Validate: validateMySQL},
		{Name: "mssql", Connector: sqlConnector("sqlserver", mssqlSource), SQL: sqlconn.SQLServer, Validate: validateSQL("sqlserver", mssqlOptions)},
		{Name: "firebird", Connector: sqlConnector("firebirdsql", targetOr(firebirdDSN)), SQL: sqlconn.Firebird, Validate: validateSQL("firebirdsql", firebirdOptions)},
	} {
		kinds[k.Name] = k
	}
	return kinds
}

// kindAliases are the names of foreign data wrappers and other spellings.
var kindAliases = map[string]string{
	"flightsql_fdw": "flightsql", "flight_sql": "flightsql", "arrow_flight_sql": "flightsql",
	"postgresql_fdw": "postgresql", "postgres_fdw": "postgresql", "postgres": "postgresql", "pg": "postgresql",
	"mysql_fdw": "mysql", "mariadb": "mysql", "mariadb_fdw": "mysql",
	"mssql_fdw": "mssql", "tds_fdw": "mssql", "sqlserver": "mssql",
	"firebird_fdw": "firebird", "dsql_fdw": "dsql", "aurora_dsql": "dsql",
}

// canonicalKind gives the built-in kind that a name stands for.
func canonicalKind(name string) string {
	name = strings.ToLower(name)
	if kind, ok := kindAliases[name]; ok {
		return kind
	}
	return name
}

// resolveKind finds a kind by its name, whatever the case, or by another spelling of a
// built-in one's. A program's own kind goes before both.
func (r *Registry) resolveKind(name string) (string, bool) {
	for _, known := range []string{r.ownKindNames[strings.ToLower(name)], canonicalKind(name)} {
		if _, ok := r.kinds[known]; ok {
			return known, true
		}
	}
	return name, false
}

func openFlight(ctx context.Context, r ConnectParams) (*flightpool.FlightSQLPool, error) {
	target, cfg := FlightTarget(r)
	return flightpool.New(ctx, target, cfg)
}

// FlightTarget is what a kind of Flight SQL server gives to flightpool.New, or to
// what takes the same: Target or what the options host, port and tls make of it, and
// Config with the credentials of the option token or of User and Password. Without the
// option tls it is TLS unless the host is a loopback address, as flightsql:// has it.
func FlightTarget(r ConnectParams) (string, flightpool.Config) {
	target, cfg := r.Target, r.Config
	if target == "" {
		u := url.URL{Scheme: "flightsql", Host: net.JoinHostPort(optionOr(r, "host", "localhost"), optionOr(r, "port", "31337"))}
		if tls := r.Options["tls"]; tls != "" {
			u.Scheme = "grpc+tls"
			if off, err := parseInvertedBool(tls); err == nil && off {
				u.Scheme = "grpc"
			}
		}
		target = u.String() // with the % of a zone encoded
	}
	switch {
	case r.Options["token"] != "":
		cfg.Auth = flightpool.BearerAuth(r.Options["token"])
	case r.User != "":
		cfg.Auth = flightpool.BasicAuth(r.User, r.Password)
	}
	return target, cfg
}

func optionOr(r ConnectParams, name, byDefault string) string {
	if v := r.Options[name]; v != "" {
		return v
	}
	return byDefault
}

// mergeKinds are the built-in ones and the program's own, which go before; folded gives
// the names of the latter by their lower case.
func mergeKinds(own []Kind) (all map[string]Kind, folded map[string]string, err error) {
	all, folded = builtinKinds(), map[string]string{}
	var faults []error
	for _, k := range own {
		if k.Name == "" || (k.Flight == nil) == (k.Connector == nil) {
			faults = append(faults, fmt.Errorf("registry: Kinds: %q needs a name and one of Flight and Connector", k.Name))
		}
		lower := strings.ToLower(k.Name)
		if other, ok := folded[lower]; ok {
			faults = append(faults, fmt.Errorf("registry: Kinds: %q and %q have the same name", other, k.Name))
		}
		all[k.Name], folded[lower] = k, k.Name
	}
	return all, folded, errjoin.Join(faults...)
}
