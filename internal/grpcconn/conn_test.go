package grpcconn

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/internal/memnet"
)

var streaming = &grpc.StreamDesc{ServerStreams: true}
var both = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// called is a call of Invoke under way.
type called struct {
	reply []byte
	err   error
	done  chan struct{}
}

func invoke(ctx context.Context, c *Conn, args []byte, opts ...grpc.CallOption) *called {
	r := &called{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Invoke(ctx, "/s/m", args, &r.reply, opts...)
	}()
	return r
}

func TestACallAndItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		ctx, j := observed(metadata.AppendToOutgoingContext(t.Context(), "k", "v", "k-bin", "\x00\xff", "grpc-status", "7"))
		ctx, stop := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer stop()
		var header, trailer metadata.MD
		r := invoke(ctx, c, []byte("question"), grpc.Header(&header), grpc.Trailer(&trailer))
		h := next[*http2.MetaHeadersFrame](p)
		got := map[string]string{}
		for _, f := range h.Fields {
			got[f.Name] = f.Value
		}
		require.Equal(t, map[string]string{
			":method": "POST", ":scheme": "http", ":path": "/s/m", ":authority": "server:1", "content-type": "application/grpc",
			"user-agent": "test", "te": "trailers", "grpc-timeout": "1500000u", "k": "v", "k-bin": "AP8",
		}, got)
		d := next[*http2.DataFrame](p)
		require.Equal(t, "\x00\x00\x00\x00\x08question", string(d.Data()))
		require.True(t, d.StreamEnded())
		p.headers(h.StreamID, false, ":status", "200", "content-type", "application/grpc+proto", "a", "1", "b-bin", "AP8=")
		p.message(h.StreamID, []byte("answer"), 3)
		p.headers(h.StreamID, true, "grpc-status", "0", "c", "2")
		<-r.done
		require.NoError(t, r.err)
		require.Equal(t, "answer", string(r.reply))
		require.Equal(t, metadata.MD{"a": {"1"}, "b-bin": {"\x00\xff"}}, header)
		require.Equal(t, metadata.MD{"c": {"2"}}, trailer)
		require.Equal(t, []string{"begin", "sent", "header", "trailer", "end"}, j.heard())
	})
}

