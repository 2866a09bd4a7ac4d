package flightpool

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/reservoir"
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
	return a.issueUntil(name, time.Now().Add(time.Hour))
}

// issueUntil is issue with an end.
func (a *authority) issueUntil(name string, end time.Time) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
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
	plain := serve(t, testserver.Options{})
	for name, tc := range map[string]struct {
		target string
		cfg    Config
		want   string
	}{
		"unknown authority":          {target, Config{}, "^TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority$"},
		"another authority":          {target, Config{TLS: &tls.Config{RootCAs: stranger.pool}}, "^TLS handshake: tls: failed to verify certificate: x509: certificate signed by"},
		"a name it does not vouch":   {target, Config{TLS: &tls.Config{RootCAs: ca.pool, ServerName: "elsewhere"}}, "^TLS handshake: .*x509: certificate is valid for localhost, not elsewhere$"},
		"plain text to a TLS port":   {"grpc://" + srv.Addr(), Config{}, `^the server closed the connection during the handshake: plain text to a TLS port\? use grpc\+tls://$`},
		"TLS to a plain text port":   {"grpc+tls://" + plain.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool}}, `TLS to a plain text port\? use grpc://$`},
		"no client certificate":      {"grpc+tls://" + mutual.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool}}, ""},
		"a stranger's certificate":   {"grpc+tls://" + mutual.Addr(), Config{TLS: &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{stranger.issue("x")}}}, ""},
		"nobody listens there":       {"grpc://" + deadAddress(t), Config{}, "^connect: connection refused$"},
		"no such socket":             {"grpc+unix:///no/such/socket", Config{}, "^connect: no such file or directory$"},
		"a name that does not exist": {"grpc://no-such-host.invalid:1", Config{}, "^name lookup: "},
	} {
		start := time.Now()
		_, err := New(t.Context(), tc.target, tc.cfg)
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Regexp(t, tc.want, e.Err.Error(), name)
		require.Equal(t, FaultTransport, e.Fault, name)
		require.Less(t, time.Since(start), 6*time.Second, name)
		require.NotErrorIs(t, err, io.EOF, name)
		if name != "no client certificate" && name != "a stranger's certificate" { // a broken pipe names both ends
			requirePlainText(t, err, name)
		}
		if tc.cfg.TLS != nil && tc.cfg.TLS.RootCAs != ca.pool || name == "unknown authority" {
			require.ErrorAs(t, err, new(x509.UnknownAuthorityError), name)
			require.ErrorAs(t, err, new(*tls.CertificateVerificationError), name)
		}
		if tc.cfg.TLS != nil && tc.cfg.TLS.ServerName != "" {
			require.ErrorAs(t, err, new(x509.HostnameError), name)
		}

		cfg := tc.cfg // a pool that begins without a connection says the same, and once it is unhealthy, too
		cfg.MinIdle, cfg.HealthCheck.FailureThreshold = -1, 1
		p, err := New(t.Context(), tc.target, cfg)
		require.NoError(t, err)
		for range 2 {
			_, err = p.Query(t.Context(), "SELECT 1")
			require.Equal(t, FaultTransport, faultIn(err), name)
			if name != "no client certificate" && name != "a stranger's certificate" {
				requirePlainText(t, err, name)
				require.Regexp(t, strings.TrimPrefix(tc.want, "^"), err.Error(), name)
			}
		}
		require.NoError(t, p.Close(t.Context()))
	}
}

// requirePlainText requires a text that names the server once, is one line and
// says nothing of what a pool is made of.
func requirePlainText(t *testing.T, err error, about string) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e, about)
	text := err.Error()
	require.Equal(t, 1, strings.Count(text, e.Target), "%s: %s", about, text)
	require.LessOrEqual(t, strings.Count(text, "dial"), 1, "%s: %s", about, text)
	for _, no := range []string{"\n", "reservoir", "rpc error", "transport"} {
		require.NotContains(t, text, no, about)
	}
}

func TestErrorsOfAPoolSpeakOfThePool(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{}, func(r *rig) {
		pool, err := New(r.Context(), "grpc://server:1", Config{MaxSize: 1, AcquireTimeout: time.Second, Dialer: r.srv.Dial})
		require.NoError(r, err)
		s, err := pool.AcquireSession(r.Context())
		require.NoError(r, err)
		_, err = pool.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrExhausted)
		require.ErrorContains(r, err, ": acquire: pool exhausted after 1s: 1 of 1 connections, 1 in use")
		requirePlainText(r.T, err, "exhausted")
		ended, stop := context.WithCancel(r.Context())
		stop()
		err = pool.Close(ended)
		require.ErrorAs(r, err, new(*reservoir.CloseError))
		require.ErrorContains(r, err, ": close: 1 connections closed under their borrowers, 0 remain: context canceled")
		requirePlainText(r.T, err, "forced")
		_, err = pool.Query(r.Context(), "SELECT 1")
		require.ErrorIs(r, err, ErrClosed)
		require.ErrorContains(r, err, ": acquire: the pool is closed")
		requirePlainText(r.T, err, "closed")
		_ = s.Close()
	})
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
