package grpcconn

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is an Observer that writes down what it hears.
type journal struct {
	mu     sync.Mutex
	events []string
	err    error

	doubtsRefusal bool
}

func (j *journal) add(event string) {
	j.mu.Lock()
	j.events = append(j.events, event)
	j.mu.Unlock()
}

func (j *journal) Begin()                { j.add("begin") }
func (j *journal) Sent()                 { j.add("sent") }
func (j *journal) BelievesRefusal() bool { return !j.doubtsRefusal }
func (j *journal) Disowned()             { j.add("disowned") }
func (j *journal) Header(metadata.MD)    { j.add("header") }
func (j *journal) Trailer(metadata.MD)   { j.add("trailer") }
func (j *journal) End(err error) {
	j.add("end")
	j.mu.Lock()
	j.err = err
	j.mu.Unlock()
}

func (j *journal) heard() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.events...)
}

type journalKey struct{}

// observed is ctx with a journal of its RPC.
func observed(ctx context.Context) (context.Context, *journal) {
	j := &journal{}
	return context.WithValue(ctx, journalKey{}, j), j
}

// testConfig has windows so small that tests fill them.
func testConfig() Config {
	return Config{
		Authority: "server:1", UserAgent: "test", MaxMessage: 1 << 20, StreamWindow: 1 << 16, ConnWindow: 1 << 17,
		Marshal: func(_ []byte, v any) ([]byte, [][]byte, error) {
			b, ok := v.([]byte)
			if !ok {
				return nil, nil, fmt.Errorf("%T is no message", v)
			}
			return b, nil, nil
		},
		Unmarshal: func(data []byte, v any) error { *v.(*[]byte) = data; return nil },
		Observe: func(ctx context.Context) Observer {
			if j, ok := ctx.Value(journalKey{}).(*journal); ok {
				return j
			}
			return &journal{}
		},
		OnRead:  func([]byte, error) {},
		OnWrite: func(int) {},
		OnEnd:   func(error) {},
	}
}

// peer is a server of HTTP/2 that a test speaks for, frame by frame.
type peer struct {
	testing.TB
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

// pair is a Conn and its peer, over a connection of memory that takes any amount.
func pair(t testing.TB, cfg Config, settings ...http2.Setting) (*Conn, *peer) {
	return pairOver(t, cfg, func(c net.Conn) net.Conn { return c }, settings...)
}

// pairOver is pair where the Conn has what wrap makes of its connection.
func pairOver(t testing.TB, cfg Config, wrap func(net.Conn) net.Conn, settings ...http2.Setting) (*Conn, *peer) {
	l := memnet.New("server:1")
	t.Cleanup(func() { _ = l.Close() })
	type accepted struct {
		conn net.Conn
		err  error
	}
	theirs := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		theirs <- accepted{c, err}
	}()
	ours, err := l.Dial(t.Context(), "")
	require.NoError(t, err)
	a := <-theirs
	require.NoError(t, a.err)
	p := &peer{TB: t, conn: a.conn, framer: http2.NewFramer(a.conn, a.conn)}
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.hpack = hpack.NewEncoder(&p.block)
	t.Cleanup(func() { _ = a.conn.Close() })
	require.NoError(t, p.framer.WriteSettings(settings...))
	c, err := New(t.Context(), wrap(ours), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(0) })
	preface := make([]byte, len(clientPreface))
	_, err = io.ReadFull(p.conn, preface)
	require.NoError(t, err)
	require.Equal(t, clientPreface, string(preface))
	return c, p
}

// next is the next frame of the client's that is of type T.
func next[T http2.Frame](p *peer) T {
	p.Helper()
	for {
		f, err := p.framer.ReadFrame()
		require.NoError(p, err)
		if f, ok := f.(T); ok {
			return f
		}
	}
}

// headers sends headers in pairs of name and value.
func (p *peer) headers(stream uint32, ends bool, fields ...string) {
	p.Helper()
	require.NoError(p, p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.encode(fields...), EndStream: ends, EndHeaders: true}))
}

func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		require.NoError(p, p.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// begin answers a stream with headers.
func (p *peer) begin(stream uint32) {
	p.Helper()
	p.headers(stream, false, ":status", "200", "content-type", "application/grpc")
}

// message sends a message in frames of at most frame bytes.
func (p *peer) message(stream uint32, data []byte, frame int) {
	p.Helper()
	whole := append([]byte{0, byte(len(data) >> 24), byte(len(data) >> 16), byte(len(data) >> 8), byte(len(data))}, data...)
	for len(whole) > 0 {
		n := min(frame, len(whole))
		require.NoError(p, p.framer.WriteData(stream, false, whole[:n]))
		whole = whole[n:]
	}
}

// end sends trailers.
func (p *peer) end(stream uint32, status string) {
	p.Helper()
	p.headers(stream, true, "grpc-status", status, "grpc-message", "as%20asked")
}

// drain reads whatever the client sends until the connection ends.
func (p *peer) drain() {
	for {
		if _, err := p.framer.ReadFrame(); err != nil {
			return
		}
	}
}

// soon is a context that ends in a time that no test should take.
func soon(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}
