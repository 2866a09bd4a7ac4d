package flightconn

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// listenReal serves f on a real socket.
func listenReal(t testing.TB, f *fake, network, addr string, opts ...grpc.ServerOption) string {
	l, err := net.Listen(network, addr)
	require.NoError(t, err)
	server := grpc.NewServer(append(opts, grpc.WaitForHandlers(true))...)
	pb.RegisterFlightServiceServer(server, f)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func openReal(t testing.TB, cfg Config) (backend.Conn, error) {
	e, err := NewEndpoint(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	c, err := e.Open(t.Context())
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestTLSIsVerifiedAndAnUntrustedServerFailsTheDial(t *testing.T) {
	keys := httptest.NewTLSServer(nil) // lends a certificate for example.com and 127.0.0.1
	defer keys.Close()
	f := &fake{info: infoOf(answer(int64Schema, "0")), get: byTicket}
	addr := listenReal(t, f, "tcp", "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&keys.TLS.Certificates[0])))
	roots := x509.NewCertPool()
	roots.AddCert(keys.Certificate())

	c, err := openReal(t, Config{Address: addr, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	require.NoError(t, err)
	s, err := c.Query(t.Context(), "q", backend.Call{})
	require.NoError(t, err)
	require.Equal(t, upTo(10), values(t, s))

	_, err = openReal(t, Config{Address: addr, TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	e := failure(t, err)
	require.Equal(t, backend.StageDial, e.Stage)
	require.Equal(t, backend.FaultTransport, e.Fault)
	require.ErrorContains(t, err, "certificate")
}

func TestAUnixSocketIsAServerToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	f := &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc+unix://"+path)), get: byTicket}
	listenReal(t, f, "unix", path)
	c, err := openReal(t, Config{Network: "unix", Address: path})
	require.NoError(t, err)
	s, err := c.Query(t.Context(), "q", backend.Call{})
	require.NoError(t, err)
	require.Equal(t, upTo(10), values(t, s))
}

// BenchmarkSmallQuery compares one small result over loopback with what
// arrow-go's own client needs for it.
func BenchmarkSmallQuery(b *testing.B) {
	f := &fake{info: infoOf(answer(int64Schema, "0"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendBatches(s, 1) }
	addr := listenReal(b, f, "tcp", "127.0.0.1:0")

	b.Run("flightconn", func(b *testing.B) {
		c, err := openReal(b, Config{Address: addr})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			s, err := c.Query(b.Context(), "q", backend.Call{})
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = s.Next()
			}
			s.Close()
		}
	})
	b.Run("flightsql.Client", func(b *testing.B) {
		client, err := flightsql.NewClient(addr, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(b, err)
		defer func() { _ = client.Close() }()
		b.ReportAllocs()
		for b.Loop() {
			info, err := client.Execute(b.Context(), "q")
			if err != nil {
				b.Fatal(err)
			}
			rd, err := client.DoGet(b.Context(), info.Endpoint[0].Ticket)
			if err != nil {
				b.Fatal(err)
			}
			for rd.Next() {
			}
			rd.Release()
		}
	})
}
