//go:build unix

package flightconn

import (
	"context"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// countingPool tells of each buffer that is given back.
type countingPool struct {
	out int
	put chan struct{}
}

func (p *countingPool) Get(n int) *[]byte {
	p.out++
	b := make([]byte, n)
	return &b
}

func (p *countingPool) Put(*[]byte) {
	p.out--
	p.put <- struct{}{}
}

// loopback is both ends of a connection.
func loopback(t *testing.T) (ours, theirs net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ours, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

func TestAReadTakesItsBufferWhenThereIsSomethingToRead(t *testing.T) {
	ours, theirs := loopback(t)
	c := &watchedConn{Conn: ours, transport: &transport{}, ready: newReadyReader(ours)}
	pool := &countingPool{put: make(chan struct{}, 10)}
	type result struct {
		text string
		err  error
	}
	results := make(chan result)
	read := func() {
		buf, n, err := c.ReadOnReady(100, pool)
		if buf == nil {
			results <- result{err: err}
			return
		}
		results <- result{string((*buf)[:n]), err}
	}
	go read()
	<-pool.put // it has found nothing, and waits without a buffer
	_, err := theirs.Write([]byte("something"))
	require.NoError(t, err)
	require.Equal(t, result{text: "something"}, <-results)
	require.Equal(t, 1, pool.out, "the caller has it")
	require.NoError(t, c.transport.Lost())
	require.NoError(t, theirs.Close())
	go read()
	require.Equal(t, result{err: io.EOF}, <-results)
	require.Equal(t, 1, pool.out)
	require.ErrorContains(t, c.transport.Lost(), "the server has closed the connection")
}

func TestAReadThatFailsSaysWhy(t *testing.T) {
	ours, theirs := loopback(t)
	c := &watchedConn{Conn: ours, transport: &transport{}, ready: newReadyReader(ours)}
	require.NoError(t, theirs.(*net.TCPConn).SetLinger(0))
	require.NoError(t, theirs.Close()) // a reset
	_, n, err := c.ReadOnReady(100, &countingPool{put: make(chan struct{}, 10)})
	require.Zero(t, n)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.ErrorIs(t, c.transport.Lost(), syscall.ECONNRESET)
}

// A small answer needs no large buffer, of which a processor's cache holds few.
func TestAReadTakesALargeBufferOnlyWhereMuchComes(t *testing.T) {
	ours, theirs := loopback(t)
	r := newReadyReader(ours)
	pool := &countingPool{}
	for i, c := range []struct{ sent, buffer int }{
		{100, smallReadBuffer}, {100, smallReadBuffer}, {smallReadBuffer, smallReadBuffer}, {100, readBuffer}, {100, smallReadBuffer},
	} {
		_, err := theirs.Write(make([]byte, c.sent))
		require.NoError(t, err)
		for got := 0; got < c.sent; {
			buf, n, err := r.read(readBuffer, pool)
			require.NoError(t, err)
			require.Equal(t, c.buffer, len(*buf), "read %d", i) //nolint:testifylint // Len prints all of it
			got += n
		}
	}
	buf, n, err := func() (*[]byte, int, error) { _, _ = theirs.Write([]byte("x")); return r.read(10, pool) }()
	require.NoError(t, err)
	require.Equal(t, 10, len(*buf), "no more than gRPC asks for")
	require.Equal(t, 1, n)
}

// TestAnIdleConnectionHoldsNoReadBuffer compares connections whose sockets gRPC may read
// when they are ready with those that hide theirs. The server's ends are alike.
func TestAnIdleConnectionHoldsNoReadBuffer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := grpc.NewServer()
	pb.RegisterFlightServiceServer(srv, &fake{})
	go func() { _ = srv.Serve(l) }()
	defer srv.Stop()
	const conns = 50
	heap := func() int {
		var m runtime.MemStats
		for range 3 { // what sync.Pool keeps goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	cost := func(dialer func(context.Context, string) (net.Conn, error)) int {
		e, err := NewEndpoint(Config{Address: l.Addr().String(), Dialer: dialer})
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		before := heap()
		for range conns {
			c, err := e.Open(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
		}
		return (heap() - before) / conns
	}
	hidden := cost(func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		return struct{ net.Conn }{conn}, err
	})
	direct := cost(nil)
	t.Logf("bytes for each connection, the server's end included: %d, hidden %d", direct, hidden)
	require.Less(t, direct, hidden-pinnedReadBuffer*3/4)
}
