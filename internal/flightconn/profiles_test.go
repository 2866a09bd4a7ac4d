package flightconn

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/backend/backendtest"
	"github.com/flightpool/flightpool/testserver"
)

// TestConformanceAgainstServersAsTheyReallyAre runs in virtual time.
func TestConformanceAgainstServersAsTheyReallyAre(t *testing.T) {
	full := backendtest.Features{
		Transactions: true, Savepoints: true, Prepared: true, UpdateCounts: true, Ingest: true, SessionOptions: true,
		ServerCancel: true, RPCCancel: true, TrustedTxIDs: true, TempTables: true, Cut: true, TxEndsWithConn: true,
	}
	without := func(off func(*backendtest.Features)) backendtest.Features {
		f := full
		off(&f)
		return f
	}
	for _, server := range []struct {
		profile testserver.Profile
		has     backendtest.Features
	}{
		{testserver.Strict(), full},
		{swanLake(), without(func(f *backendtest.Features) {
			f.Savepoints, f.UpdateCounts, f.Ingest, f.SessionOptions = false, false, false, false
			f.ServerCancel, f.RPCCancel, f.TrustedTxIDs, f.TxEndsWithConn = false, false, false, false
		})},
		{testserver.GizmoSQL(), without(func(f *backendtest.Features) {
			f.RPCCancel, f.TxEndsWithConn = false, false
		})},
		{testserver.Dremio(), without(func(f *backendtest.Features) {
			f.Transactions, f.Savepoints, f.Ingest, f.ServerCancel = false, false, false, false
		})},
		{testserver.Doris(), without(func(f *backendtest.Features) {
			f.Transactions, f.Savepoints, f.Ingest, f.ServerCancel = false, false, false, false
		})},
	} {
		t.Run(server.profile.Name, func(t *testing.T) {
			backendtest.Exercise(t, backendtest.Suite{
				Has: server.has, SQL: scripted, Bubble: true,
				Start: func(t *testing.T) backendtest.Server { return startProfile(t, server.profile) },
			})
		})
	}
}

// swanLake stores the rows of an INSERT with parameters where the suite, which
// does not name catalogs, looks for them.
func swanLake() testserver.Profile {
	p := testserver.SwanLake()
	p.AppendTo = "memory"
	return p
}

var scripted = backendtest.SQL{
	Rows:        func(n int) string { return fmt.Sprintf("SELECT * FROM generate(%d)", n) },
	Empty:       "SELECT * FROM generate(0)",
	Invalid:     "SELECT * FROM nowhere",
	Slow:        "SELECT * FROM endless('1h')",
	Create:      func(table string) string { return "CREATE TABLE " + table + " (v BIGINT)" },
	CreateTemp:  func(table string) string { return "CREATE TEMP TABLE " + table + " (v BIGINT)" },
	Insert:      func(table string, v int) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v) },
	Count:       func(table string) string { return "SELECT count(*) FROM " + table },
	Param:       "SELECT ?",
	InsertParam: func(table string) string { return "INSERT INTO " + table + " VALUES (?)" },
}

func startProfile(t *testing.T, p testserver.Profile) backendtest.Server {
	opts := testserver.Options{Profile: p, Listen: testserver.InMemory}
	if p.SessionKey == testserver.ByBearer {
		opts.Users = map[string]string{"u": "p"}
	}
	server, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	cfg := Config{Address: server.Addr(), Dialer: server.Dial}
	if opts.Users != nil {
		cfg.Basic = &UserPass{User: "u", Password: "p"}
	}
	e, err := NewEndpoint(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	ledger := server.Ledger()
	out := backendtest.Server{
		Open:       func(ctx context.Context) (backend.Conn, error) { return e.Open(ctx) },
		Cut:        func() { server.Faults().KillConns() },
		Executions: func(sql string) int { return len(ledger.Executions(sql)) },
		Started: func(ctx context.Context, n int) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Running == n })
		},
		Idle: ledger.WaitIdle,
	}
	if p.SessionTTL == 0 { // else the sessions outlive their connections
		out.Gone = func(ctx context.Context) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Sessions == 0 && now.Conns == 0 })
		}
	}
	return out
}
