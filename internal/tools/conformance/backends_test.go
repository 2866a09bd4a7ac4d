//go:build duckdb_arrow

package conformance

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"

	"github.com/flightpool/flightpool/backend/backendtest"

	flightdriver "github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/internal/adbcconn"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

type open func(context.Context) (backend.Conn, error)

// backendUnderTest is a way to make a backend.Conn.
type backendUnderTest struct {
	name string
	open func(t *testing.T, addr string) open

	// lacks takes away from a server's features what the backend does not have.
	lacks func(*backendtest.Features)
}

var backends = []backendUnderTest{
	{"native", native, func(*backendtest.Features) {}},
	{"ADBC's driver on our transports", wrapped, func(*backendtest.Features) {}},
	{"ADBC's driver as a foreign one", foreign, func(f *backendtest.Features) {
		f.Savepoints, f.SessionOptions, f.ServerCancel = false, false, false // not in ADBC
		f.Cut, f.TxEndsWithConn = false, false                               // it dials again unseen
		f.IngestNotInTx = f.Ingest && f.Transactions                         // its own is outside of transactions
		f.TrustedTxIDs = true                                                // the connection itself knows them
	}},
}

func native(t *testing.T, addr string) open {
	e, err := flightconn.NewEndpoint(flightconn.Config{Address: addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return func(ctx context.Context) (backend.Conn, error) { return e.Open(ctx) }
}

func wrapped(t *testing.T, addr string) open {
	e, err := flightconn.NewEndpoint(flightconn.Config{Address: addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	d, err := adbcconn.NewDriver(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return func(ctx context.Context) (backend.Conn, error) {
		conn, err := e.Open(ctx)
		if err != nil {
			return nil, err
		}
		return d.Wrap(ctx, conn)
	}
}

func foreign(t *testing.T, addr string) open {
	db := flightDriver(t, addr)
	return func(ctx context.Context) (backend.Conn, error) {
		return adbcconn.OpenGeneric(ctx, db, adbcconn.GenericConfig{})
	}
}

// flightDriver is ADBC's driver as a user would make it, but for one defect, which
// the race detector finds: it reads the trailers of a stream that was ended early
// while gRPC writes them.
func flightDriver(t *testing.T, addr string) adbc.Database {
	noTrailers := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		kept := slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool {
			_, header := o.(grpc.HeaderCallOption)
			_, trailer := o.(grpc.TrailerCallOption)
			return header || trailer
		})
		return streamer(ctx, desc, cc, method, kept...)
	}
	db, err := flightdriver.NewDriver(memory.DefaultAllocator).NewDatabaseWithOptions(
		map[string]string{adbc.OptionKeyURI: "grpc://" + addr}, grpc.WithChainStreamInterceptor(noTrailers))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.(adbc.DatabaseLogging).SetLogger(slog.New(slog.DiscardHandler))
	return db
}
