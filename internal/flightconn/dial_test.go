package flightconn

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// connectProxy is an HTTP proxy that tunnels to one address, whatever it is
// asked for.
type connectProxy struct {
	url     *url.URL
	mu      sync.Mutex
	asked   []string
	auth    []string
	refuse  int // status to answer with
	working sync.WaitGroup
}

func newConnectProxy(t *testing.T, to string) *connectProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &connectProxy{url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	p.working.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.working.Go(func() { p.serve(c, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.working.Wait()
	})
	return p
}

func (p *connectProxy) serve(c net.Conn, to string) {
	defer func() { _ = c.Close() }()
	from := bufio.NewReader(c)
	req, err := http.ReadRequest(from)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, req.Method+" "+req.Host)
	p.auth = append(p.auth, req.Header.Get("Proxy-Authorization"))
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != 0 {
		_, _ = io.WriteString(c, "HTTP/1.1 "+http.StatusText(refuse)+"\r\n\r\n")
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	// The server speaks first, and part of it comes together with our answer.
	first := make([]byte, 9)
	n, _ := io.ReadFull(server, first)
	_, _ = c.Write(append([]byte("HTTP/1.1 200 OK\r\n\r\n"), first[:n]...))
	_, _ = from.Peek(1)
	go func() {
		_, _ = io.Copy(server, from)
		_ = server.Close()
	}()
	_, _ = io.Copy(c, server)
}

func realServer(t *testing.T, opts testserver.Options) *testserver.Server {
	srv, err := testserver.Start(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

// opened makes a connection with cfg that lives until the end of the test.
func opened(t *testing.T, cfg Config) (*Conn, error) {
	e, err := NewEndpoint(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	c, err := e.Open(t.Context())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*Conn), nil
}

func TestAProxyOfTheEnvironmentIsAskedToConnect(t *testing.T) {
	srv := realServer(t, testserver.Options{})
	p := newConnectProxy(t, srv.Addr())
	p.url.User = url.UserPassword("me", "hidden")
	var looked []string
	cfg := Config{Address: "db.example:443", DialTimeout: 3 * time.Second}
	cfg.proxy = func(r *http.Request) (*url.URL, error) {
		looked = append(looked, r.URL.String())
		return p.url, nil
	}
	c, err := opened(t, cfg)
	require.NoError(t, err)
	require.NoError(t, c.Ping(t.Context()))
	require.Equal(t, []string{"https://db.example:443"}, looked, "as gRPC asks")
	require.Equal(t, []string{"CONNECT db.example:443"}, p.asked, "the proxy resolves the name")
	require.Equal(t, []string{"Basic bWU6aGlkZGVu"}, p.auth)
	require.Empty(t, c.transport.peer(), "what the socket leads to is the proxy")

	p.mu.Lock()
	p.refuse = http.StatusProxyAuthRequired
	p.mu.Unlock()
	_, err = opened(t, cfg)
	require.ErrorContains(t, err, "proxy "+p.url.Host)
	require.NotContains(t, err.Error(), "hidden")
	require.Equal(t, backend.FaultTransport, failure(t, err).Fault)

	cfg.proxy = func(*http.Request) (*url.URL, error) { return url.Parse("socks5://me:hidden@127.0.0.1:1") }
	_, err = opened(t, cfg)
	require.ErrorContains(t, err, "Config.Dialer")
	require.NotContains(t, err.Error(), "hidden")
}

func TestAProxyThatDoesNotAnswerIsGivenUpInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	cfg := Config{Address: "db.example:443", DialTimeout: 200 * time.Millisecond}
	cfg.proxy = func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: l.Addr().String()}, nil }
	start := time.Now()
	_, err = opened(t, cfg)
	require.Error(t, err)
	require.Less(t, time.Since(start), 3*time.Second)
}

// TestTheEnvironmentNamesTheProxy relies on what main_test.go has put there.
func TestTheEnvironmentNamesTheProxy(t *testing.T) {
	cfg := Config{}
	proxy, err := cfg.proxyFor("db.example:443")
	require.NoError(t, err)
	require.Equal(t, os.Getenv("HTTPS_PROXY"), proxy.String())
	for _, direct := range []string{"127.0.0.1:1", "localhost:1", "db.direct.invalid:443"} {
		proxy, err = cfg.proxyFor(direct)
		require.NoError(t, err)
		require.Nil(t, proxy, direct)
	}
}

func TestADialerGetsTheDialTimeoutAndNoProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Address: "db.example:443", DialTimeout: 3 * time.Second}
		asked := 0
		cfg.proxy = func(*http.Request) (*url.URL, error) { asked++; return nil, nil }
		cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			at, ok := ctx.Deadline()
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(at), 3*time.Second, "all addresses of a name share it")
			return nil, errors.New("not today, " + addr)
		}
		_, err := opened(t, cfg)
		require.ErrorContains(t, err, "not today, db.example:443")
		require.Zero(t, asked)
	})
}

// namesAre is a resolver for which every name has these addresses.
func namesAre(addresses ...[4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go answerNames(there, addresses)
		return here, nil
	}}
}

// answerNames serves DNS over a stream, which has a length before each message.
func answerNames(c net.Conn, addresses [][4]byte) {
	defer func() { _ = c.Close() }()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	answer := append([]byte(nil), query[:end]...)
	binary.BigEndian.PutUint16(answer[2:], 0x8180) // an answer, without error
	binary.BigEndian.PutUint16(answer[6:], 0)
	binary.BigEndian.PutUint16(answer[10:], 0) // no additional records
	if query[end-3] == 1 {                     // type A
		binary.BigEndian.PutUint16(answer[6:], uint16(len(addresses)))
		for _, a := range addresses {
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, a[0], a[1], a[2], a[3])
		}
	}
	binary.BigEndian.PutUint16(size[:], uint16(len(answer)))
	_, _ = c.Write(append(size[:], answer...))
}

