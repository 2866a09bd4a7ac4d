package main

import (
	"context"
	"net"
	"net/url"
	"path/filepath"

	"github.com/flightpool/flightpool/flightpool"
)

// A product is a Flight SQL server of another maker: how it is started, and
// the SQL that it understands.
type product struct {
	name           string
	user, password string
	optional       bool // run on demand only, and left out of the table
	start          func(ctx context.Context, cfg config, addr, dir string) (*server, error)

	probe string   // HealthCheck.SQL; empty: the default
	setup []string // changes to make after each start

	values  string // a query for one row, without side effect
	large   string // a query for many rows
	stream  string // a query for more rows than anybody reads
	endless string // a query for one row that works for minutes
	wrong   string // a query that fails
	param   string // a query with one parameter, a number

	create string // makes the table %s with a column n of 64-bit numbers; empty: the product takes no changes

	// table is a table that exists, for calls that ask for one's keys.
	table string
}

// uri is the pool's target.
func (p *product) uri(addr string) string {
	u := url.URL{Scheme: "grpc", Host: addr}
	return u.String()
}

// pool makes a pool on the product at addr.
func (p *product) pool(ctx context.Context, addr string, cfg flightpool.Config) (*flightpool.FlightSQLPool, error) {
	cfg.HealthCheck.SQL = p.probe
	if p.user != "" {
		cfg.Auth = flightpool.BasicAuth(p.user, p.password)
	}
	return flightpool.New(ctx, p.uri(addr), cfg)
}

// products are the servers of other makers that make interop runs.
func products() []*product {
	return []*product{derby(), dazzleDuck(), roapi()}
}

// derby is the reference server of Arrow's Java implementation, on Apache
// Derby. Its endpoints name the server's own address.
func derby() *product {
	return &product{
		name:     "Arrow Java on Derby",
		optional: true,
		start:    startDerby,
		values:   "SELECT 1 AS one, 2.50 AS amount, 'zoe' AS s FROM sysibm.sysdummy1",
		probe:    "VALUES 1", // each statement that Derby refuses costs this server one of eight connections
		setup:    []string{"CREATE TABLE numbers (n BIGINT)", "INSERT INTO numbers SELECT columnnumber FROM sys.syscolumns"},
		large:    "SELECT a.n, b.n FROM numbers a, numbers b, (SELECT n FROM numbers FETCH FIRST 5 ROWS ONLY) c",
		stream:   "SELECT a.n, b.n FROM numbers a, numbers b, numbers c, numbers d",
		endless:  "SELECT COUNT(*) FROM numbers a, numbers b, numbers c, numbers d, numbers e",
		wrong:    "SELECT * FROM missing",
		param:    "SELECT COUNT(*) FROM numbers WHERE n = ?",
		create:   "CREATE TABLE %s (n BIGINT)",
		table:    "FOREIGNTABLE",
	}
}

// dazzleDuck is DazzleDuck, DuckDB behind a Java server.
func dazzleDuck() *product {
	return &product{
		name: "DazzleDuck",
		user: "admin", password: "admin",
		start:   startDazzleDuck,
		values:  "SELECT 1 AS one, 2.50::DECIMAL(9,2) AS dec, 'zoë' AS s, NULL::INTEGER AS n",
		large:   "SELECT range AS id, range * 2 AS twice FROM range(3000000)",
		stream:  "SELECT range AS id, sin(range) AS s FROM range(5000000000)",
		endless: "SELECT sum(sin(a.range * b.range)) AS s FROM range(2000000) a, range(2000000) b",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT ?::BIGINT + 1 AS n",
		create:  "CREATE TABLE %s (n BIGINT)",
		table:   "t",
	}
}

// roapi is roapi, DataFusion behind a Rust server, over read-only files.
func roapi() *product {
	return &product{
		name:    "roapi",
		start:   startROAPI,
		values:  "SELECT 1 AS one, CAST(2.50 AS DECIMAL(9,2)) AS dec, 'zoë' AS s",
		large:   "SELECT a.origin, b.destination FROM flights a CROSS JOIN (SELECT destination FROM flights LIMIT 8) b",
		stream:  "SELECT a.origin, sin(a.delay * b.delay) AS s FROM flights a CROSS JOIN (SELECT delay FROM flights LIMIT 20000) b",
		endless: "SELECT sum(sin(a.delay * b.delay)) AS s FROM flights a CROSS JOIN (SELECT delay FROM flights LIMIT 20000) b",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT $1 + 1 AS n",
		table:   "flights",
	}
}

const openNIO = "--add-opens=java.base/java.nio=ALL-UNNAMED"

func startDerby(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return startIn(ctx, dir, addr, "java", openNIO, "-cp", filepath.Join(cfg.derby, "*"),
		filepath.Join(cfg.servers, "derby", "DerbyServer.java"), host, port, dir)
}

func startDazzleDuck(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	const set = "-Ddazzleduck-server."
	return startIn(ctx, dir, addr, "java", openNIO, "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		set+"flight-sql.host="+host, set+"flight-sql.port="+port, set+"useEncryption=false", set+"warehouse="+dir,
		"-cp", filepath.Join(cfg.dazzleDuck, "*"), "io.dazzleduck.sql.flight.server.Main")
}

func startROAPI(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	http, err := freeAddr()
	if err != nil {
		return nil, err
	}
	postgres, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return startIn(ctx, dir, addr, filepath.Join(cfg.venv, "bin", "roapi"), "-a", http, "-p", postgres,
		"--addr-flight-sql", addr, "-t", "flights="+filepath.Join(cfg.data, "flights.parquet"))
}
