package grpcconn

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The sending of an RPC with one message is never what tells its end: io.EOF of it would
// pass for the end of the result.
func TestWhatHasEndedIsToldByTheReceiving(t *testing.T) {
	for name, end := range map[string]func(c *Conn, stop func()){
		"the connection": func(c *Conn, _ func()) { c.Close(0) },
		"the context":    func(_ *Conn, stop func()) { stop(); synctest.Wait() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := pair(t, testConfig())
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				one, err := c.NewStream(ctx, streaming, "/s/m")
				require.NoError(t, err)
				many, err := c.NewStream(ctx, both, "/s/m")
				require.NoError(t, err)
				end(c, stop)
				require.NoError(t, one.SendMsg([]byte("q")))
				require.Equal(t, io.EOF, many.SendMsg([]byte("q")))
				err = one.RecvMsg(&[]byte{})
				require.Contains(t, []codes.Code{codes.Unavailable, codes.Canceled}, status.Code(err), "%v", err)
			})
		})
	}
}

// A message that cannot be encoded ends its RPC: nobody knows what else to send.
func TestAMessageThatCannotBeEncodedEndsItsRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		s, err := c.NewStream(t.Context(), both, "/s/m")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg([]byte("q")))
		require.ErrorContains(t, s.SendMsg(1), "cannot be encoded")
		require.Equal(t, http2.ErrCodeCancel, next[*http2.RSTStreamFrame](p).ErrCode)
		require.ErrorContains(t, s.RecvMsg(&[]byte{}), "cannot be encoded")
	})
}

// A server that has answered cannot disown the call any more, whatever it says: what it has
// answered would come twice.
func TestAnAnsweredCallIsNotDisowned(t *testing.T) {
	for name, disown := range map[string]func(p *peer, id uint32) error{
		"REFUSED_STREAM": func(p *peer, id uint32) error { return p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(p *peer, _ uint32) error { return p.framer.WriteGoAway(0, http2.ErrCodeNo, nil) },
	} {
		for _, messages := range []int{0, 1} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, p := pair(t, testConfig())
					ctx, j := observed(soon(t))
					s, err := c.NewStream(ctx, streaming, "/s/m")
					require.NoError(t, err)
					require.NoError(t, s.SendMsg([]byte("q")))
					id := next[*http2.MetaHeadersFrame](p).StreamID
					p.begin(id)
					var m []byte
					for range messages {
						p.message(id, []byte("one"), 100)
						require.NoError(t, s.RecvMsg(&m))
					}
					synctest.Wait()
					go p.drain()
					require.NoError(t, disown(p, id))
					require.Equal(t, codes.Unavailable, status.Code(s.RecvMsg(&m)))
					require.Equal(t, []string{"begin", "sent", "header", "end"}, j.heard())
				})
			})
		}
	}
}

// A call is not sent again where the server takes none.
func TestARefusedStreamIsNotSentAgainBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		ctx, j := observed(soon(t))
		r := invoke(ctx, c, []byte("q"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.NoError(t, p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
		require.NoError(t, p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		<-r.done
		require.Equal(t, codes.Unavailable, status.Code(r.err))
		require.Equal(t, []string{"begin", "sent", "disowned", "end"}, j.heard())
	})
}

// A stream that a server resets at its deadline ends for that.
func TestAResetAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		// The deadline has passed for whoever looks at it, and nothing has ended the context yet.
		ctx := late{t.Context(), time.Now().Add(time.Second)}
		r := invoke(ctx, c, []byte("q"))
		id := next[*http2.MetaHeadersFrame](p).StreamID
		time.Sleep(time.Second)
		require.NoError(t, p.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		<-r.done
		require.Equal(t, codes.DeadlineExceeded, status.Code(r.err))
	})
}

// late is a context that ends some time after its deadline.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// Metadata of a server's own caller, which has HTTP's headers, can be passed on: these are not.
func TestHeadersOfHTTPAreNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		invoke(metadata.NewOutgoingContext(soon(t), metadata.MD{":authority": {"another"}, ":path": {"\x00"}, "k": {"v"}}), c, nil)
		var names []string
		for _, f := range next[*http2.MetaHeadersFrame](p).Fields {
			names = append(names, f.Name+"="+f.Value)
		}
		require.Contains(t, names, "k=v")
		require.Contains(t, names, ":authority=server:1")
		require.NotContains(t, names, ":authority=another")
	})
}

// Headers of which the server has said that they are too large are not sent: it might end the
// connection for them.
func TestHeadersThatAreTooLargeAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig(), http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1000})
		ctx, j := observed(metadata.AppendToOutgoingContext(soon(t), "k", strings.Repeat("v", 800)))
		err := c.Invoke(ctx, "/s/m", []byte{}, &[]byte{})
		require.Equal(t, codes.Internal, status.Code(err))
		require.ErrorContains(t, err, "1000")
		require.Equal(t, []string{"begin", "end"}, j.heard())

		r := invoke(metadata.AppendToOutgoingContext(soon(t), "k", strings.Repeat("v", 500)), c, nil)
		id := next[*http2.MetaHeadersFrame](p).StreamID
		require.Equal(t, uint32(1), id)
		p.begin(id)
		p.message(id, []byte("fits"), 100)
		p.end(id, "0")
		<-r.done
		require.NoError(t, r.err)
	})
}

