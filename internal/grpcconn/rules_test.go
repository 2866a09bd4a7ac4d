package grpcconn

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A sender goes on when the window of the connection grows, that of its stream being large.
func TestTheConnectionsWindowLetsASenderGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		s, err := c.NewStream(soon(t), both, "/s/m")
		require.NoError(t, err)
		sent := make(chan error, 1)
		go func() { sent <- s.SendMsg(make([]byte, 100_000)) }()
		got := 0
		for got < initialWindow {
			got += len(next[*http2.DataFrame](p).Data())
		}
		require.NoError(t, p.framer.WriteWindowUpdate(0, 1<<20))
		require.NoError(t, <-sent)
		for got < prefixLen+100_000 {
			got += len(next[*http2.DataFrame](p).Data())
		}
		require.Equal(t, prefixLen+100_000, got)
	})
}

// A window that settings make negative is waited out.
func TestAWindowBelowZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		s, err := c.NewStream(soon(t), both, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(make([]byte, 50_000)))
		for got := 0; got < prefixLen+50_000; {
			got += len(next[*http2.DataFrame](p).Data())
		}
		require.NoError(t, p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		next[*http2.SettingsFrame](p)
		id := s.(*Stream).id
		sent := make(chan error, 1)
		go func() { sent <- s.SendMsg([]byte("x")) }()
		require.NoError(t, p.framer.WriteWindowUpdate(id, 49_995))
		synctest.Wait()
		require.Empty(t, sent, "nothing is left of the window")
		require.NoError(t, p.framer.WriteWindowUpdate(id, 6))
		require.NoError(t, <-sent)
		require.Equal(t, "\x00\x00\x00\x00\x01x", string(next[*http2.DataFrame](p).Data()))
	})
}

func TestCloseSaysGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		go c.Close(time.Second)
		require.Equal(t, http2.ErrCodeNo, next[*http2.GoAwayFrame](p).ErrCode)
		_, err := p.framer.ReadFrame()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, codes.Unavailable, status.Code(c.Invoke(t.Context(), "/s/m", []byte{}, &[]byte{})))
	})
}

// What comes while GOAWAY waits to be written does not end the connection without it.
func TestCloseSaysGoodbyeWhateverComesMeanwhile(t *testing.T) {
	for name, meanwhile := range map[string]func(p *peer, cancel func()){
		"nothing": func(*peer, func()) {},
		"a frame": func(p *peer, _ func()) { require.NoError(p, p.framer.WritePing(true, [8]byte{})) },
		"the last RPC ends": func(p *peer, _ func()) {
			p.headers(1, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "0")
		},
		"it is cancelled": func(_ *peer, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &slowToWrite{open: make(chan struct{})}
				c, p := pairOver(t, testConfig(), func(c net.Conn) net.Conn {
					slow.Conn = c
					return slow
				})
				ctx, cancel := context.WithCancel(t.Context())
				r := invoke(ctx, c, nil)
				next[*http2.DataFrame](p)
				slow.jam.Store(true)
				var closing sync.WaitGroup
				closing.Go(func() { c.Close(time.Second) })
				synctest.Wait()
				meanwhile(p, cancel)
				synctest.Wait()
				close(slow.open)
				require.Equal(t, http2.ErrCodeNo, next[*http2.GoAwayFrame](p).ErrCode)
				closing.Wait()
				cancel()
				<-r.done
			})
		})
	}
}

// slowToWrite is a connection whose writes wait from some moment on, until open is closed.
type slowToWrite struct {
	net.Conn
	jam  atomic.Bool
	open chan struct{}
}

func (s *slowToWrite) Write(p []byte) (int, error) {
	if s.jam.Load() {
		<-s.open
	}
	return s.Conn.Write(p)
}

// Calls that come and go beside one that waits do not put off the question whether the server lives.
func TestASilentServerIsAskedBesideCallsThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Keepalive, cfg.KeepaliveTimeout = time.Minute, 10*time.Second
		c, p := pair(t, cfg)
		go p.drain()
		r := invoke(t.Context(), c, nil)
		start := time.Now()
		for c.Err() == nil && time.Since(start) < time.Hour {
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			_ = c.Invoke(ctx, "/s/m", []byte{}, &[]byte{})
			stop()
		}
		<-r.done
		require.ErrorContains(t, c.Err(), "keepalive")
		require.Less(t, time.Since(start), 2*time.Minute)
	})
}

