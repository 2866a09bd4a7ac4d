package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// products are the servers of other makers that make interop runs, in the
// order of the table's columns.
func products() []*product {
	return append([]*product{arrowJava(), arrowGo(), dazzleDuck(), roapi(), sailProduct()}, demanded()...)
}

// arrowJava is the reference server of Arrow's Java implementation, on Apache
// Derby. Its endpoints name the server's own address.
func arrowJava() *product {
	return &product{
		name:    "Arrow Java on Derby",
		start:   startDerby,
		missing: needsJava(func(cfg config) string { return cfg.derby }),
		fragile: true,
		values:  "SELECT 1 AS one, 2.50 AS amount, 'zoe' AS s FROM sysibm.sysdummy1",
		probe:   "VALUES 1",
		setup:   []string{"CREATE TABLE numbers (n BIGINT)", "INSERT INTO numbers SELECT columnnumber FROM sys.syscolumns"},
		large:   "SELECT a.n, b.n FROM numbers a, numbers b, (SELECT n FROM numbers FETCH FIRST 5 ROWS ONLY) c",
		stream:  "SELECT a.n, b.n FROM numbers a, numbers b, numbers c, numbers d",
		endless: "SELECT COUNT(*) FROM numbers a, numbers b, numbers c, numbers d, numbers e",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT COUNT(*) FROM numbers WHERE n = ?",
		table:   "FOREIGNTABLE",

		paramRows: "SELECT a.n, b.n FROM numbers a, numbers b WHERE a.n + b.n > ?",
	}
}

// counted is a recursive query for the numbers from 1, as SQLite runs it.
const counted = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "

// arrowGo is the example server of Arrow's Go implementation, on SQLite.
func arrowGo() *product {
	return &product{
		name:    "Arrow Go on SQLite",
		start:   startSQLite,
		missing: needs(func(cfg config) string { return cfg.sqlite }, "the program of its server"),
		values:  "SELECT 1 AS one, 2.5 AS amount, 'zoë' AS s",
		large:   counted + "SELECT n, n * 2 AS twice FROM c LIMIT 500000",
		stream:  counted + "SELECT n, n * 2 AS twice FROM c",
		endless: counted + "SELECT count(*) AS n FROM c",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT ? + 1 AS n",
		create:  "CREATE TABLE %s (n INTEGER)",
		table:   "foreignTable",

		paramRows: counted + "SELECT n, n * 2 AS twice FROM (SELECT n FROM c LIMIT 50000) WHERE n > ?",
	}
}

// dazzleDuck is DazzleDuck, DuckDB behind a Java server.
func dazzleDuck() *product {
	return &product{
		name: "DazzleDuck",
		user: "admin", password: "admin",
		start:   startDazzleDuck,
		missing: needsJava(func(cfg config) string { return cfg.dazzleDuck }),
		values:  "SELECT 1 AS one, 2.50::DECIMAL(9,2) AS dec, 'zoë' AS s, NULL::INTEGER AS n",
		large:   "SELECT range AS id, range * 2 AS twice FROM range(3000000)",
		stream:  "SELECT range AS id, sin(range) AS s FROM range(5000000000)",
		endless: "SELECT sum(sin(a.range * b.range)) AS s FROM range(2000000) a, range(2000000) b",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT ?::BIGINT + 1 AS n",
		table:   "t",
	}
}

// roapi is roapi, DataFusion behind a Rust server, over read-only files.
func roapi() *product {
	return &product{
		name:    "roapi",
		start:   startROAPI,
		missing: needs(func(cfg config) string { return cfg.venv }, "a virtual environment"),
		values:  "SELECT 1 AS one, CAST(2.50 AS DECIMAL(9,2)) AS dec, 'zoë' AS s",
		large:   "SELECT a.origin, b.destination FROM flights a CROSS JOIN (SELECT destination FROM flights LIMIT 8) b",
		endless: "SELECT sum(sin(value)) AS s FROM generate_series(1, 50000000000)",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT $1 + 1 AS n",
		table:   "flights",
	}
}

// sailProduct is Sail, which runs Spark's SQL, by the features of the table;
// poolOnSail has checks of its own.
func sailProduct() *product {
	return &product{
		name: "Sail",
		start: func(ctx context.Context, cfg config, addr, _ string) (*server, error) {
			return startSail(ctx, cfg, addr)
		},
		missing: needs(func(cfg config) string { return cfg.venv }, "a virtual environment"),
		values:  "SELECT 1 AS one, CAST(2.50 AS DECIMAL(9,2)) AS dec, 'zoë' AS s",
		large:   "SELECT id, id * 2 AS twice FROM range(5000000)",
		stream:  "SELECT id, sin(id) AS s FROM range(5000000000)",
		endless: "SELECT sum(sin(id)) AS s FROM range(5000000000)",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT ? + 1 AS n",
		table:   "t",
	}
}

// needs makes a product's missing: path is where make interop has put it.
func needs(path func(config) string, what string) func(config) string {
	return func(cfg config) string {
		if path(cfg) == "" {
			return "it needs " + what
		}
		return ""
	}
}

func needsJava(jars func(config) string) func(config) string { return needs(jars, "java and mvn") }

const openNIO = "--add-opens=java.base/java.nio=ALL-UNNAMED"

func startDerby(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	jars := filepath.Join(cfg.derby, "*")
	if _, err := os.Stat(filepath.Join(dir, "DerbyServer.class")); err != nil {
		source := filepath.Join(cfg.servers, "derby", "DerbyServer.java")
		if out, err := command(ctx, "javac", "-cp", jars, "-d", dir, source).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("javac: %w\n%s", err, out)
		}
	}
	// It is started often, lives for seconds and need not survive its machine.
	return startIn(ctx, dir, addr, "java", openNIO, "-XX:TieredStopAtLevel=1", "-Dderby.system.durability=test",
		"-cp", jars+string(filepath.ListSeparator)+dir, "DerbyServer", host, port, dir)
}

func startSQLite(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	return startIn(ctx, dir, addr, cfg.sqlite, "-host", host, "-port", port)
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