// The text of an error may be long. What is too long ends the call alone.
func TestLongHeaders(t *testing.T) {
	long := func(p *peer, id uint32, size int) {
		block := p.encode("grpc-status", "3", "grpc-message", strings.Repeat("long", size/4))
		_ = p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, BlockFragment: block[:1]})
		for block = block[1:]; len(block) > 0; {
			n := min(len(block), 1<<14)
			_ = p.framer.WriteContinuation(id, n == len(block), block[:n])
			block = block[n:]
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, p := pair(t, testConfig())
		r := invoke(soon(t), c, nil)
		id := next[*http2.MetaHeadersFrame](p).StreamID
		p.begin(id)
		long(p, id, 4<<20)
		<-r.done
		require.Equal(t, codes.InvalidArgument, status.Code(r.err), "%.100s", r.err)
		require.Len(t, status.Convert(r.err).Message(), 4<<20)

		ctx, j := observed(soon(t))
		r = invoke(ctx, c, nil)
		id = next[*http2.MetaHeadersFrame](p).StreamID
		p.begin(id)
		go p.drain()
		long(p, id, maxHeaderList)
		<-r.done
		require.Equal(t, codes.Internal, status.Code(r.err), "%.100s", r.err)
		require.ErrorContains(t, r.err, "too large")
		require.Equal(t, []string{"begin", "sent", "header", "end"}, j.heard())
		synctest.Wait()
		require.NoError(t, c.Err())
	})
}

// Headers that HTTP/2 does not have end the call: they would be missed where their name is
// looked up.
func TestHeadersThatHTTPDoesNotHave(t *testing.T) {
	for name, field := range map[string][2]string{
		"upper case":        {"Set-Cookie", "a=b"},
		"no name":           {"", "v"},
		"a space":           {"a b", "v"},
		"a line break":      {"a", "v\nb: c"},
		"no pseudo-header":  {":cookie", "a"},
		"behind the others": {":status", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				p.framer.AllowIllegalWrites = true
				r := invoke(soon(t), c, nil)
				id := next[*http2.MetaHeadersFrame](p).StreamID
				p.headers(id, false, ":status", "200", "content-type", "application/grpc", field[0], field[1])
				go p.drain()
				<-r.done
				require.Equal(t, codes.Internal, status.Code(r.err))
				require.ErrorContains(t, r.err, "header")
				require.NoError(t, c.Err())
			})
		})
	}
}

// An end that says two things says nothing: by one of them a change would be stored, by the other not.
func TestTwoStatuses(t *testing.T) {
	for _, fields := range [][]string{
		{"grpc-status", "13", "grpc-status", "0"}, {"grpc-status", "0", "grpc-status", "13"}, {"grpc-status", "3", "grpc-status", "13"},
	} {
		for _, trailersOnly := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, p := pair(t, testConfig())
				r := invoke(soon(t), c, nil)
				id := next[*http2.MetaHeadersFrame](p).StreamID
				if trailersOnly {
					fields = append([]string{":status", "200", "content-type", "application/grpc"}, fields...)
				} else {
					p.begin(id)
					p.message(id, []byte("m"), 10)
				}
				p.headers(id, true, fields...)
				go p.drain()
				<-r.done
				require.Equal(t, codes.Internal, status.Code(r.err), "%v", fields)
				require.ErrorContains(t, r.err, "transport: the server has ended the call with two statuses")
				require.NoError(t, c.Err())
			})
		}
	}
}

// What only looks like gRPC is none.
func TestContentTypes(t *testing.T) {
	for contentType, want := range map[string]codes.Code{
		"application/grpc":               codes.NotFound,
		"application/grpc+proto":         codes.NotFound,
		"application/grpc;charset=utf-8": codes.NotFound,
		"application/grpc-web+proto":     codes.Unknown,
		"application/grpcs":              codes.Unknown,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, p := pair(t, testConfig())
			r := invoke(soon(t), c, nil)
			id := next[*http2.MetaHeadersFrame](p).StreamID
			p.headers(id, true, ":status", "200", "content-type", contentType, "grpc-status", "5")
			go p.drain()
			<-r.done
			require.Equal(t, want, status.Code(r.err), contentType)
		})
	}
}

// Whoever waits for headers takes no message's news from who receives.
func TestHeaderBesideRecvMsg(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c, p := pair(t, testConfig())
			s, err := c.NewStream(soon(t), streaming, "/s/m")
			require.NoError(t, err)
			require.NoError(t, s.SendMsg([]byte("q")))
			id := next[*http2.MetaHeadersFrame](p).StreamID
			header, received := make(chan error, 1), make(chan error, 1)
			go func() { received <- s.RecvMsg(&[]byte{}) }()
			synctest.Wait() // it is the first to wait for news
			go func() { _, err := s.Header(); header <- err }()
			synctest.Wait()
			p.begin(id)
			require.NoError(t, <-header)
			p.message(id, []byte("m"), 100)
			require.NoError(t, <-received)
		})
	}
}