// A silent server is found by calls that all reach their deadlines before it would be asked.
func TestASilentServerIsAskedByShortCalls(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 3 * time.Second, 20 * time.Second, 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig()
			cfg.Keepalive, cfg.KeepaliveTimeout = 40*time.Second, 20*time.Second
			c, p := pair(t, cfg)
			go p.drain()
			start := time.Now()
			for c.Err() == nil && time.Since(start) < time.Hour {
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				_ = c.Invoke(ctx, "/s/m", []byte{}, &[]byte{})
				stop()
				time.Sleep(every - time.Second)
			}
			require.ErrorContains(t, c.Err(), "keepalive")
			require.LessOrEqual(t, time.Since(start), cfg.Keepalive+cfg.KeepaliveTimeout+2*every)
		})
	}
}

// A server may end a call while we send: we tell it that no more comes, at once.
func TestAnEarlyEndStopsTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		s, err := c.NewStream(soon(t), both, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte("q")))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		sent := make(chan error, 1)
		go func() {
			err := error(nil)
			for err == nil {
				err = s.SendMsg(make([]byte, 10_000))
			}
			sent <- err
		}()
		p.begin(id)
		p.end(id, "0")
		require.Equal(t, http2.ErrCodeNo, next[*http2.RSTStreamFrame](p).ErrCode)
		require.Equal(t, io.EOF, <-sent)
		require.Equal(t, io.EOF, s.RecvMsg(&[]byte{}))
		header, err := s.Header()
		require.NoError(t, err)
		require.Empty(t, header)

		require.NoError(t, s.CloseSend())
		require.NoError(t, p.framer.WritePing(false, [8]byte{1}))
		f, err := p.framer.ReadFrame()
		require.NoError(t, err)
		require.IsType(t, &http2.PingFrame{}, f, "nothing is sent of a call that is over")
	})
}

func TestHeadersOfACallThatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		s, err := c.NewStream(soon(t), streaming, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte{}))
		require.NoError(t, p.framer.WriteRSTStream(next[*http2.MetaHeadersFrame](p).StreamID, http2.ErrCodeInternal))
		_, err = s.Header()
		require.Equal(t, codes.Internal, status.Code(err))
	})
}

// A reply that cannot be read is an error of its call.
func TestAReplyThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Unmarshal = func([]byte, any) error { return io.ErrShortBuffer }
		c, p := pair(t, cfg)
		r := invoke(soon(t), c, nil)
		id := next[*http2.MetaHeadersFrame](p).StreamID
		p.begin(id)
		p.message(id, []byte("m"), 100)
		p.end(id, "0")
		<-r.done
		require.Equal(t, codes.Internal, status.Code(r.err))
	})
}

// HEADERS may have padding and a priority.
func TestHeadersWithPadding(t *testing.T) {
	for name, test := range map[string]struct {
		flags   byte
		payload func(block []byte) []byte
		ok      bool
	}{
		"padding":               {flagPadded, func(b []byte) []byte { return append(append([]byte{3}, b...), 0, 0, 0) }, true},
		"priority":              {flagPriority, func(b []byte) []byte { return append(make([]byte, 5), b...) }, true},
		"both":                  {flagPadded | flagPriority, func(b []byte) []byte { return append(append([]byte{2, 0, 0, 0, 0, 0}, b...), 0, 0) }, true},
		"nothing but a length":  {flagPadded, func([]byte) []byte { return []byte{1} }, false},
		"no length":             {flagPadded, func([]byte) []byte { return nil }, false},
		"padding that is large": {flagPadded, func(b []byte) []byte { return append([]byte{255}, b...) }, false},
		"half a priority":       {flagPriority, func([]byte) []byte { return make([]byte, 4) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				r := invoke(soon(t), c, nil)
				id := next[*http2.MetaHeadersFrame](p).StreamID
				payload := test.payload(p.encode(":status", "200", "content-type", "application/grpc", "grpc-status", "5"))
				_, err := p.conn.Write(append(appendFrameHeader(nil, len(payload), frameHeaders, flagEndHeaders|flagEndStream|test.flags, id), payload...))
				require.NoError(t, err)
				go p.drain()
				<-r.done
				if test.ok {
					require.Equal(t, codes.NotFound, status.Code(r.err))
				} else {
					require.ErrorContains(t, r.err, "padding")
				}
			})
		})
	}
}

