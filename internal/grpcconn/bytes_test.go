package grpcconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// conversation is what a server sends of one call, behind its settings, as bytes.
func conversation(t testing.TB) []byte {
	var out bytes.Buffer
	p := &peer{TB: t, framer: http2.NewFramer(&out, nil)}
	p.hpack = hpack.NewEncoder(&p.block)
	require.NoError(t, p.framer.WriteWindowUpdate(0, 1000))
	p.headers(1, false, ":status", "200", "content-type", "application/grpc", "set-cookie", "a=b")
	p.message(1, []byte("one"), 2)
	require.NoError(t, p.framer.WritePing(false, [8]byte{1}))
	require.NoError(t, p.framer.WriteDataPadded(1, false, []byte("\x00\x00\x00\x00\x03two"), make([]byte, 7)))
	p.message(1, nil, 100)
	block := p.encode("grpc-status", "0", "x", "y")
	require.NoError(t, p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:2], EndStream: true}))
	require.NoError(t, p.framer.WriteContinuation(1, true, block[2:]))
	return out.Bytes()
}

// answered has a server answer a call by bytes, in pieces of at most piece bytes, and end the
// connection. It is what the client received, how that ended, and what was heard of it.
func answered(t testing.TB, data []byte, piece int) (messages, heard []string, end error) {
	ours, theirs := net.Pipe()
	called := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() {
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write(appendSettings(nil))
		<-called
		for len(data) > 0 {
			n := min(piece, len(data))
			if _, err := theirs.Write(data[:n]); err != nil {
				break
			}
			data = data[n:]
		}
		_ = theirs.Close()
	})
	defer serving.Wait()
	c, err := New(t.Context(), ours, testConfig())
	require.NoError(t, err)
	defer c.Close(0)
	ctx, j := observed(t.Context())
	s, err := c.NewStream(ctx, streaming, "/s/m")
	require.NoError(t, err)
	require.NoError(t, s.SendMsg([]byte("q")))
	close(called)
	for err == nil {
		var m []byte
		if err = s.RecvMsg(&m); err == nil {
			messages = append(messages, string(m))
		}
	}
	return messages, j.heard(), err
}

// A result whose bytes end anywhere before the end ends with an error.
func TestTheBytesOfAnAnswerAreCutAnywhere(t *testing.T) {
	whole := conversation(t)
	for _, piece := range []int{1, 3, len(whole)} {
		for n := range len(whole) + 1 {
			synctest.Test(t, func(t *testing.T) {
				messages, heard, end := answered(t, whole[:n], piece)
				require.True(t, slices.Equal(messages, []string{"one", "two", ""}[:len(messages)]), "%q", messages)
				if n == len(whole) {
					require.Equal(t, io.EOF, end)
					require.Len(t, messages, 3)
					require.Contains(t, heard, "trailer")
					return
				}
				require.Equal(t, codes.Unavailable, status.Code(end), "%d bytes: %v", n, end)
				require.NotContains(t, heard, "trailer")
				require.Equal(t, "end", heard[len(heard)-1])
			})
		}
	}
}

// Whatever a server sends, the client neither panics nor hangs, and tells of an end but once.
func FuzzAServersBytes(f *testing.F) {
	whole := conversation(f)
	f.Add(whole, uint8(0))
	f.Add(append(appendGoAway(nil, 0, codeNone), whole...), uint8(7))
	f.Add(append(appendReset(nil, 1, codeRefusedStream), whole...), uint8(9))
	f.Add(appendSettings(nil, setting{settingInitialWindow, 1 << 31}, setting{settingMaxFrame, 1}), uint8(1))
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		damaged := bytes.Clone(whole)
		for range 1 + r.IntN(4) {
			damaged[r.IntN(len(damaged))] = byte(r.Uint32())
		}
		f.Add(damaged, uint8(r.IntN(256)))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		synctest.Test(t, func(t *testing.T) {
			_, heard, end := answered(t, data, 1+int(piece))
			require.Error(t, end)
			ends := 0
			for _, event := range heard {
				if event == "end" {
					ends++
				}
			}
			require.Equal(t, 1, ends, "%q", heard)
		})
	})
}

