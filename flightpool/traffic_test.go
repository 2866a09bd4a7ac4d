package flightpool

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/testserver"
)

// TestTrafficIsWhatGoesOverTheSockets counts beside the pool, in a proxy before the server:
// over the pool's own transport and over gRPC's client.
func TestTrafficIsWhatGoesOverTheSockets(t *testing.T) {
	for name, options := range map[string][]grpc.DialOption{"own": nil, "gRPC's": {grpc.WithUserAgent("test")}} {
		t.Run(name, func(t *testing.T) {
			srv, err := testserver.Start(testserver.Options{})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			proxy, sent, received := countingProxy(t, srv.Addr())
			var traffic Traffic
			p, err := New(t.Context(), "grpc://"+proxy, Config{Traffic: &traffic, DialOptions: options, MaxSize: 2})
			require.NoError(t, err)
			for range 20 {
				_, err = CollectRows[int64](p.Query(t.Context(), "SELECT 1"))
				require.NoError(t, err)
			}
			require.NoError(t, p.Close(t.Context()))
			const last = 300 // of the frames that were under way when an end closed, nobody knows who had them
			require.InDelta(t, sent(), traffic.Sent(), last)
			require.InDelta(t, received(), traffic.Received(), last)
			require.Greater(t, traffic.Received(), uint64(2000))
		})
	}
}

// countingProxy passes connections on to server. What it has taken is known once its
// connections have ended, for which sent and received wait.
func countingProxy(t *testing.T, server string) (addr string, sent, received func() uint64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var up, down atomic.Int64
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			copying.Add(2)
			go func() {
				defer copying.Done()
				n, _ := io.Copy(upstream, client)
				up.Add(n)
				_ = upstream.Close()
			}()
			go func() {
				defer copying.Done()
				n, _ := io.Copy(client, upstream)
				down.Add(n)
				_ = client.Close()
			}()
		}
	})
	total := func(n *atomic.Int64) func() uint64 {
		return func() uint64 {
			_ = l.Close() // a connection that the pool has given up may still come
			copying.Wait()
			return uint64(n.Load())
		}
	}
	return l.Addr().String(), total(&up), total(&down)
}