// What a server may end a call with, and what becomes of it.
func TestEndsOfACall(t *testing.T) {
	begin := func(p *peer, id uint32) { p.begin(id) }
	for name, test := range map[string]struct {
		answer func(p *peer, id uint32)
		code   codes.Code
		text   string
		heard  string
	}{
		"a status": {func(p *peer, id uint32) { begin(p, id); p.end(id, "5") }, codes.NotFound, "as asked", "header trailer end"},
		"trailers alone": {func(p *peer, id uint32) {
			p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "9")
		}, codes.FailedPrecondition, "", "trailer end"},
		"no message":              {func(p *peer, id uint32) { begin(p, id); p.end(id, "0") }, codes.Internal, "no message", "header trailer end"},
		"two messages":            {func(p *peer, id uint32) { begin(p, id); p.message(id, nil, 9); p.message(id, nil, 9) }, codes.Internal, "more than one message", "header end"},
		"a message, and a status": {func(p *peer, id uint32) { begin(p, id); p.message(id, nil, 9); p.end(id, "10") }, codes.Aborted, "as asked", "header trailer end"},
		"the end within a message": {func(p *peer, id uint32) {
			begin(p, id)
			_ = p.framer.WriteData(id, false, []byte("\x00\x00\x00\x00\x05ab"))
			p.end(id, "0")
		}, codes.Internal, "within a message", "header trailer end"},
		"the end within a prefix": {func(p *peer, id uint32) {
			begin(p, id)
			_ = p.framer.WriteData(id, false, []byte("\x00\x00"))
			p.end(id, "0")
		}, codes.Internal, "within a message", "header trailer end"},
		"no trailers": {func(p *peer, id uint32) {
			begin(p, id)
			_ = p.framer.WriteData(id, true, []byte("\x00\x00\x00\x00\x00"))
		}, codes.Internal, "without trailers", "header end"},
		"no status":               {func(p *peer, id uint32) { begin(p, id); p.headers(id, true, "x", "y") }, codes.Unknown, "transport: the server has ended the call without a status", "header trailer end"},
		"no number for a status":  {func(p *peer, id uint32) { begin(p, id); p.end(id, "fine") }, codes.Unknown, `transport: the server has ended the call with the status "fine"`, "header trailer end"},
		"a reset":                 {func(p *peer, id uint32) { begin(p, id); _ = p.framer.WriteRSTStream(id, http2.ErrCodeInternal) }, codes.Internal, "has ended the call without an answer: stream terminated by RST_STREAM of the server, code 2 (INTERNAL_ERROR)", "header end"},
		"a reset by CANCEL":       {func(p *peer, id uint32) { _ = p.framer.WriteRSTStream(id, http2.ErrCodeCancel) }, codes.Canceled, "has ended the call without an answer: stream terminated by RST_STREAM of the server, code 8 (CANCEL)", "end"},
		"HTTP 404":                {func(p *peer, id uint32) { p.headers(id, false, ":status", "404", "content-type", "text/html") }, codes.Unimplemented, "no gRPC", "header end"},
		"HTTP 500":                {func(p *peer, id uint32) { p.headers(id, false, ":status", "500", "content-type", "text/html") }, codes.Unknown, "transport: ", "header end"},
		"HTTP 503, ended":         {func(p *peer, id uint32) { p.headers(id, true, ":status", "503") }, codes.Unavailable, "503", "header end"},
		"HTTP 200 of a web page":  {func(p *peer, id uint32) { p.headers(id, false, ":status", "200", "content-type", "text/html") }, codes.Unknown, "text/html", "header end"},
		"an informational status": {func(p *peer, id uint32) { p.headers(id, false, ":status", "103"); begin(p, id); p.end(id, "6") }, codes.AlreadyExists, "", "header trailer end"},
		"data before headers":     {func(p *peer, id uint32) { _ = p.framer.WriteData(id, false, []byte("ab")) }, codes.Internal, "before headers", "end"},
		"headers in the middle":   {func(p *peer, id uint32) { begin(p, id); begin(p, id) }, codes.Internal, "in the middle", "header end"},
		"a compressed message": {func(p *peer, id uint32) {
			begin(p, id)
			_ = p.framer.WriteData(id, false, []byte("\x01\x00\x00\x00\x00"))
		}, codes.Internal, "compressed", "header end"},
		"a message that is too large": {func(p *peer, id uint32) {
			begin(p, id)
			_ = p.framer.WriteData(id, false, []byte("\x00\x01\x00\x00\x00"))
		}, codes.ResourceExhausted, "16777216", "header end"},
		"base 64 that is none": {func(p *peer, id uint32) {
			p.headers(id, false, ":status", "200", "content-type", "application/grpc", "x-bin", "!")
		}, codes.Internal, "x-bin", "end"},
		"the end of the connection": {func(p *peer, id uint32) { begin(p, id); _ = p.conn.Close() }, codes.Unavailable, "closed the connection", "header end"},
		"GOAWAY before it":          {func(p *peer, id uint32) { _ = p.framer.WriteGoAway(0, http2.ErrCodeNo, []byte("later")) }, codes.Unavailable, "later", "disowned end"},
		"details": {func(p *peer, id uint32) {
			begin(p, id)
			p.headers(id, true, "grpc-status", "3", "grpc-message", "short", "grpc-status-details-bin", "CAMSBGxvbmc")
		}, codes.InvalidArgument, "long", "header trailer end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				ctx, j := observed(soon(t))
				r := invoke(ctx, c, nil)
				id := next[*http2.MetaHeadersFrame](p).StreamID
				test.answer(p, id)
				go p.drain()
				<-r.done
				require.Equal(t, test.code, status.Code(r.err), "%v", r.err)
				require.ErrorContains(t, r.err, test.text)
				require.Equal(t, "begin sent "+test.heard, strings.Join(j.heard(), " "))
				synctest.Wait()
				c.mu.Lock()
				require.Empty(t, c.mu.streams)
				c.mu.Unlock()
			})
		})
	}
}

// A stream ends with its context, and the server is told, at once.
func TestAContextEndsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		ctx, stop := context.WithCancel(t.Context())
		s, err := c.NewStream(ctx, streaming, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte("q")))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		p.begin(id)
		p.message(id, []byte("dropped"), 100)
		synctest.Wait()
		stop() // nobody receives
		require.Equal(t, http2.ErrCodeCancel, next[*http2.RSTStreamFrame](p).ErrCode)
		var m []byte
		require.Equal(t, codes.Canceled, status.Code(s.RecvMsg(&m)))
		require.NoError(t, s.SendMsg([]byte{}))

		p.message(id, []byte("late"), 2) // of a stream that is over
		p.end(id, "0")
		r := invoke(soon(t), c, nil)
		id = next[*http2.MetaHeadersFrame](p).StreamID
		p.begin(id)
		p.message(id, []byte("still alive"), 100)
		p.end(id, "0")
		<-r.done
		require.Equal(t, "still alive", string(r.reply))
	})
}

