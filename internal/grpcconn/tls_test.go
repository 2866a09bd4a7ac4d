package grpcconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// testTLS is the configuration of a server and of a client that trusts it.
func testTLS(t testing.TB) (server, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"server"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"}},
		&tls.Config{RootCAs: pool, ServerName: "server", NextProtos: []string{"h2"}}
}

// serveTLS answers every call on a connection by a message of size bytes.
func serveTLS(t testing.TB, c net.Conn, size int) {
	p := &peer{TB: t, framer: http2.NewFramer(c, c)}
	p.hpack = hpack.NewEncoder(&p.block)
	_, _ = io.ReadFull(c, make([]byte, len(clientPreface)))
	_ = p.framer.WriteSettings()
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			id := d.StreamID
			p.begin(id)
			for whole := append([]byte{0, 0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...); len(whole) > 0; {
				n := min(len(whole), 1<<14)
				_ = p.framer.WriteData(id, false, whole[:n])
				whole = whole[n:]
			}
			p.end(id, "0")
		}
	}
}

// A TLS connection that has received something holds hardly any memory while it is idle.
func TestAnIdleTLSConnectionIsCheap(t *testing.T) {
	const conns = 50
	serverTLS, clientTLS := testTLS(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveTLS(t, tls.Server(c, serverTLS), 40_000)
		}
	}()
	heap := func() int {
		var m runtime.MemStats
		for range 3 { // what sync.Pool keeps goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	dial := func(use bool) io.Closer {
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		secure := tls.Client(raw, clientTLS)
		require.NoError(t, secure.Handshake())
		if !use {
			return secure
		}
		c, err := New(t.Context(), secure, testConfig())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close(0) })
		var reply []byte
		require.NoError(t, c.Invoke(soon(t), "/s/m", []byte("q"), &reply))
		require.Len(t, reply, 40_000)
		return secure
	}
	_ = dial(true)
	var open []io.Closer
	settle(t)
	before := heap()
	for range conns {
		open = append(open, dial(true))
	}
	settle(t)
	each := (heap() - before) / conns
	t.Logf("%d bytes for each connection, with the peer's end", each)
	require.Less(t, each, 64<<10)
	runtime.KeepAlive(open)
}
