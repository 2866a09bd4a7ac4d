package flightconn

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/flightpool/flightpool/internal/callback"
)

// callUser calls what the user has put into Config, named by field, on a goroutine
// of its own and waits for it. A panic or runtime.Goexit there is an error: it is
// called on goroutines of gRPC and on those that read ahead, where the one would end
// the program and the other leave somebody waiting.
//
// field is the name that the user knows, such as Config.Dialer; the error
// begins with it. The value is that of f even beside an error.
func callUser[T any](field string, f func() (T, error)) (v T, err error) {
	err = callback.Isolate(field+": a callback", func() (err error) { v, err = f(); return err })
	return v, err
}

// isolateTLSCallbacks is c with its callbacks isolated: gRPC runs the TLS
// handshake on a goroutine of its own. Callbacks of servers are left as they
// are, and so are Time, Rand, KeyLogWriter and ClientSessionCache. c itself is
// not changed: it is the user's, who may share it with other clients.
func isolateTLSCallbacks(c *tls.Config) *tls.Config {
	c = c.Clone()
	if verify := c.VerifyPeerCertificate; verify != nil {
		c.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			return callback.Isolate("Config.TLS.VerifyPeerCertificate: a callback", func() error { return verify(raw, chains) })
		}
	}
	if verify := c.VerifyConnection; verify != nil {
		c.VerifyConnection = func(s tls.ConnectionState) error {
			return callback.Isolate("Config.TLS.VerifyConnection: a callback", func() error { return verify(s) })
		}
	}
	if verify := c.EncryptedClientHelloRejectionVerify; verify != nil {
		c.EncryptedClientHelloRejectionVerify = func(s tls.ConnectionState) error {
			return callback.Isolate("Config.TLS.EncryptedClientHelloRejectionVerify: a callback", func() error { return verify(s) })
		}
	}
	if get := c.GetClientCertificate; get != nil {
		c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return callUser("Config.TLS.GetClientCertificate", func() (*tls.Certificate, error) { return get(r) })
		}
	}
	return c
}
