package flightpool

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// A client certificate that the server refuses is cured by nobody who waits, and the
// pool takes the next one that the Config gives.
func TestAClientCertificateThatTheServerRefusesFailsAtOnce(t *testing.T) {
	for name, refused := range map[string]func(ca *authority) tls.Certificate{
		"expired":    func(ca *authority) tls.Certificate { return ca.issueUntil("client", time.Now()) },
		"a stranger": func(ca *authority) tls.Certificate { return newAuthority(ca.t).issue("client") },
		"none":       func(*authority) tls.Certificate { return tls.Certificate{} },
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			synctest.Test(t, func(t *testing.T) {
				ca := newAuthority(t)
				srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory, TLS: &tls.Config{
					Certificates: []tls.Certificate{ca.issue("server")}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version, //nolint:gosec // the client asks for 1.2
				}})
				require.NoError(t, err)
				var alerts atomic.Int32
				isAlert := func(err error) bool {
					var alert *net.OpError
					return errors.As(err, &alert) && alert.Op == "remote error"
				}
				var mine atomic.Pointer[tls.Certificate]
				wrong, right := refused(ca), ca.issue("client")
				mine.Store(&wrong)
				p, err := New(t.Context(), "grpc+tls://localhost:1", Config{MinIdle: -1, Dialer: srv.Dial, Hooks: Hooks{Connections: reservoir.Hooks{OpenFailed: func(err error, _ time.Duration) {
					if isAlert(err) {
						alerts.Add(1)
					}
				}}}, TLS: &tls.Config{
					RootCAs: ca.pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return mine.Load(), nil },
				}})
				require.NoError(t, err)
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				time.Sleep(time.Second)
				for n := range int32(2) { // in TLS 1.3 the alert may be lost, where the end of the socket is seen first
					_, err = firstValue(ctx, p, "SELECT 1")
					require.True(t, isAlert(err), "%s, %x: %v", name, version, err)
					synctest.Wait()
					require.Equal(t, n+1, alerts.Load(), "%s, %x: who waits is told of the first alert", name, version)
				}
				mine.Store(&right)
				_, err = firstValue(ctx, p, "SELECT 1")
				require.NoError(t, err, "%s, %x", name, version)
				require.NoError(t, p.Close(t.Context()))
				require.NoError(t, srv.Close())
			})
		}
	}
}
