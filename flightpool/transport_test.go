package flightpool

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/testserver"
)

// authority is a certificate authority of the test's own.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{t, cert, key, pool}
}

// issue makes a certificate for 127.0.0.1 and localhost.
func (a *authority) issue(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func serve(t *testing.T, opts testserver.Options) *testserver.Server {
	srv, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

// works proves a pool and closes it.
func works(t *testing.T, target string, cfg Config) {
	t.Helper()
	p, err := New(t.Context(), target, cfg)
	require.NoError(t, err, target)
	v, err := firstValue(t.Context(), p, "SELECT 1")
	require.NoError(t, err)
	require.Equal(t, "1", v)
	require.NoError(t, p.Close(t.Context()))
}

func TestTLSChecksTheServerAndMutualTLSTheClient(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	srv := serve(t, testserver.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{ca.issue("server")}, ClientCAs: ca.pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}})
	target := "grpc+tls://" + srv.Addr()
	works(t, target, Config{TLS: &tls.Config{RootCAs: ca.pool}})
	works(t, target, Config{TLS: &tls.Config{RootCAs: ca.pool, ServerName: "localhost"}})
	works(t, target+"/?tls_insecure_skip_verify=true", Config{})

	mutual := serve(t, testserver.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{ca.issue("server")}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}})
	works(t, "grpc+tls://"+mutual.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue("client")}}})

	// In TLS 1.3 a server judges the client's certificate after the handshake,
	// so its words may be lost behind a broken pipe.
	for name, tc := range map[string]struct {
		target string
		cfg    Config
		want   string
	}{
		"unknown authority":          {target, Config{}, "certificate"},
		"another authority":          {target, Config{TLS: &tls.Config{RootCAs: stranger.pool}}, "certificate"},
		"plain text to a TLS port":   {"grpc://" + srv.Addr(), Config{}, ""},
		"no client certificate":      {"grpc+tls://" + mutual.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool}}, ""},
		"a stranger's certificate":   {"grpc+tls://" + mutual.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{stranger.issue("x")}}}, ""},
		"a name it does not vouch":   {target, Config{TLS: &tls.Config{RootCAs: ca.pool, ServerName: "elsewhere"}}, "elsewhere"},
		"TLS to a plain text port":   {"grpc+tls://" + serve(t, testserver.Options{}).Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool}}, "tls"},
		"nobody listens there":       {"grpc://" + deadAddress(t), Config{}, "refused"},
		"a name that does not exist": {"grpc://no-such-host.invalid:1", Config{}, "no-such-host"},
	} {
		start := time.Now()
		_, err := New(t.Context(), tc.target, tc.cfg)
		require.ErrorContains(t, err, tc.want, name)
		require.Equal(t, FaultTransport, faultIn(err), name)
		require.Less(t, time.Since(start), 6*time.Second, name)
	}
}

// deadAddress is where nobody listens any more.
func deadAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func TestUnixSocketsAndHeaders(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, testserver.Options{Listen: "unix:" + socket})
	works(t, "grpc+unix://"+socket, Config{Headers: metadata.Pairs("x-tenant", "a")})
}

func TestNoSocketIsLeftAfterManyPools(t *testing.T) {
	srv := serve(t, testserver.Options{})
	for range 20 {
		works(t, "grpc://"+srv.Addr(), Config{MaxSize: 4, MinIdle: 4})
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	require.NoError(t, srv.Ledger().Wait(ctx, func(s testserver.Snapshot) bool { return s.Conns == 0 && s.Sessions == 0 }))
}
