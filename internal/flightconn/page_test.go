package flightconn

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/internal/memnet"
)

// A proxy may put a page of HTTP in place of an answer of the server's that has done what it was
// asked: its 401 does not say that nothing was. (net/http's server keeps channels, so it is in no bubble.)
func TestAPageInPlaceOfAnAnswerIsNoWordOfTheCredential(t *testing.T) {
	for name, options := range map[string][]grpc.DialOption{"own": nil, "gRPC's": {grpc.WithReadBufferSize(1 << 14)}} {
		for _, call := range []string{"Update", "Ingest", "Commit"} {
			t.Run(name+"/"+call, func(t *testing.T) {
				l := memnet.New(here)
				defer func() { _ = l.Close() }()
				server := grpc.NewServer()
				pb.RegisterFlightServiceServer(server, &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
					return s.Send(&pb.Result{Body: pack(&pb.ActionBeginTransactionResult{TransactionId: []byte("tx")})})
				}})
				var fromNow atomic.Bool
				go serveByHTTP(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if fromNow.Load() {
						w.Header().Set("Content-Type", "text/html")
						w.WriteHeader(http.StatusUnauthorized)
						return
					}
					server.ServeHTTP(w, r)
				}))
				e, err := NewEndpoint(Config{Address: here, Dialer: network{here: l}.dial, DialOptions: options, CloseTimeout: -1})
				require.NoError(t, err)
				defer func() { _ = e.Close() }()
				c, err := e.Open(t.Context())
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				switch call {
				case "Update":
					fromNow.Store(true)
					_, err = c.Update(t.Context(), "INSERT", backend.Call{})
				case "Ingest":
					fromNow.Store(true)
					batch := int64Batch(1)
					rows, _ := array.NewRecordReader(int64Schema, slices.Repeat([]arrow.RecordBatch{batch}, 1))
					_, err = c.Ingest(t.Context(), rows, backend.IngestOptions{Table: "t"}, backend.Call{})
				case "Commit":
					var tx backend.TxID
					tx, err = c.Begin(t.Context())
					require.NoError(t, err)
					fromNow.Store(true)
					err = c.EndTx(t.Context(), tx, true)
				}
				require.Equal(t, backend.FaultAuth, failure(t, err).Fault, "%v", err)
				require.False(t, failure(t, err).Unsent, "%v", err)
			})
		}
	}
}

func serveByHTTP(l *memnet.Listener, handler http.Handler) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go (&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: handler}) //nolint:staticcheck // a connection alone is served, without a listener
	}
}

// A proxy answers by a page also where no server is behind it.
func TestAPageIsNoAnswerToAPing(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusBadGateway} {
		for name, options := range map[string][]grpc.DialOption{"own": nil, "gRPC's": {grpc.WithUserAgent("x")}} {
			l := memnet.New(here)
			server := grpc.NewServer()
			pb.RegisterFlightServiceServer(server, &fake{})
			var fromNow atomic.Bool
			go serveByHTTP(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fromNow.Load() {
					w.WriteHeader(code)
					return
				}
				server.ServeHTTP(w, r)
			}))
			e, err := NewEndpoint(Config{Address: here, Dialer: network{here: l}.dial, DialOptions: options, CloseTimeout: -1})
			require.NoError(t, err)
			c, err := e.Open(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.Ping(t.Context()))
			fromNow.Store(true)
			require.Error(t, c.Ping(t.Context()), "%s %d", name, code)
			_, err = e.Open(t.Context())
			require.Error(t, err, "%s %d", name, code)
			_ = c.Close()
			_ = e.Close()
			server.Stop()
			_ = l.Close()
		}
	}
}
