//go:build unix

package grpcconn

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// listen accepts connections of the system's, sends each the settings of a server, and gives
// it to serve.
func listen(t *testing.T, serve func(net.Conn)) (dial func() (*Conn, chan error)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(appendSettings(nil))
			go serve(c)
		}
	}()
	return func() (*Conn, chan error) {
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		cfg, reads := testConfig(), make(chan error, 1)
		cfg.Socket = raw
		cfg.OnRead = func(_ []byte, err error) {
			if err != nil {
				reads <- err
			}
		}
		c, err := New(t.Context(), raw, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close(0) })
		return c, reads
	}
}

func TestAReadThatFailsSaysWhy(t *testing.T) {
	open := make(chan struct{}) // New would tell of a reset that it sees
	dial := listen(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(clientPreface)))
		framer := http2.NewFramer(nil, c)
		for { // a write that is reset would be told, and not the read
			if f, err := framer.ReadFrame(); err != nil || f.Header().Flags.Has(http2.FlagSettingsAck) && f.Header().Type == http2.FrameSettings {
				break
			}
		}
		<-open
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
	c, reads := dial()
	close(open)
	require.ErrorIs(t, <-reads, syscall.ECONNRESET)
	<-c.ended
	require.ErrorIs(t, c.Err(), syscall.ECONNRESET)
}

// An idle connection has one goroutine, and no buffer to read into.
func TestAnIdleConnectionIsCheap(t *testing.T) {
	const conns = 100
	dial := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	measure := func() (heap, goroutines int) {
		var m runtime.MemStats
		for range 3 { // what sync.Pool keeps goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
	}
	dial()
	settle(t)
	heap, goroutines := measure()
	for range conns {
		dial()
	}
	settle(t)
	moreHeap, moreGoroutines := measure()
	each := (moreHeap - heap) / conns
	t.Logf("%d bytes for each connection, with the peer's end", each)
	require.LessOrEqual(t, moreGoroutines-goroutines, 2*conns, "one of each end")
	require.Less(t, each, 32<<10)
}

// settle waits until goroutines that write the first frames have ended.
func settle(t *testing.T) {
	for n, same := runtime.NumGoroutine(), 0; same < 20; {
		runtime.Gosched()
		time.Sleep(time.Millisecond)
		if now := runtime.NumGoroutine(); now == n {
			same++
		} else {
			n, same = now, 0
		}
	}
	_ = t
}