// What is disowned by REFUSED_STREAM is sent once more, and no oftener.
func TestARefusedStreamIsSentOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		ctx, j := observed(soon(t))
		r := invoke(ctx, c, []byte("q"))
		for range 2 {
			id := next[*http2.MetaHeadersFrame](p).StreamID
			require.Equal(t, "\x00\x00\x00\x00\x01q", string(next[*http2.DataFrame](p).Data()))
			require.NoError(t, p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		}
		<-r.done
		require.Equal(t, codes.Unavailable, status.Code(r.err))
		require.Equal(t, []string{"begin", "sent", "disowned", "sent", "disowned", "end"}, j.heard())
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Empty(t, c.mu.streams)
	})
}

// A refusal that is not believed ends the RPC, which may have been processed.
func TestARefusedStreamThatMayHaveBeenProcessedIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		ctx, j := observed(soon(t))
		j.doubtsRefusal = true
		r := invoke(ctx, c, []byte("q"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.NoError(t, p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		<-r.done
		require.Equal(t, codes.Unavailable, status.Code(r.err))
		require.Equal(t, []string{"begin", "sent", "end"}, j.heard())
	})
}

// A message that is too long ends its call: an Invoke would wait for the answer to it.
func TestAMessageLongerThanGRPCCanSayEndsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marshal = func([]byte, any) ([]byte, [][]byte, error) {
			return nil, slices.Repeat([][]byte{make([]byte, 1<<20)}, 4096), nil
		}
		c, p := pair(t, cfg)
		r := invoke(soon(t), c, []byte("query"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.Equal(t, id, next[*http2.RSTStreamFrame](p).StreamID)
		<-r.done
		require.Equal(t, codes.ResourceExhausted, status.Code(r.err), "%v", r.err)
	})
}

// A message in pieces is not sent again: its memory may be another's by then.
func TestARefusedStreamOfPiecesIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marshal = func(_ []byte, v any) ([]byte, [][]byte, error) {
			return v.([]byte)[:2], [][]byte{v.([]byte)[2:]}, nil
		}
		c, p := pair(t, cfg)
		ctx, j := observed(soon(t))
		r := invoke(ctx, c, []byte("query"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.Equal(t, "\x00\x00\x00\x00\x05query", string(next[*http2.DataFrame](p).Data()))
		require.NoError(t, p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		<-r.done
		require.Equal(t, codes.Unavailable, status.Code(r.err))
		require.Equal(t, []string{"begin", "sent", "disowned", "end"}, j.heard())
	})
}

// What a message is made of may be changed once its sending has returned, however little of it
// the windows have let out at a time.
func TestPiecesMayBeChangedAfterTheyWereSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marshal = func(_ []byte, v any) ([]byte, [][]byte, error) {
			data, rest := inPieces(v.([]byte))
			return data, rest, nil
		}
		c, p := pair(t, cfg, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7})
		s, err := c.NewStream(soon(t), both, "/s/m")
		require.NoError(t, err)
		var want []byte
		var sending sync.WaitGroup
		messages := [][]byte{requestOf(1, 101), requestOf(2, 1), requestOf(3, 0), requestOf(4, 3), requestOf(5, 64)}
		for _, m := range messages {
			want = append(want, 0, 0, 0, 0, byte(len(m)))
			want = append(want, m...)
		}
		sending.Go(func() {
			for _, m := range messages {
				if s.SendMsg(m) != nil {
					return
				}
				clear(m)
			}
		})
		id := next[*http2.MetaHeadersFrame](p).StreamID // which leaves with the first message
		var got []byte
		for len(got) < len(want) {
			got = append(got, next[*http2.DataFrame](p).Data()...)
			require.NoError(t, p.framer.WriteWindowUpdate(id, 7))
		}
		sending.Wait()
		require.Equal(t, want, got)
	})
}

