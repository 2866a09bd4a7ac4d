package flightconn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// selfSigned is a certificate for one name that nobody vouches for.
func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestWhyThereIsNoTransportIsTypedForEveryClient speaks for the transports that
// are dialled again: those of control channels and locations.
func TestWhyThereIsNoTransportIsTypedForEveryClient(t *testing.T) {
	refused := errors.New("refused")
	is := func(err error) func(*testing.T, error) {
		return func(t *testing.T, got error) { require.ErrorIs(t, got, err) }
	}
	for name, test := range map[string]struct {
		certificate string // of the server; empty: it speaks no TLS
		noHTTP2     bool
		known       bool
		dial        error
		check       func(*testing.T, error)
		text        string
	}{
		"an unknown authority": {certificate: "server", text: "TLS handshake: tls: failed to verify certificate: x509:", check: func(t *testing.T, err error) {
			var typed x509.UnknownAuthorityError
			require.ErrorAs(t, err, &typed)
			var verification *tls.CertificateVerificationError
			require.ErrorAs(t, err, &verification)
		}},
		"another name": {certificate: "other", known: true, text: "TLS handshake: tls: failed to verify certificate: x509:", check: func(t *testing.T, err error) {
			var typed x509.HostnameError
			require.ErrorAs(t, err, &typed)
		}},
		"no HTTP/2": {certificate: "server", known: true, noHTTP2: true, text: "TLS handshake: the server does not offer HTTP/2", check: func(t *testing.T, err error) {
			require.NotContains(t, err.Error(), "grpc-go")
		}},
		"no TLS": {text: "TLS to a plain text port", check: func(t *testing.T, err error) {
			var typed tls.RecordHeaderError
			require.ErrorAs(t, err, &typed)
		}},
		"refused": {dial: refused, text: "refused", check: is(refused)},
		"no answer": {dial: context.DeadlineExceeded, text: "deadline exceeded", check: func(t *testing.T, err error) {
			require.NotErrorIs(t, err, context.DeadlineExceeded, "no call's deadline has passed")
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			certificate, pool := selfSigned(t, test.certificate)
			cfg := Config{Address: "server:1", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
			if test.known {
				cfg.TLS.RootCAs = pool
			}
			cfg.Dialer = func(context.Context, string) (net.Conn, error) {
				if test.dial != nil {
					return nil, test.dial
				}
				mine, its := net.Pipe()
				go func() {
					defer func() { _ = its.Close() }()
					if test.certificate == "" {
						go func() { _, _ = io.Copy(io.Discard, its) }()
						_, _ = its.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
						return
					}
					protocols := []string{"h2"}
					if test.noHTTP2 {
						protocols = nil
					}
					_ = tls.Server(its, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: protocols, MinVersion: tls.VersionTLS12}).Handshake()
				}()
				return mine, nil
			}
			e, err := NewEndpoint(cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, e.Close()) }()
			control, done, err := e.control("")
			require.NoError(t, err)
			defer done()
			at, err := e.cfg.resolveLocation("grpc+tls://server:2")
			require.NoError(t, err)
			l, err := e.locations.acquire(t.Context(), at)
			require.NoError(t, err, name)
			defer l.release()
			for _, c := range []*redialingClient{control.redialingClient, l.cc} {
				unary := c.Invoke(t.Context(), "/x/y", &pb.Empty{}, &pb.Empty{})
				_, streaming := c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/x/y")
				for _, err := range []error{unary, streaming} {
					require.ErrorContains(t, err, test.text, name)
					require.Equal(t, codes.Unavailable, status.Code(err), name)
					test.check(t, err)
				}
			}
		})
	}
}

// An answer is the server's even if the attempt before it has failed.
func TestAnAnswerIsNotExplainedByAFailedAttempt(t *testing.T) {
	c := &redialingClient{}
	c.recordFailure(dialError("server:1", errors.New("refused")))
	for _, err := range []error{nil, status.Error(codes.Internal, "connection error"), status.Error(codes.Unavailable, "shutting down"), errors.New("connection error")} {
		require.Equal(t, err, c.withDialError(err))
	}
	lost := status.Error(codes.Unavailable, "connection error: desc = x")
	require.EqualError(t, c.withDialError(lost), "refused")
	c.recordFailure(nil)
	require.Equal(t, lost, c.withDialError(lost), "there was a transport")
}
