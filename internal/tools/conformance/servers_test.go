//go:build duckdb_arrow

package conformance

import (
	"bufio"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/example"

	"github.com/flightpool/flightpool/backend/backendtest"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/internal/memnet"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/duckdb"
)

// startDuckDB starts a DuckDB behind a server without faults.
func startDuckDB(t *testing.T) (string, backendtest.Server) {
	srv, err := duckdb.Start(t.Context(), duckdb.Config{}, testserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	ledger := srv.Ledger()
	return srv.Addr(), backendtest.Server{
		Cut:        func() { srv.Faults().KillConns() },
		Executions: func(sql string) int { return len(ledger.Executions(sql)) },
		Started: func(ctx context.Context, n int) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Running == n })
		},
		Idle: ledger.WaitIdle,
		Gone: func(ctx context.Context) error {
			return ledger.Wait(ctx, func(now testserver.Snapshot) bool { return now.Sessions == 0 && now.Conns == 0 })
		},
	}
}

// startSQLite starts arrow-go's example server.
func startSQLite(t *testing.T) (string, backendtest.Server) {
	db, err := example.CreateDB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	sqlServer, err := example.NewSQLiteFlightSQLServer(db)
	require.NoError(t, err)
	l := listen(t)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, flightsql.NewFlightServer(sqlServer))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String(), backendtest.Server{Cut: func() { cutAll(l) }}
}

func listen(t *testing.T) *memnet.Listener {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return memnet.Over(inner)
}

func cutAll(l *memnet.Listener) {
	for _, conn := range l.Conns() {
		conn.Cut()
	}
}

// adbcServer is ADBC's test server, a program of its own. It keeps nothing, so
// that one process serves all cases.
func adbcServer(t *testing.T) func(t *testing.T) (string, backendtest.Server) {
	const pkg = "github.com/apache/arrow-adbc/go/adbc/driver/flightsql/cmd/testserver"
	program := filepath.Join(t.TempDir(), "testserver")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", program, pkg).CombinedOutput() // as make test has compiled its packages
	require.NoError(t, err, "%s", out)

	// The shell sees to it that the server does not outlive this process.
	cmd := exec.Command("sh", "-c", `"$0" -host 127.0.0.1 & server=$!; cat >/dev/null; kill $server; wait $server`, program)
	life, err := cmd.StdinPipe()
	require.NoError(t, err)
	printed, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, life.Close())
		_ = cmd.Wait() // it ends by a signal
	})
	line, err := bufio.NewReader(printed).ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line) // "... Server on 127.0.0.1:1234 ..."
	require.Contains(t, words, "on", line)
	addr := words[slices.Index(words, "on")+1]
	return func(t *testing.T) (string, backendtest.Server) { return relayed(t, addr) }
}

// relayed puts a relay before a server, so that its connections can be cut.
func relayed(t *testing.T, addr string) (string, backendtest.Server) {
	l := listen(t)
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(in, addr) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		cutAll(l)
		relays.Wait()
	})
	return l.Addr().String(), backendtest.Server{Cut: func() { cutAll(l) }}
}

// relay passes everything between a client and the server, until either ends.
func relay(in net.Conn, addr string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out) // how it ends does not matter
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}
