//go:build duckdb_arrow

package conformance

import (
	"fmt"
	"testing"

	"github.com/flightpool/flightpool/backend/backendtest"
)

// server is a real server: what it can do, how it is spoken to, and how one is
// started.
type server struct {
	name string
	has  backendtest.Features
	sql  backendtest.SQL

	// prepare makes what all cases share, and returns what starts a server
	// for one of them.
	prepare func(t *testing.T) func(t *testing.T) (addr string, s backendtest.Server)
}

var servers = []server{
	{
		name: "DuckDB",
		has: backendtest.Features{
			Transactions: true, Prepared: true, UpdateCounts: true, Ingest: true, SessionOptions: true, ServerCancel: true,
			RPCCancel: true, TrustedTxIDs: true, TempTables: true, Cut: true, TxEndsWithConn: true, // but no savepoints
		},
		sql:     duckSQL,
		prepare: each(startDuckDB),
	},
	{
		name: "arrow-go's SQLite example",
		has: backendtest.Features{
			Transactions: true, Prepared: true, UpdateCounts: true, RPCCancel: true, TrustedTxIDs: true, Cut: true,
		}, // one database without sessions; a transaction outlives its connection
		sql:     sqliteSQL,
		prepare: each(startSQLite),
	},
	{
		name: "ADBC's test server",
		has: backendtest.Features{
			Canned: true, Transactions: true, Cut: true, // it confirms the end of any transaction
		},
		sql:     cannedSQL,
		prepare: adbcServer,
	},
}

func each(start func(t *testing.T) (string, backendtest.Server)) func(*testing.T) func(*testing.T) (string, backendtest.Server) {
	return func(*testing.T) func(*testing.T) (string, backendtest.Server) { return start }
}

// TestEveryBackendConformsOnEveryServer is the whole of the table.
func TestEveryBackendConformsOnEveryServer(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			start := s.prepare(t)
			for _, b := range backends {
				t.Run(b.name, func(t *testing.T) {
					has := s.has
					b.lacks(&has)
					backendtest.Exercise(t, backendtest.Suite{
						Has: has, SQL: s.sql,
						Start: func(t *testing.T) backendtest.Server {
							addr, out := start(t)
							out.Open = b.open(t, addr)
							return out
						},
					})
				})
			}
		})
	}
}

var duckSQL = backendtest.SQL{
	Rows:        func(n int) string { return fmt.Sprintf("SELECT range AS v FROM range(%d) ORDER BY range", n) },
	Empty:       "SELECT range AS v FROM range(0)",
	Invalid:     "SELECT nothing FROM nowhere",
	Slow:        "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3",
	Create:      func(table string) string { return "CREATE TABLE " + table + " (v BIGINT)" },
	CreateTemp:  func(table string) string { return "CREATE TEMP TABLE " + table + " (v BIGINT)" },
	Insert:      func(table string, v int) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v) },
	Count:       func(table string) string { return "SELECT count(*) FROM " + table },
	Param:       "SELECT ?::BIGINT",
	InsertParam: func(table string) string { return "INSERT INTO " + table + " VALUES (?)" },
}

var sqliteSQL = backendtest.SQL{
	Rows: func(n int) string {
		return fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM c WHERE n+1 < %d) SELECT n FROM c", n)
	},
	Empty:       "SELECT id FROM intTable WHERE id < 0",
	Invalid:     "SELECT nothing FROM nowhere",
	Slow:        "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c",
	Create:      func(table string) string { return "CREATE TABLE " + table + " (v INTEGER)" },
	Insert:      func(table string, v int) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v) },
	Count:       func(table string) string { return "SELECT count(*) FROM " + table },
	Param:       "SELECT ?",
	InsertParam: func(table string) string { return "INSERT INTO " + table + " VALUES (?)" },
}

// cannedSQL is never looked at.
var cannedSQL = backendtest.SQL{
	Rows:   func(n int) string { return fmt.Sprintf("%d rows", n) },
	Insert: func(table string, v int) string { return fmt.Sprintf("%d into %s", v, table) },
}
