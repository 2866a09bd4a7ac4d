package adbcconn

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"

	"github.com/flightpool/flightpool/backend/backendtest"

	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/example"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/memnet"
	"github.com/flightpool/flightpool/testserver"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// full is what a server without a lack has.
var full = backendtest.Features{
	Transactions: true, Savepoints: true, Prepared: true, UpdateCounts: true, Ingest: true, SessionOptions: true,
	ServerCancel: true, RPCCancel: true, TrustedTxIDs: true, TempTables: true, Cut: true, TxEndsWithConn: true,
}

// TestOurDriverConformsOnServersAsTheyReallyAre runs in virtual time.
func TestOurDriverConformsOnServersAsTheyReallyAre(t *testing.T) {
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
				Start: func(t *testing.T) backendtest.Server {
					s := startServer(t, server.profile)
					out := s.asSuite()
					out.Open = s.ours(t).open
					return out
				},
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

// TestOurDriverConformsOnArrowsSQLiteServer runs over real sockets.
func TestOurDriverConformsOnArrowsSQLiteServer(t *testing.T) {
	backendtest.Exercise(t, backendtest.Suite{
		Has: backendtest.Features{Transactions: true, Prepared: true, UpdateCounts: true, RPCCancel: true, TrustedTxIDs: true, Cut: true},
		SQL: sqlite,
		Start: func(t *testing.T) backendtest.Server {
			addr, l := startSQLite(t)
			return backendtest.Server{
				Open: newOurs(t, flightconn.Config{Address: addr}).open,
				Cut: func() {
					for _, conn := range l.Conns() {
						conn.Cut()
					}
				},
			}
		},
	})
}

// TestForeignDriversConform runs ADBC's Flight SQL driver as if it were any
// driver, in virtual time. The pool cannot cut its transports, nor see them
// cut, and that driver ingests outside of transactions.
func TestForeignDriversConform(t *testing.T) {
	has := full
	has.Savepoints, has.SessionOptions, has.ServerCancel = false, false, false
	has.Cut, has.TxEndsWithConn, has.IngestNotInTx = false, false, true
	backendtest.Exercise(t, backendtest.Suite{
		Has: has, SQL: scripted, Bubble: true,
		Start: func(t *testing.T) backendtest.Server {
			s := startServer(t, testserver.Strict())
			out := s.asSuite()
			out.Open, out.Cut = s.foreign(t), nil
			return out
		},
	})
}

// TestForeignDriversConformOnArrowsSQLiteServer runs over real sockets.
func TestForeignDriversConformOnArrowsSQLiteServer(t *testing.T) {
	backendtest.Exercise(t, backendtest.Suite{
		Has: backendtest.Features{Transactions: true, Prepared: true, UpdateCounts: true, RPCCancel: true, TrustedTxIDs: true},
		SQL: sqlite,
		Start: func(t *testing.T) backendtest.Server {
			addr, _ := startSQLite(t)
			return backendtest.Server{Open: openForeign(flightDatabase(t, addr))}
		},
	})
}

// flightDatabase is ADBC's Flight SQL driver as a user would make it, but for
// one defect, which the race detector finds: it reads the trailers of a stream
// that was ended early while gRPC writes them. And a stream that the driver
// leaves half read must not be collected before it has ended: Arrow's client
// has a finalizer for it, which touches a channel of the bubble from outside.
func flightDatabase(t testing.TB, addr string, opts ...grpc.DialOption) adbc.Database {
	var mu sync.Mutex
	var streams []grpc.ClientStream
	opts = append(opts, grpc.WithChainStreamInterceptor(
		func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			kept := slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool {
				_, header := o.(grpc.HeaderCallOption)
				_, trailer := o.(grpc.TrailerCallOption)
				return header || trailer
			})
			stream, err := streamer(ctx, desc, cc, method, kept...)
			mu.Lock()
			defer mu.Unlock()
			streams = append(streams, stream)
			return stream, err
		}))
	db, err := flightdriver.NewDriver(memory.DefaultAllocator).NewDatabaseWithOptions(map[string]string{adbc.OptionKeyURI: "grpc://" + addr}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	return db
}

func openForeign(db adbc.Database) func(context.Context) (backend.Conn, error) {
	return func(ctx context.Context) (backend.Conn, error) { return OpenGeneric(ctx, db, GenericConfig{}) }
}

func (s server) foreign(t testing.TB) func(context.Context) (backend.Conn, error) {
	return openForeign(flightDatabase(t, "127.0.0.1:1", grpc.WithContextDialer(s.Dial)))
}

// ours is our driver on native connections to one server.
type ours struct {
	endpoint *flightconn.Endpoint
	driver   *Driver
}

func newOurs(t testing.TB, cfg flightconn.Config) *ours {
	e, err := flightconn.NewEndpoint(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	d, err := NewDriver(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return &ours{endpoint: e, driver: d}
}

func (o *ours) open(ctx context.Context) (backend.Conn, error) {
	native, err := o.endpoint.Open(ctx)
	if err != nil {
		return nil, err
	}
	return o.driver.Wrap(ctx, native)
}

// server is a test server.
type server struct{ *testserver.Server }

func startServer(t testing.TB, p testserver.Profile, change ...func(*testserver.Options)) server {
	opts := testserver.Options{Profile: p, Listen: testserver.InMemory}
	if p.SessionKey == testserver.ByBearer {
		opts.Users = map[string]string{"u": "p"}
	}
	for _, f := range change {
		f(&opts)
	}
	s, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return server{s}
}

func (s server) ours(t testing.TB) *ours {
	cfg := flightconn.Config{Address: s.Addr(), Dialer: s.Dial}
	if s.Profile().SessionKey == testserver.ByBearer {
		cfg.Basic = &flightconn.UserPass{User: "u", Password: "p"}
	}
	return newOurs(t, cfg)
}

// asSuite is the server as the suite sees it, but for Open.
func (s server) asSuite() backendtest.Server {
	ledger := s.Ledger()
	out := backendtest.Server{
		Cut:        func() { s.Faults().KillConns() },
		Executions: func(sql string) int { return len(ledger.Executions(sql)) },
		Started: func(ctx context.Context, n int) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Running == n })
		},
		Idle: ledger.WaitIdle,
	}
	if s.Profile().SessionTTL == 0 { // else the sessions outlive their connections
		out.Gone = func(ctx context.Context) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Sessions == 0 && now.Conns == 0 })
		}
	}
	return out
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

var sqlite = backendtest.SQL{
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

// startSQLite starts arrow-go's example server on a real socket.
func startSQLite(t testing.TB) (addr string, l *memnet.Listener) {
	db, err := example.CreateDB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	sqlServer, err := example.NewSQLiteFlightSQLServer(db)
	require.NoError(t, err)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l = memnet.Over(inner)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, flightsql.NewFlightServer(sqlServer))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return inner.Addr().String(), l
}
