package dsqlgate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Gate is a running gateway. All methods are safe for concurrent use.
type Gate struct {
	opts      Options
	upstream  *pgconn.Config
	listener  net.Listener
	cert      tls.Certificate
	ca        []byte // PEM
	admission *admission

	stop       context.CancelFunc
	goroutines sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	handshaking map[net.Conn]struct{} // connections before their admission
	sessions    map[*session]struct{}
	faults      faults
	stats       Stats
}

// Start runs a gateway until Close. ctx's values are kept, not its end.
func Start(ctx context.Context, opts Options) (*Gate, error) {
	opts, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	upstream, err := pgconn.ParseConfig(opts.Upstream)
	if err != nil {
		return nil, fmt.Errorf("dsqlgate: Upstream: %w", err)
	}
	g := &Gate{opts: opts, upstream: upstream, admission: newAdmission(opts), handshaking: map[net.Conn]struct{}{}, sessions: map[*session]struct{}{}}
	g.stats.Refused = map[string]int{}
	if g.cert, g.ca, err = certificate(opts.Host); err != nil {
		return nil, fmt.Errorf("dsqlgate: certificate: %w", err)
	}
	if g.listener, err = net.Listen("tcp", opts.Listen); err != nil {
		return nil, fmt.Errorf("dsqlgate: %w", err)
	}
	ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.goroutines.Go(func() { g.accept(ctx) })
	return g, nil
}

// Addr is where the gateway listens.
func (g *Gate) Addr() string { return g.listener.Addr().String() }

// Host is the cluster's name.
func (g *Gate) Host() string { return g.opts.Host }

// CA is the certificate that signs the gateway's, in PEM.
func (g *Gate) CA() []byte { return g.ca }

// ClientTLS is a configuration that trusts the gateway.
func (g *Gate) ClientTLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(g.ca)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// Dial connects to the gateway whatever the address, as if the cluster's name
// resolved to it.
func (g *Gate) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, g.Addr())
}

// Close drops all connections and waits for the gateway's goroutines.
func (g *Gate) Close() error {
	g.mu.Lock()
	g.closed = true
	for conn := range g.handshaking {
		_ = conn.Close() // ends its handshake
	}
	g.mu.Unlock()
	err := g.listener.Close()
	g.stop()
	g.DropAll()
	g.goroutines.Wait()
	return err
}

func (g *Gate) accept(ctx context.Context) {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		g.mu.Lock()
		if g.closed {
			g.mu.Unlock()
			_ = conn.Close() // nobody is there to be told
			return
		}
		g.handshaking[conn] = struct{}{}
		g.stats.Attempts++
		g.mu.Unlock()
		g.goroutines.Go(func() { g.serve(ctx, conn) })
	}
}

// certificate makes a certificate for host that signs itself.
func certificate(host string) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "dsqlgate"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{host}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
