package flightconn

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
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

// A TLS session that is resumed shows the certificate that it was begun with, to a server
// with the same keys: a location to which no credentials go must not resume the pool's.
func TestALocationWithoutCredentialsSeesNoCertificate(t *testing.T) {
	keys := httptest.NewTLSServer(nil)
	defer keys.Close()
	roots := x509.NewCertPool()
	roots.AddCert(keys.Certificate())
	var shown atomic.Int32
	serverTLS := &tls.Config{Certificates: keys.TLS.Certificates, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	serverTLS.SetSessionTicketKeys([][32]byte{{1}})
	creds := grpc.Creds(credentials.NewTLS(serverTLS))
	place := listenReal(t, &fake{get: func(k *pb.Ticket, s pb.FlightService_DoGetServer) error {
		p, _ := peer.FromContext(s.Context())
		shown.Add(int32(len(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates)))
		return byTicket(k, s)
	}}, "tcp", "127.0.0.1:0", creds)
	own := listenReal(t, &fake{info: infoOf(at(answer(int64Schema, "0"), "grpc+tls://"+place))}, "tcp", "127.0.0.1:0", creds)
	for _, sends := range []bool{true, false} {
		shown.Store(0)
		c, err := openReal(t, Config{
			Address:   own,
			TLS:       &tls.Config{RootCAs: roots, Certificates: keys.TLS.Certificates, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
			Locations: func(*url.URL) (allow, sendCredentials bool) { return true, sends },
		})
		require.NoError(t, err)
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		require.Equal(t, upTo(10), values(t, s))
		require.Equal(t, sends, shown.Load() > 0)
	}
}