// A server that says goodbye is sent nothing new; what it knows of comes to its end.
func TestGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var reasons []string
		cfg.OnEnd = func(err error) { reasons = append(reasons, err.Error()) }
		c, p := pair(t, cfg)
		r := invoke(soon(t), c, nil)
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.NoError(t, p.framer.WriteGoAway(id, http2.ErrCodeNo, nil))
		synctest.Wait()
		ctx, j := observed(soon(t))
		require.Equal(t, codes.Unavailable, status.Code(c.Invoke(ctx, "/s/m", []byte{}, &[]byte{})))
		require.Equal(t, []string{"begin", "end"}, j.heard())
		require.Len(t, reasons, 1)
		require.NoError(t, c.Err())
		p.begin(id)
		p.message(id, []byte("bye"), 100)
		p.end(id, "0")
		<-r.done
		require.NoError(t, r.err)
		synctest.Wait()
		require.ErrorContains(t, c.Err(), "GOAWAY")
	})
}

// A peer that does not read holds up nobody who does not wait for it.
func TestAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		c, p := pair(t, cfg, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		require.NoError(t, p.framer.WriteWindowUpdate(0, 1<<30))
		synctest.Wait()
		p.conn.(interface{ Freeze() }).Freeze()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		s, err := c.NewStream(ctx, both, "/s/m")
		require.NoError(t, err)
		start := time.Now()
		for err == nil {
			err = s.SendMsg(bytes.Repeat([]byte("x"), 1<<20))
		}
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, time.Second, time.Since(start), "at the end of its context")
		c.mu.Lock()
		require.LessOrEqual(t, len(c.mu.out), maxOut+1<<10)
		c.mu.Unlock()
		start = time.Now()
		c.Close(time.Second)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A peer that asks for answers and does not read them fills no memory.
func TestAPeerThatAsksAndDoesNotRead(t *testing.T) {
	for name, ask := range map[string]func(p *peer) error{
		"pings":    func(p *peer) error { return p.framer.WritePing(false, [8]byte{}) },
		"settings": func(p *peer) error { return p.framer.WriteSettings() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				p.conn.(interface{ Freeze() }).Freeze()
				p.framer = http2.NewFramer(p.conn.(*memnet.Conn).Conn, nil) // it writes all the same
				for range 500 * maxAcks {
					if ask(p) != nil {
						break
					}
				}
				synctest.Wait()
				require.ErrorContains(t, c.Err(), "does not read")
			})
		})
	}
}

// A silent peer is asked, and left when it does not answer.
func TestKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Keepalive, cfg.KeepaliveTimeout = time.Minute, 10*time.Second
		c, p := pair(t, cfg)
		time.Sleep(time.Hour)
		require.NoError(t, c.Err(), "nobody is asked while no call is under way")
		s, err := c.NewStream(t.Context(), streaming, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte{}))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		time.Sleep(50 * time.Second)
		p.begin(id)
		synctest.Wait()
		start := time.Now()
		ping := next[*http2.PingFrame](p)
		require.InDelta(t, time.Minute, time.Since(start), float64(15*time.Second))
		require.NoError(t, p.framer.WritePing(true, ping.Data))
		next[*http2.PingFrame](p)
		start = time.Now()
		var m []byte
		require.Equal(t, codes.Unavailable, status.Code(s.RecvMsg(&m)))
		require.Equal(t, 10*time.Second, time.Since(start))
		require.ErrorContains(t, c.Err(), "keepalive")
	})
}

// Nobody waits for the answer of a server that has none, beyond the context.
func TestAServerWithoutSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := New(ctx, ours, testConfig())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A bulk load uses the same memory to its end, and leaves none of it with the connection.
func TestABulkLoadUsesItsMemoryAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var bufs []int
		cfg.Marshal = func(buf []byte, v any) ([]byte, [][]byte, error) {
			bufs = append(bufs, cap(buf))
			return append(buf, v.([]byte)...), nil, nil
		}
		c, p := pair(t, cfg, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		require.NoError(t, p.framer.WriteWindowUpdate(0, 1<<30))
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		synctest.Wait()
		kept := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return cap(c.mu.out) + cap(c.mu.spare)
		}
		s, err := c.NewStream(soon(t), both, "/s/m")
		require.NoError(t, err)
		for range 4 {
			require.NoError(t, s.SendMsg(bytes.Repeat([]byte("x"), 1<<20)))
		}
		synctest.Wait()
		require.Greater(t, kept(), maxOut)
		require.Equal(t, []int{0, 0}, bufs[:2], "the first may be sent again")
		require.GreaterOrEqual(t, min(bufs[2], bufs[3]), 1<<20)
		p.begin(1)
		p.end(1, "0")
		synctest.Wait()
		require.LessOrEqual(t, kept(), 2*maxIdleOut)
	})
}
