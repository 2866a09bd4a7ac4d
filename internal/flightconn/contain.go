package flightconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/flightpool/flightpool/internal/callback"
)

// callUser calls what the user has put into Config, named by field, on a goroutine
// of its own and waits for it. A panic or runtime.Goexit there is an error: it is
// called on goroutines of gRPC and on those that read ahead, where the one would end
// the program and the other leave somebody waiting.
func callUser[T any](field string, f func() (T, error)) (v T, err error) {
	a := callback.RunInGoroutine(f)
	switch {
	case a.Returned:
		return a.Value, a.Err
	case a.Panicked != nil:
		return v, fmt.Errorf("%s: a callback panicked: %v", field, a.Panicked)
	default:
		return v, fmt.Errorf("%s: a callback ended its goroutine (runtime.Goexit)", field)
	}
}

// isolateTLSCallbacks is c with its callbacks called by callUser: gRPC runs the TLS
// handshake on a goroutine of its own.
func isolateTLSCallbacks(c *tls.Config) *tls.Config {
	c = c.Clone()
	if verify := c.VerifyPeerCertificate; verify != nil {
		c.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			_, err := callUser("Config.TLS.VerifyPeerCertificate", func() (struct{}, error) { return struct{}{}, verify(raw, chains) })
			return err
		}
	}
	if verify := c.VerifyConnection; verify != nil {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			_, err := callUser("Config.TLS.VerifyConnection", func() (struct{}, error) { return struct{}{}, verify(s) })
			return err
		}
	}
	if verify := c.EncryptedClientHelloRejectionVerify; verify != nil {
		c.EncryptedClientHelloRejectionVerify = func(s tls.ConnectionState) error {
			_, err := callUser("Config.TLS.EncryptedClientHelloRejectionVerify", func() (struct{}, error) { return struct{}{}, verify(s) })
			return err
		}
	}
	if get := c.GetClientCertificate; get != nil {
		c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return callUser("Config.TLS.GetClientCertificate", func() (*tls.Certificate, error) { return get(r) })
		}
	}
	return c
}
