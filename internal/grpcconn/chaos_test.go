package grpcconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// counting is an Observer that counts, and closes reached with the RPC of number at.
type counting struct {
	journal
	begun, ended atomic.Int64
	at           int64
	reached      chan struct{}
}

func (c *counting) Begin() {
	if c.begun.Add(1) == c.at {
		close(c.reached)
	}
}
func (c *counting) End(error) { c.ended.Add(1) }

// chaosServer answers as many messages as the first byte of a request says.
func chaosServer(opts ...grpc.ServerOption) *grpc.Server {
	opts = append(opts, grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxConcurrentStreams(20),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			var m []byte
			if err := s.RecvMsg(&m); err != nil {
				return err
			}
			for i := range int(m[0]) {
				reply := bytes.Repeat([]byte{byte(i)}, 1<<(i%18))
				if err := s.SendMsg(&reply); err != nil {
					return err
				}
			}
			return nil
		}))
	return grpc.NewServer(opts...)
}

// chaosCall makes a call that is given up sometimes. It is an error if it ends as if all were
// well before all has come.
func chaosCall(ctx context.Context, c *Conn, r *rand.Rand) error {
	ctx, stop := context.WithTimeout(ctx, time.Duration(1+r.IntN(200))*time.Millisecond)
	defer stop()
	s, err := c.NewStream(ctx, both, "/s/m")
	if err != nil {
		return nil
	}
	replies := r.IntN(40)
	request := bytes.Repeat([]byte{byte(replies)}, 1+r.IntN(1<<r.IntN(18)))
	if s.SendMsg(request) == nil {
		_ = s.CloseSend()
	}
	giveUp := r.IntN(120)
	for i := 0; ; i++ {
		if i == giveUp {
			stop()
		}
		var m []byte
		err := s.RecvMsg(&m)
		switch {
		case err == io.EOF && i < replies: //nolint:errorlint // it is io.EOF itself
			return errors.New("it ends early without an error")
		case err != nil:
			return nil
		case len(m) != 1<<(i%18) || m[0] != byte(i):
			return errors.New("another message")
		}
	}
}

// TestChaos has many call on a connection that ends meanwhile, by either side, with TLS and
// without: no result ends early as if all were well, no call ends twice or never.
func TestChaos(t *testing.T) {
	rounds := 6
	if d, err := time.ParseDuration(os.Getenv("STRESS")); err == nil {
		rounds = 6 * int(d.Seconds())
	}
	serverTLS, clientTLS := testTLS(t)
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 11))
		var opts []grpc.ServerOption
		withTLS := round%2 == 1
		if withTLS {
			opts = append(opts, grpc.Creds(credentials.NewTLS(serverTLS)))
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := chaosServer(opts...)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		cfg, conn, seen := testConfig(), raw, &counting{at: 1 + r.Int64N(300), reached: make(chan struct{})}
		cfg.Observe = func(context.Context) Observer { return seen }
		if withTLS {
			conn = tls.Client(raw, clientTLS)
		} else {
			cfg.Socket = raw
		}
		c, err := New(t.Context(), conn, cfg)
		require.NoError(t, err)
		var callers sync.WaitGroup
		for g := range 16 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
				for c.Err() == nil {
					if err := chaosCall(t.Context(), c, r); err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
				}
			})
		}
		<-seen.reached
		switch r.IntN(5) {
		case 0:
			c.Close(0)
		case 1:
			c.Close(time.Second)
		case 2:
			server.Stop()
		case 3:
			server.GracefulStop()
		default:
			_ = raw.Close()
		}
		callers.Wait()
		c.Close(0)
		server.Stop()
		serving.Wait()
		require.Equal(t, seen.begun.Load(), seen.ended.Load(), "round %d", round)
	}
}
