package flightconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

func TestACutTransportIsLostAtOnceAndNeverDialledAgain(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema))}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		_, err := c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		plans := f.plans.Load()

		b.listener.Conns()[0].Cut()
		synctest.Wait()
		require.Error(b, c.Lost(), "told without a call")
		require.NotContains(b, c.Lost().Error(), "closed", "the reason is the network's, not gRPC's")

		for range 3 {
			_, err = c.Update(b.Context(), "u", backend.Call{})
			e := failure(b, err)
			require.ErrorIs(b, err, backend.ErrSessionLost)
			require.Equal(b, backend.FaultTransport, e.Fault)
			require.True(b, e.Unsent)
			require.True(b, backend.SafeToRetry(err))
			time.Sleep(time.Minute) // gRPC's back-off would long be over
		}
		require.Equal(b, 1, b.listener.Accepted(), "no second transport")
		require.Equal(b, plans, f.plans.Load())
		require.Zero(b, f.puts.Load())
	})
}

func TestWhoWatchesAnEpochIsToldOfItsEndOnce(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		var told, late []error
		c := b.open()
		c.OnLost(func(error) { b.Error("replaced before the end") })
		c.OnLost(func(err error) { told = append(told, err) })
		b.listener.Conns()[0].Cut()
		synctest.Wait()
		require.Equal(b, []error{c.Lost()}, told)
		c.OnLost(func(err error) { late = append(late, err) })
		require.Equal(b, []error{c.Lost()}, late, "at once, when it is over")
		require.NoError(b, c.Close())
		require.Len(b, told, 1)
		require.Len(b, late, 1)
	})
}

func TestACallUnderWayAtTheCutIsLostAndMayHaveBeenSent(t *testing.T) {
	started := make(chan struct{})
	f := &fake{put: func(s pb.FlightService_DoPutServer) error {
		close(started)
		return silence(s.Context())
	}}
	inBubble(t, f, func(b *bubble) {
		started = make(chan struct{})
		c := b.open()
		go func() {
			<-started
			b.listener.Conns()[0].Cut()
		}()
		_, err := c.Update(b.Context(), "u", backend.Call{})
		e := failure(b, err)
		require.ErrorIs(b, err, backend.ErrSessionLost)
		require.Equal(b, backend.FaultTransport, e.Fault)
		require.False(b, e.Unsent)
		require.False(b, backend.SafeToRetry(err))
		require.EqualValues(b, 1, f.puts.Load(), "a mutation is sent once")
	})
}

func TestTheServersGoodbyeLetsTheStreamFinishAndEndsTheEpoch(t *testing.T) {
	resume := make(chan struct{})
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		if err := sendValues(s, 0, 1); err != nil {
			return err
		}
		<-resume
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		resume = make(chan struct{})
		n := network{}
		server := n.gracefulServer(t, f)
		e, err := NewEndpoint(Config{Address: here, Dialer: n.dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		c, err := e.Open(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		_, err = s.Next()
		require.NoError(t, err)

		var stopped sync.WaitGroup
		stopped.Go(server.GracefulStop)
		synctest.Wait()
		_, err = c.Update(t.Context(), "u", backend.Call{})
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.True(t, failure(t, err).Unsent, "a server that says goodbye vouches for it")
		require.Zero(t, f.puts.Load())

		close(resume)
		require.Empty(t, values(t, s), "the stream ended well")
		stopped.Wait()
		synctest.Wait()
		require.Error(t, c.Lost())
	})
}

func TestNothingIsSentOnceTheEpochIsLost(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		c := b.open()
		c.transport.markLost(errors.New("the socket failed, and gRPC has not noticed yet"))
		_, err := c.Update(b.Context(), "u", backend.Call{})
		require.ErrorIs(b, err, backend.ErrSessionLost)
		require.ErrorContains(b, err, "not noticed")
		require.True(b, failure(b, err).Unsent)
		require.Zero(b, b.fake.puts.Load())
	})
}

// TestACallThatTheServerDisownsIsUnsent has a server that says, of a stream
// that has reached it, that it did not and will not process it.
func TestACallThatTheServerDisownsIsUnsent(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.endpoint.cfg.Dialer = func(context.Context, string) (net.Conn, error) {
			mine, theirs := net.Pipe()
			go disown(theirs)
			return mine, nil
		}
		_, err := b.endpoint.Open(b.Context())
		e := failure(b, err)
		require.Equal(b, backend.FaultTransport, e.Fault)
		require.True(b, e.Unsent, "%v", err)
	})
}

// disown speaks just enough HTTP/2 to answer the first HEADERS frame with a
// GOAWAY that names no stream.
func disown(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	out := make(chan []byte, 8)
	defer close(out)
	go func() { // a pipe has no buffer: neither side may wait for the other
		for frame := range out {
			_, _ = conn.Write(frame)
		}
	}()
	out <- []byte{0, 0, 0, 4, 0, 0, 0, 0, 0} // SETTINGS
	header := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(conn, header); err != nil {
		return
	}
	header = header[:9]
	for {
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(header[0])<<16|int64(header[1])<<8|int64(header[2])); err != nil {
			return
		}
		if header[3] == 1 { // HEADERS
			out <- []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // GOAWAY, last stream 0
		}
	}
}