// Breaches of the protocol end the connection, and those of a window the stream at least.
func TestBreaches(t *testing.T) {
	long := bytes.Repeat([]byte{'x'}, 1<<14)
	for name, test := range map[string]struct {
		breach func(p *peer)
		want   string
	}{
		"DATA of the peer's own":  {func(p *peer) { _ = p.framer.WriteData(2, false, nil) }, "not begun"},
		"HEADERS of no stream":    {func(p *peer) { p.headers(7, false, ":status", "200") }, "not begun"},
		"RST_STREAM of no stream": {func(p *peer) { _ = p.framer.WriteRSTStream(9, 0) }, "not begun"},
		"a push": {func(p *peer) {
			_ = p.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, "PUSH_PROMISE"},
		"CONTINUATION alone":     {func(p *peer) { _ = p.framer.WriteContinuation(1, true, nil) }, "CONTINUATION"},
		"headers without an end": {func(p *peer) { p.unended(1); _ = p.framer.WritePing(false, [8]byte{}) }, "without an end"},
		"headers that never end": {func(p *peer) {
			p.unended(1)
			for range maxHeaderList/len(long) + 1 {
				_ = p.framer.WriteContinuation(1, false, long)
			}
		}, "without an end"},
		"a block that is none": {func(p *peer) {
			_ = p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, "headers"},
		"a window of too much": {func(p *peer) { _ = p.framer.WriteWindowUpdate(0, 1<<31-1) }, "too much"},
		"a first window of too much": {func(p *peer) {
			_ = p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})
		}, "window"},
		"frames of no size":        {func(p *peer) { _ = p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }, "at most 1 bytes"},
		"a frame that is too long": {func(p *peer) { _, _ = p.conn.Write(appendFrameHeader(nil, 1<<24-1, frameData, 0, 1)) }, "a frame of"},
		"SETTINGS of three bytes":  {func(p *peer) { _, _ = p.conn.Write(append(appendFrameHeader(nil, 3, frameSettings, 0, 0), 1, 2, 3)) }, "SETTINGS"},
		"padding without a length": {func(p *peer) { p.begin(1); _, _ = p.conn.Write(appendFrameHeader(nil, 0, frameData, flagPadded, 1)) }, "padding"},
		"padding beyond its frame": {func(p *peer) {
			p.begin(1)
			_, _ = p.conn.Write(append(appendFrameHeader(nil, 2, frameData, flagPadded, 1), 2, 0))
		}, "padding"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				p.framer.AllowIllegalWrites = true
				first, second := invoke(soon(t), c, nil), invoke(soon(t), c, nil)
				next[*http2.MetaHeadersFrame](p)
				next[*http2.MetaHeadersFrame](p)
				go p.drain()
				test.breach(p)
				<-first.done
				<-second.done
				require.Equal(t, codes.Unavailable, status.Code(first.err))
				require.ErrorContains(t, c.Err(), test.want)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		s, err := c.NewStream(soon(t), streaming, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte{}))
		next[*http2.MetaHeadersFrame](p)
		p.begin(1)
		for range 5 {
			require.NoError(t, p.framer.WriteData(1, false, append([]byte{0, 0, 0, 0x3f, 0xfb}, long[:1<<14-5]...)))
		}
		require.Equal(t, http2.ErrCodeFlowControl, next[*http2.RSTStreamFrame](p).ErrCode)
		require.NoError(t, c.Err())
	})
}

// unended begins headers.
func (p *peer) unended(stream uint32) {
	_ = p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.encode(":status", "200")})
}

// TestOverRealSockets has many goroutines call, give up and read slowly at once.
func TestOverRealSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
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
		s.SetTrailer(metadata.Pairs("n", string(rune('0'+m[0]%10))))
		return nil
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	defer serving.Wait()
	defer server.Stop()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	cfg := testConfig()
	cfg.Socket = raw
	c, err := New(t.Context(), raw, cfg)
	require.NoError(t, err)
	defer c.Close(time.Second)
	var callers sync.WaitGroup
	for g := range 16 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range 50 {
				ctx, stop := context.WithCancel(t.Context())
				replies, giveUp := r.IntN(40), r.IntN(80)
				s, err := c.NewStream(ctx, streaming, "/s/m")
				if !assertNoError(t, err) {
					stop()
					return
				}
				_ = s.SendMsg([]byte{byte(replies)})
				for i := 0; ; i++ {
					if i == giveUp {
						stop()
					}
					var m []byte
					if err = s.RecvMsg(&m); err != nil {
						break
					}
					if len(m) != 1<<(i%18) || m[0] != byte(i) {
						t.Errorf("message %d: %d bytes", i, len(m))
					}
				}
				if giveUp > replies && err != io.EOF { //nolint:errorlint // it is io.EOF itself
					t.Errorf("the end is %v", err)
				}
				stop()
			}
		})
	}
	callers.Wait()
}