func TestTheAddressesOfANameAreTriedInOrderAndOneIsKept(t *testing.T) {
	first := realServer(t, testserver.Options{Listen: "127.0.0.3:0"})
	_, port, err := net.SplitHostPort(first.Addr())
	require.NoError(t, err)
	second := realServer(t, testserver.Options{Listen: "127.0.0.4:" + port})
	cfg := Config{Address: "db.direct.invalid:" + port, DialTimeout: 3 * time.Second}
	cfg.resolver = namesAre([4]byte{127, 0, 0, 2}, [4]byte{127, 0, 0, 3}, [4]byte{127, 0, 0, 4}) // nobody listens at the first
	c, err := opened(t, cfg)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.3:"+port, c.transport.peer())
	require.Equal(t, 1, first.Ledger().Snapshot().Conns)
	require.Zero(t, second.Ledger().Snapshot().Conns)

	// What is to be cancelled is where the session is, wherever the name leads
	// by now.
	c.endpoint.cfg.resolver = namesAre([4]byte{127, 0, 0, 4})
	for _, step := range c.CancelSteps(&backend.Operation{}) {
		_, _ = step.Do(t.Context())
	}
	require.Zero(t, second.Ledger().Snapshot().Conns, "the other server is not asked to cancel")
	require.Equal(t, 2, first.Ledger().Snapshot().Conns)

	require.NoError(t, first.Close())
	_, err = c.Query(t.Context(), "SELECT 1", backend.Call{})
	require.ErrorIs(t, err, backend.ErrSessionLost, "the session is not continued elsewhere")
	cfg.resolver = namesAre([4]byte{127, 0, 0, 2}, [4]byte{127, 0, 0, 3})
	_, err = opened(t, cfg)
	require.Error(t, err)
	require.True(t, strings.Contains(err.Error(), "refused"), err.Error())
}

func TestControlChannelsOfServersThatMovedAreLetGo(t *testing.T) {
	e, err := NewEndpoint(Config{Address: here})
	require.NoError(t, err)
	address := func(i int) string { return net.IPv4(10, 0, 0, byte(i)).String() + ":1" }
	use := func(i int) (*controlChannel, func()) {
		cc, done, err := e.control(address(i))
		require.NoError(t, err)
		return cc, done
	}
	first, done := use(0)
	var all []func()
	for i := range 3 * maxControls {
		cc, done := use(i + 1)
		cc.Connect() // one that is not idle goes as well
		all = append(all, done)
	}
	require.Len(t, e.mu.control, 3*maxControls+1, "all are in use")
	for _, done := range all {
		done()
	}
	require.Len(t, e.mu.control, maxControls)
	same, again := use(0)
	require.Same(t, first, same, "it was in use all the time")
	require.Contains(t, e.mu.control, address(3*maxControls), "the one used last")
	again()
	done()
	require.NoError(t, e.Close())
}

func TestWhatAProxyAnswers(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy:3128"}
	for says, want := range map[string]string{
		"HTTP/1.1 200 OK\r\n\r\nhello":                               "",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":          "",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello": "",
		"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n":         "does not connect to db:1: 407 Proxy Authentication Required",
		"HTTP/1.1 204 No Content\r\n\r\n":                            "204",
		"SSH-2.0-OpenSSH\r\n\r\n":                                    "malformed HTTP",
		"":                                                           "EOF",
	} {
		mine, its := net.Pipe()
		asked := make(chan string, 1)
		go func() {
			defer func() { _ = its.Close() }()
			req, err := http.ReadRequest(bufio.NewReader(its))
			if err != nil {
				return
			}
			asked <- req.Method + " " + req.Host
			_, _ = io.WriteString(its, says)
		}()
		conn, err := openTunnel(t.Context(), mine, proxy, "db:1")
		require.Equal(t, "CONNECT db:1", <-asked)
		if want != "" {
			require.ErrorContains(t, err, want)
		} else {
			require.NoError(t, err)
			first := make([]byte, 5)
			_, err = io.ReadFull(conn, first)
			require.NoError(t, err)
			require.Equal(t, "hello", string(first), "what came along with the answer is not lost")
		}
		_ = mine.Close()
	}
	mine, its := net.Pipe()
	_ = its.Close()
	_, err := openTunnel(t.Context(), mine, proxy, "db:1")
	require.Error(t, err, "it has hung up")

	mine, its = net.Pipe()
	go func() { // no TLS is spoken there
		_, _ = its.Read(make([]byte, 1))
		_ = its.Close()
	}()
	_, err = openTunnel(t.Context(), mine, &url.URL{Scheme: "https", Host: "proxy:3128"}, "db:1")
	require.Error(t, err)
}

func TestAnEnvironmentThatNamesNoProxySaysSo(t *testing.T) {
	bad := errors.New("invalid proxy address")
	cfg := Config{proxy: func(*http.Request) (*url.URL, error) { return nil, bad }}
	_, err := cfg.proxyFor("db:1")
	require.ErrorIs(t, err, bad)
	for scheme, ok := range map[string]bool{"http": true, "https": true, "socks5": false} {
		cfg.proxy = func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: scheme, Host: "p:1"}, nil }
		_, err = cfg.proxyFor("db:1")
		require.Equal(t, ok, err == nil, scheme)
	}
}