// TestAServerThatRotatesItsConnectionsEndsTheEpoch has a server that goes on
// accepting, so that gRPC would dial again if it could.
func TestAServerThatRotatesItsConnectionsEndsTheEpoch(t *testing.T) {
	resume := make(chan struct{})
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		if err := sendValues(s, 0, 1); err != nil {
			return err
		}
		<-resume
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		resume = make(chan struct{})
		n := network{}
		l := n.serve(t, here, f, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Minute}))
		e, err := NewEndpoint(Config{Address: here, Dialer: n.dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		c, err := e.Open(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		time.Sleep(2 * time.Minute) // the GOAWAY has come, the stream goes on
		require.NoError(t, c.Lost())

		for range 2 {
			_, err = c.Update(t.Context(), "u", backend.Call{})
			require.ErrorIs(t, err, backend.ErrSessionLost)
			require.True(t, failure(t, err).Unsent)
		}
		require.Error(t, c.Lost())
		require.Equal(t, 1, l.Accepted(), "no second transport")
		require.Zero(t, f.puts.Load())
		close(resume)
		require.Equal(t, []int64{0}, values(t, s), "the stream ends well")
	})
}

func TestAMissedKeepaliveEndsTheEpoch(t *testing.T) {
	f := &fake{put: func(s pb.FlightService_DoPutServer) error {
		return silence(s.Context())
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		go func() {
			time.Sleep(time.Second)
			b.listener.Conns()[0].Freeze()
		}()
		began := time.Now()
		_, err := c.Update(b.Context(), "u", backend.Call{})
		require.ErrorIs(b, err, backend.ErrSessionLost)
		require.Less(b, time.Since(began), 10*time.Minute)
		require.ErrorContains(b, c.Lost(), "keepalive")
		b.listener.Conns()[0].Thaw()
	})
}

func TestCloseIsBoundedWhenTheServerIsSilent(t *testing.T) {
	f := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
		return silence(s.Context())
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		began := time.Now()
		err := c.Close()
		require.Equal(b, DefaultCloseTimeout, time.Since(began), "CloseSession hangs")
		require.Equal(b, backend.StageClose, failure(b, err).Stage)
		require.Equal(b, err, c.Close(), "later calls do nothing")

		time.Sleep(time.Minute)
		c = b.open()
		link := b.listener.Conns()[0]
		link.Freeze()
		began = time.Now()
		require.Error(b, c.Close())
		require.Equal(b, DefaultCloseTimeout, time.Since(began), "the link is dead")
		link.Thaw()
	})
}

func TestCloseIsBoundedWhenTheLinkTakesNoMoreBytes(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.endpoint.capabilities.closeSession.markMissing()
		var link *jammed
		b.endpoint.cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := b.net.dial(ctx, addr)
			link = &jammed{Conn: conn, closed: make(chan struct{})}
			return link, err
		}
		c := b.open()
		link.jam.Store(true)
		began := time.Now()
		require.NoError(b, c.Close())
		require.Equal(b, time.Second, time.Since(began), "gRPC itself would wait for longer")
	}, func(cfg *Config) { cfg.CloseTimeout = time.Second })
}

// jammed is a connection whose writes block from some moment on.
type jammed struct {
	net.Conn
	jam    atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (j *jammed) Write(p []byte) (int, error) {
	if j.jam.Load() {
		<-j.closed
		return 0, net.ErrClosed
	}
	return j.Conn.Write(p)
}

func (j *jammed) Close() error {
	j.once.Do(func() { close(j.closed) })
	return j.Conn.Close()
}

func TestCloseFailsTheCallsUnderWayBeforeItAsksTheServer(t *testing.T) {
	f := &fake{}
	f.put = func(s pb.FlightService_DoPutServer) error { return silence(s.Context()) }
	f.action = func(_ *pb.Action, s pb.FlightService_DoActionServer) error { return silence(s.Context()) }
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		var call sync.WaitGroup
		call.Go(func() {
			began := time.Now()
			_, err := c.Update(b.Context(), "u", backend.Call{})
			require.ErrorIs(b, err, backend.ErrSessionLost)
			require.Zero(b, time.Since(began), "not after the goodbye has timed out")
		})
		synctest.Wait()
		require.Error(b, c.Close())
		call.Wait()
	})
}

func TestCloseFailsTheCallsUnderWay(t *testing.T) {
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	f.put = func(s pb.FlightService_DoPutServer) error { return silence(s.Context()) }
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		_ = sendBatches(s, 1)
		return silence(s.Context())
	}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		s, err := c.Query(b.Context(), "q", backend.Call{})
		require.NoError(b, err)
		_, err = s.Next()
		require.NoError(b, err)
		var calls sync.WaitGroup
		for _, call := range []func() error{
			func() error { _, err := c.Update(b.Context(), "u", backend.Call{}); return err },
			func() error { _, err := s.Next(); return err },
		} {
			calls.Go(func() { require.ErrorIs(b, call(), backend.ErrSessionLost) })
		}
		synctest.Wait()
		for range 4 {
			calls.Go(func() { require.NoError(b, c.Close()) })
		}
		calls.Wait()
		_, err = c.Begin(b.Context())
		require.ErrorIs(b, err, backend.ErrSessionLost)
		s.Close()
	})
}

