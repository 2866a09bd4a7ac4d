package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// demanded are servers of other makers that make interop runs with MORE=1
// only, since they take hundreds of megabytes.
func demanded() []*product { return []*product{deephaven(), benoStreamDB()} }

// onDemand is what demanded products miss without MORE=1.
func onDemand(cfg config) string {
	if cfg.more == "" {
		return "make interop MORE=1 runs it"
	}
	return ""
}

// onDemandInJava is onDemand for a server in Java that comes by pip.
func onDemandInJava(cfg config) string {
	if missing := onDemand(cfg); missing != "" {
		return missing
	}
	if _, err := exec.LookPath("java"); err != nil {
		return "it needs java"
	}
	return ""
}

// deephaven is Deephaven, whose sessions are bound to a token that it renews
// in its replies.
func deephaven() *product {
	ten := "(VALUES (1),(2),(3),(4),(5),(6),(7),(8),(9),(10)) AS "
	cross := func(n int) string {
		var tables []string
		for i := range n {
			tables = append(tables, ten+string(rune('a'+i))+"(x)")
		}
		return strings.Join(tables, ", ")
	}
	return &product{
		name:          "Deephaven",
		start:         startDeephaven,
		missing:       onDemandInJava,
		authorization: "Anonymous",
		probe:         "SELECT 1 AS n",
		values:        "SELECT 1 + 1 AS n, 'zoe' AS s",
		large:         "SELECT a.x AS n, b.x AS m FROM " + cross(6),
		endless:       "SELECT SUM(a.x * b.x) AS s FROM " + cross(9),
		wrong:         "SELECT * FROM missing",
		param:         "SELECT ? + 1 AS n",
		table:         "t",
	}
}

// benoStreamDB is BenoStreamDB, DataFusion over Iceberg behind a Rust server.
func benoStreamDB() *product {
	return &product{
		name:    "BenoStreamDB",
		start:   startBenoStreamDB,
		missing: onDemand,
		values:  "SELECT 1 AS one, CAST(2.50 AS DECIMAL(9,2)) AS dec, 'zoë' AS s",
		large:   "SELECT value AS n, value * 2 AS twice FROM generate_series(1, 2000000)",
		endless: "SELECT sum(sin(value)) AS s FROM generate_series(1, 50000000000)",
		wrong:   "SELECT * FROM missing",
		param:   "SELECT $1 + 1 AS n",
		table:   "t",
	}
}

func startDeephaven(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	args := []string{"-Xmx2g", "-XX:TieredStopAtLevel=1", "-Duser.home=" + dir,
		"-DAuthHandlers=io.deephaven.auth.AnonymousAuthenticationHandler"}
	return startIn(ctx, dir, addr, filepath.Join(cfg.more, "bin", "deephaven"), "server",
		"--host", host, "--port", port, "--no-browser", "--jvm-args", strings.Join(args, " "))
}

func startBenoStreamDB(ctx context.Context, cfg config, addr, dir string) (*server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, metricsPort, err := net.SplitHostPort(metrics)
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "BSDB_FLIGHT_BIND="+host, "BSDB_FLIGHT_PORT="+port, "BSDB_METRICS_PORT="+metricsPort,
		"BSDB_WAREHOUSE=file://"+filepath.Join(dir, "warehouse"), "BSDB_FLIGHT_MAX_ROWS=1000000000000", "HOME="+dir)
	return startWith(ctx, env, dir, addr, filepath.Join(cfg.more, "bin", "benostreamdb-flight"))
}