// TestEveryByteIsSentOnceAndInOrder has many RPCs of small and large messages at once, to a server with
// small windows, which compares each byte of what it receives.
func TestEveryByteIsSentOnceAndInOrder(t *testing.T) {
	serverTLS, clientTLS := testTLS(t)
	for _, withTLS := range []bool{false, true} {
		sizes := func(r *rand.Rand) []int {
			out := make([]int, r.IntN(6))
			for i := range out {
				out[i] = r.IntN(1 << (4 + r.IntN(16)))
			}
			return out
		}
		planOf := func(seed uint64) plan {
			r := rand.New(rand.NewPCG(seed, 13))
			return plan{replies: sizes(r), requests: sizes(r), cancelAfter: -1}
		}
		opts := []grpc.ServerOption{grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxConcurrentStreams(9), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			md, _ := metadata.FromIncomingContext(s.Context())
			seed, err := strconv.ParseUint(md.Get("plan")[0], 10, 64)
			if err != nil {
				return err
			}
			return planOf(seed).serve(s)
		})}
		if withTLS {
			opts = append(opts, grpc.Creds(credentials.NewTLS(serverTLS)))
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		server := grpc.NewServer(opts...)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		cfg, conn := testConfig(), raw
		if withTLS {
			conn = tls.Client(raw, clientTLS)
		} else {
			cfg.Socket = raw
		}
		cfg.Marshal = func(_ []byte, v any) ([]byte, [][]byte, error) {
			data, rest := inPieces(*v.(*[]byte))
			return data, rest, nil
		}
		c, err := New(t.Context(), conn, cfg)
		require.NoError(t, err)
		var callers sync.WaitGroup
		for g := range uint64(16) {
			callers.Go(func() {
				for i := range uint64(12) {
					seed := g*1000 + i
					p := planOf(seed)
					o := p.run(metadata.AppendToOutgoingContext(t.Context(), "plan", strconv.FormatUint(seed, 10)), c)
					for i, size := range p.replies {
						if want := fmt.Sprintf("%d of %d", size, i); i >= len(o.Replies) || o.Replies[i] != want {
							t.Errorf("plan %d: no reply %s", seed, want)
						}
					}
					if o.Code != codes.OK || len(o.Replies) != len(p.replies) {
						t.Errorf("plan %d: %v %s, %q", seed, o.Code, o.Text, o.Replies)
					}
				}
			})
		}
		callers.Wait()
		c.Close(time.Second)
		server.Stop()
		serving.Wait()
	}
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// brokenPipe is a connection that takes nothing once its peer has answered.
type brokenPipe struct {
	net.Conn
	broken chan struct{}
}

func (b brokenPipe) Write(p []byte) (int, error) {
	select {
	case <-b.broken:
		return 0, io.ErrClosedPipe
	default:
		return b.Conn.Write(p)
	}
}

// What a server has sent before it left is received, though nothing can be written to it.
func TestAnAnswerBeforeAWriteThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() { _, _ = theirs.Write(appendSettings(nil)) }()
		broken := make(chan struct{})
		c, err := New(t.Context(), brokenPipe{ours, broken}, testConfig())
		require.NoError(t, err)
		r := invoke(soon(t), c, nil)
		synctest.Wait()
		close(broken)
		first := invoke(soon(t), c, nil)
		synctest.Wait() // its frames were not written
		second := invoke(soon(t), c, nil)
		<-second.done
		require.Equal(t, codes.Unavailable, status.Code(second.err))
		p := &peer{TB: t, framer: http2.NewFramer(theirs, nil)}
		p.hpack = hpack.NewEncoder(&p.block)
		p.begin(1)
		p.message(1, []byte("in time"), 100)
		p.end(1, "0")
		<-r.done
		require.NoError(t, r.err)
		require.Equal(t, "in time", string(r.reply))
		<-first.done
		require.Equal(t, codes.Unavailable, status.Code(first.err))
		require.ErrorIs(t, c.Err(), io.ErrClosedPipe)
		_ = theirs.Close()
	})
}