func TestCloseEndsTheServerSessionUnlessTheServerHasNoSuchCall(t *testing.T) {
	closes := 0
	f := &fake{action: func(a *pb.Action, _ pb.FlightService_DoActionServer) error {
		require.Equal(t, "CloseSession", a.GetType())
		closes++
		return status.Error(codes.InvalidArgument, "do_action: The defined request is invalid")
	}}
	inBubble(t, f, func(b *bubble) {
		for range 3 {
			require.NoError(b, b.open().Close())
		}
		require.Equal(b, 2, closes, "a refusal that is repeated is remembered")
	})
}

// TestWhatIsLearnedAtAnEndWaitsForNoStatement: one that was cut may run on, and the
// harmless question waits for it. The server, which is told of its deadline, may be the first
// to say that it is over.
func TestWhatIsLearnedAtAnEndWaitsForNoStatement(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{
		"silence":              silence,
		"the server's own end": func(context.Context) error { return status.Error(codes.DeadlineExceeded, "too late") },
	} {
		t.Run(name, func(t *testing.T) {
			var closing atomic.Bool
			f := &fake{
				action: func(*pb.Action, pb.FlightService_DoActionServer) error {
					return status.Error(codes.Unimplemented, "not here")
				},
				info: func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
					if closing.Load() {
						return nil, answer(ctx)
					}
					return nil, status.Error(codes.NotFound, "no information")
				},
			}
			inBubble(t, f, func(b *bubble) {
				c := b.open()
				closing.Store(true)
				began := time.Now()
				require.NoError(b, c.Close())
				require.LessOrEqual(b, time.Since(began), harmlessTimeout)
				require.False(b, c.endpoint.capabilities.closeSession.isMissing())
			})
		})
	}
}

func TestGarbageOnTheWireEndsTheEpoch(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		b.endpoint.cfg.Dialer = func(context.Context, string) (net.Conn, error) {
			mine, theirs := net.Pipe()
			go func() {
				defer func() { _ = theirs.Close() }()
				_, _ = theirs.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
				buf := make([]byte, 4096)
				for {
					if _, err := theirs.Read(buf); err != nil {
						return
					}
				}
			}()
			return mine, nil
		}
		_, err := b.endpoint.Open(b.Context())
		require.Equal(b, backend.FaultTransport, failure(b, err).Fault)
		require.Equal(b, backend.StageDial, failure(b, err).Stage)
	})
}

// closingReader closes the connection while it is asked for rows, and then
// fails as one that heeds the call's context.
type closingReader struct {
	array.RecordReader
	conn *Conn
}

func (r closingReader) Next() bool { return r.conn.Close() != nil }
func (r closingReader) Err() error { return context.Canceled }

func TestAnIngestUnderAClosedConnectionIsLostAndNotCancelled(t *testing.T) {
	inBubble(t, &fake{put: func(s pb.FlightService_DoPutServer) error { return silence(s.Context()) }}, func(b *bubble) {
		batch := int64Batch(1)
		defer batch.Release()
		rows, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch, batch, batch})
		require.NoError(b, err)
		c := b.open()
		_, err = c.Ingest(b.Context(), closingReader{rows, c}, backend.IngestOptions{Table: "t"}, backend.Call{})
		require.ErrorIs(b, err, backend.ErrSessionLost)
		require.NotErrorIs(b, err, context.Canceled, "only the call's own RPC was cancelled, by its end")
	})
}

// endsBeforeTheTicket is a transport that ends between the beginning of a DoGet and its ticket.
type endsBeforeTheTicket struct {
	grpc.ClientConnInterface
	transport *transport
	left      *atomic.Int64 // DoGets before that
}

func (e endsBeforeTheTicket) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := e.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err == nil && desc == getDesc && e.left.Add(-1) < 0 {
		e.transport.own.Close(0)
	}
	return s, err
}

// A transport that ends while a DoGet is being sent is no end of its rows.
func TestALossBeforeTheTicketIsNoEndOfTheResult(t *testing.T) {
	for _, before := range []int64{0, 1} {
		f := &fake{info: infoOf(answer(int64Schema, "a", "b"))}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error { return sendValues(s, 0, 1) }
		inBubble(t, f, func(b *bubble) {
			c := b.open()
			var left atomic.Int64
			left.Store(before)
			c.channel.cc = endsBeforeTheTicket{c.transport.cc, c.transport, &left}
			s, err := c.Query(b.Context(), "q", backend.Call{})
			for err == nil {
				defer s.Close()
				_, err = s.Next()
			}
			require.NotErrorIs(b, err, io.EOF)
			require.ErrorIs(b, err, backend.ErrSessionLost)
		})
	}
}