func TestNamesAndValuesThatCanBeSent(t *testing.T) {
	for key, ok := range map[string]bool{"az-_.09": true, "a b": false, "a/": false, "ä": false, "a:": false, "{": false, "`": false} {
		_, err := outgoing(metadata.NewOutgoingContext(t.Context(), metadata.MD{key: {"v"}}))
		require.Equal(t, ok, err == nil, key)
	}
	for value, ok := range map[string]bool{" ~": true, "\x1f": false, "\x7f": false, "ä": false} {
		_, err := outgoing(metadata.NewOutgoingContext(t.Context(), metadata.MD{"k": {value}}))
		require.Equal(t, ok, err == nil, "%q", value)
		_, err = outgoing(metadata.NewOutgoingContext(t.Context(), metadata.MD{"k-bin": {value}}))
		require.NoError(t, err)
	}
}

// More breaches of the protocol, each of which ends the connection.
func TestMoreBreaches(t *testing.T) {
	for name, test := range map[string]struct {
		breach func(p *peer)
		want   string
	}{
		"a ping that is long": {func(p *peer) { _, _ = p.conn.Write(appendFrameHeader(nil, 1<<15, framePing, 0, 0)) }, "32768 bytes"},
		"CONTINUATION of another stream": {func(p *peer) {
			p.unended(1)
			_ = p.framer.WriteContinuation(3, true, nil)
		}, "without an end"},
		"more than the connection's window": {func(p *peer) {
			_, _ = p.conn.Write(appendFrameHeader(nil, 1<<17+1, frameData, 0, 1))
		}, "window of the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				p.framer.AllowIllegalWrites = true
				r, second := invoke(soon(t), c, nil), invoke(soon(t), c, nil)
				next[*http2.MetaHeadersFrame](p)
				next[*http2.MetaHeadersFrame](p)
				go p.drain()
				test.breach(p)
				<-r.done
				<-second.done
				require.ErrorContains(t, c.Err(), test.want)
			})
		})
	}
}

// Details of another code than the status are not believed; texts are what the server has encoded.
func TestDetailsOfAnotherCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		for _, text := range []string{"plain", "100%25", "caf%C3%A9", "%", "%4", "%zz", "\xff raw", strings.Repeat("%00", 3)} {
			r := invoke(soon(t), c, nil)
			id := next[*http2.MetaHeadersFrame](p).StreamID
			p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", text, "grpc-status-details-bin", "CAMSBGxvbmc")
			<-r.done
			require.Equal(t, codes.NotFound, status.Code(r.err))
			require.Equal(t, decodeMessage(text), status.Convert(r.err).Message())
		}
		require.Equal(t, []string{"100%", "café", "%", "%4", "%zz", "\x00"}, []string{
			decodeMessage("100%25"), decodeMessage("caf%C3%A9"), decodeMessage("%"), decodeMessage("%4"), decodeMessage("%zz"), decodeMessage("%00"),
		})
		require.True(t, bytes.Equal([]byte{0xff}, []byte(decodeMessage("%ff"))))
	})
}

// The last number for a call is used, and the connection ends with that call.
func TestTheLastNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		c.mu.Lock()
		c.mu.nextID = lastStreamID
		c.mu.Unlock()
		r := invoke(soon(t), c, []byte("q"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.Equal(t, uint32(lastStreamID), id)
		ctx, j := observed(soon(t))
		require.ErrorContains(t, c.Invoke(ctx, "/s/m", []byte{}, &[]byte{}), "no numbers")
		require.Equal(t, []string{"begin", "end"}, j.heard())
		p.begin(id)
		p.message(id, []byte("last"), 100)
		p.end(id, "0")
		<-r.done
		require.NoError(t, r.err)
		synctest.Wait()
		require.ErrorContains(t, c.Err(), "no numbers")
	})
}

// What a large frame has needed is not kept.
func TestLargeHeadersKeepNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		r := invoke(soon(t), c, nil)
		id := next[*http2.MetaHeadersFrame](p).StreamID
		p.headers(id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", strings.Repeat("long", 100_000))
		<-r.done
		require.Equal(t, codes.NotFound, status.Code(r.err))
		synctest.Wait()
		require.LessOrEqual(t, cap(c.frames.payload)+cap(c.frames.block), 2*minMaxFrame)
	})
}
