package flightconn

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"time"

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
// are. c itself is not changed: it is the user's, who may share it with other
// clients.
//
// A Time that fails gives the year 1, in which no certificate is valid, and so
// ends the handshake. A ClientSessionCache that fails holds no session.
func isolateTLSCallbacks(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.Certificates = isolateKeys(c.Certificates)
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
			certificate, err := callUser("Config.TLS.GetClientCertificate", func() (*tls.Certificate, error) { return get(r) })
			if certificate != nil {
				certificate = &isolateKeys([]tls.Certificate{*certificate})[0]
			}
			return certificate, err
		}
	}
	if now := c.Time; now != nil {
		c.Time = func() time.Time {
			at, err := callUser("Config.TLS.Time", func() (time.Time, error) { return now(), nil })
			if err != nil {
				return time.Time{}.Add(1) // the zero time would stand for the present
			}
			return at
		}
	}
	if c.Rand != nil {
		c.Rand = isolatedIO{"Config.TLS.Rand", c.Rand, nil}
	}
	if c.KeyLogWriter != nil {
		c.KeyLogWriter = isolatedIO{"Config.TLS.KeyLogWriter", nil, c.KeyLogWriter}
	}
	if c.ClientSessionCache != nil {
		c.ClientSessionCache = isolatedSessions{c.ClientSessionCache}
	}
	return c
}

// isolatedIO is a reader or a writer of the user's; field is its name.
type isolatedIO struct {
	field string
	r     io.Reader
	w     io.Writer
}

func (i isolatedIO) Read(p []byte) (int, error) {
	return callUser(i.field, func() (int, error) { return i.r.Read(p) })
}

func (i isolatedIO) Write(p []byte) (int, error) {
	return callUser(i.field, func() (int, error) { return i.w.Write(p) })
}

// isolatedSessions is a cache of the user's. TLS 1.3 puts sessions into it while
// rows are read, on a goroutine of gRPC's.
type isolatedSessions struct{ cache tls.ClientSessionCache }

func (s isolatedSessions) Get(key string) (session *tls.ClientSessionState, ok bool) {
	session, _ = callUser("Config.TLS.ClientSessionCache", func() (*tls.ClientSessionState, error) {
		found, ok := s.cache.Get(key)
		if !ok {
			found = nil
		}
		return found, nil
	})
	return session, session != nil
}

func (s isolatedSessions) Put(key string, session *tls.ClientSessionState) {
	_, _ = callUser("Config.TLS.ClientSessionCache", func() (struct{}, error) {
		s.cache.Put(key, session)
		return struct{}{}, nil
	})
}
