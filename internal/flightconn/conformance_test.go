package flightconn

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/example"

	"github.com/flightpool/flightpool/backend"

	"github.com/flightpool/flightpool/backend/backendtest"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/flightpool/flightpool/internal/memnet"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// TestConformanceAgainstArrowsSQLiteServer runs over real sockets.
func TestConformanceAgainstArrowsSQLiteServer(t *testing.T) {
	backendtest.Exercise(t, backendtest.Suite{
		Has:   backendtest.Features{Transactions: true, Prepared: true, UpdateCounts: true, RPCCancel: true, TrustedTxIDs: true, Cut: true},
		SQL:   sqlite,
		Start: startSQLite,
	})
}

var sqlite = backendtest.SQL{
	Rows: func(n int) string {
		return fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM c WHERE n+1 < %d) SELECT n FROM c", n)
	},
	Empty:   "SELECT id FROM intTable WHERE id < 0",
	Invalid: "SELECT nothing FROM nowhere",
	Slow:    "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c",
	Create:  func(table string) string { return "CREATE TABLE " + table + " (v INTEGER)" },
	Insert:  func(table string, v int) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, v) },
	Count:   func(table string) string { return "SELECT count(*) FROM " + table },
	Param:   "SELECT ?",
	InsertParam: func(table string) string {
		return "INSERT INTO " + table + " VALUES (?)"
	},
}

func startSQLite(t *testing.T) backendtest.Server {
	db, err := example.CreateDB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	sqlServer, err := example.NewSQLiteFlightSQLServer(db)
	require.NoError(t, err)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := memnet.Over(inner)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, flightsql.NewFlightServer(sqlServer))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	e, err := NewEndpoint(Config{Address: inner.Addr().String()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return backendtest.Server{
		Open: func(ctx context.Context) (backend.Conn, error) { return e.Open(ctx) },
		Cut: func() {
			for _, conn := range l.Conns() {
				conn.Cut()
			}
		},
	}
}