// slowToClose is a connection whose Close waits, as that of TLS does for a peer that does not read.
type slowToClose struct {
	net.Conn
	closing chan struct{}
}

func (s slowToClose) Close() error {
	<-s.closing
	return s.Conn.Close()
}

// A call ends with its connection, and not only once that is closed.
func TestACallDoesNotWaitForTheClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() { _, _ = theirs.Write(appendSettings(nil)) }()
		closing := make(chan struct{})
		c, err := New(t.Context(), slowToClose{ours, closing}, testConfig())
		require.NoError(t, err)
		r := invoke(t.Context(), c, nil)
		synctest.Wait()
		go func() { _, _ = theirs.Write(appendFrameHeader(nil, 1<<24-1, frameData, 0, 1)) }()
		synctest.Wait()
		select {
		case <-r.done:
		default:
			t.Error("the call waits")
		}
		close(closing)
		<-r.done
		require.Equal(t, codes.Unavailable, status.Code(r.err))
		_ = theirs.Close()
	})
}

// accounts is a server that keeps the windows that it was given.
type accounts struct {
	*peer
	conn    int
	streams map[uint32]int
}

// read reads the client's frames until it has answered a ping, and so all before it.
func (a *accounts) read() {
	a.Helper()
	require.NoError(a, a.framer.WritePing(false, [8]byte{1}))
	for {
		f, err := a.framer.ReadFrame()
		require.NoError(a, err)
		switch f := f.(type) {
		case *http2.PingFrame:
			if f.IsAck() {
				return
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				a.conn += int(f.Increment)
			} else {
				a.streams[f.StreamID] += int(f.Increment)
			}
		case *http2.MetaHeadersFrame:
			a.streams[f.StreamID] = 1 << 16
			a.begin(f.StreamID)
		}
	}
}

// send sends as many bytes of data as the windows have room for, up to a length.
func (a *accounts) send(id uint32, data []byte, padding int) int {
	a.Helper()
	over := 0
	if padding > 0 {
		over = 1 + padding
	}
	n := min(len(data), min(a.conn, a.streams[id], 1<<14)-over)
	if n <= 0 {
		return 0
	}
	if padding > 0 {
		require.NoError(a, a.framer.WriteDataPadded(id, false, data[:n], make([]byte, padding)))
	} else {
		require.NoError(a, a.framer.WriteData(id, false, data[:n]))
	}
	a.conn -= n + over
	a.streams[id] -= n + over
	return n
}

// Windows are given back to the last byte: of messages small and large, of padding, of streams
// that are given up with data unread or on its way.
func TestWindowsAreGivenBack(t *testing.T) {
	for seed := range 2 {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			c, p := pair(t, testConfig())
			a := &accounts{p, initialWindow, map[uint32]int{}}
			a.read()
			require.Equal(t, 1<<17, a.conn)
			for range 30 {
				ctx, giveUp := context.WithCancel(t.Context())
				s, err := c.NewStream(ctx, streaming, "/s/m")
				require.NoError(t, err)
				require.NoError(t, s.SendMsg([]byte{}))
				a.read()
				id := s.(*Stream).id
				total := 1 + r.IntN(300)
				sizes := make([]int, total)
				var wire []byte
				for i := range sizes {
					sizes[i] = r.IntN(1 << r.IntN(18))
					wire = append(wire, append([]byte{0, 0, byte(sizes[i] >> 16), byte(sizes[i] >> 8), byte(sizes[i])}, make([]byte, sizes[i])...)...)
				}
				until := total
				if r.IntN(3) == 0 {
					until = r.IntN(total)
				}
				received := make(chan int)
				go func() {
					n := 0
					for m := []byte{}; n < until && s.RecvMsg(&m) == nil; n++ {
						if len(m) != sizes[n] {
							t.Error("another length")
						}
					}
					if until < total {
						giveUp()
					}
					received <- n
				}()
				for len(wire) > 0 {
					n := a.send(id, wire[:min(len(wire), 1+r.IntN(1<<r.IntN(17)))], max(0, r.IntN(500)-300)%256)
					wire = wire[n:]
					synctest.Wait()
					a.read()
					if n == 0 && until < total {
						break // it was given up, with its window
					}
				}
				require.Equal(t, until, <-received)
				synctest.Wait()
				a.read()
				require.Greater(t, a.conn, 3<<15, "of the connection")
				if until == total {
					require.Greater(t, a.streams[id], 3<<14, "of the stream")
					a.end(id, "0")
					require.Equal(t, io.EOF, s.RecvMsg(&[]byte{}))
				}
				giveUp()
			}
		})
	}
}
