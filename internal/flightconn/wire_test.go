package flightconn

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// resets is between clients and a server, as a proxy is: it resets the streams of which a
// frame passes that on is true of, with a code of HTTP/2. The server is not told.
type resets struct {
	code    atomic.Int32 // 0: none
	on      func(kind, flags byte, fromServer bool) bool
	forOnce bool
}

// Frames of HTTP/2.
const (
	frameData    = 0
	frameHeaders = 1
	flagEnd      = 1 // of a stream
)

// onRequest is true of the end of a request, which has reached the server.
func onRequest(kind, flags byte, fromServer bool) bool {
	return kind == frameData && flags&flagEnd != 0 && !fromServer
}

// onHeaders is true of the headers of an answer, which go on to the client.
func onHeaders(kind, flags byte, fromServer bool) bool {
	return kind == frameHeaders && flags&flagEnd == 0 && fromServer
}

// dial is the network with r in between.
func (r *resets) dial(n network) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		server, err := n.dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		mine, client := net.Pipe()
		toClient := make(chan []byte, 1000)
		over := make(chan struct{})
		forward := func(frame []byte, fromServer bool) {
			if fromServer {
				select {
				case toClient <- frame:
				case <-over:
				}
			} else {
				_, _ = server.Write(frame)
			}
			if code := r.code.Load(); code != 0 && r.on(frame[3], frame[4], fromServer) && (!r.forOnce || r.code.CompareAndSwap(code, 0)) {
				toClient <- append(append([]byte{0, 0, 4, 3, 0}, frame[5:9]...), 0, 0, 0, byte(code))
			}
		}
		go func() {
			defer func() { _ = client.Close() }()
			copyFrames(server, func(frame []byte) { forward(frame, true) })
		}()
		go func() {
			defer func() { _ = server.Close(); close(over) }()
			if _, err := io.CopyN(server, client, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err == nil {
				copyFrames(client, func(frame []byte) { forward(frame, false) })
			}
		}()
		go func() {
			for {
				select {
				case frame := <-toClient:
					_, _ = client.Write(frame)
				case <-over:
					return
				}
			}
		}()
		return mine, nil
	}
}

// copyFrames reads HTTP/2's frames until there are no more.
func copyFrames(from io.Reader, to func([]byte)) {
	for {
		frame := make([]byte, 9)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(frame[:4]) >> 8)
		frame = append(frame, make([]byte, n)...)
		if _, err := io.ReadFull(from, frame[9:]); err != nil {
			return
		}
		to(frame)
	}
}

var resetCodes = map[string]int32{"internal error": 2, "flow control": 3, "cancel": 8, "enhance your calm": 11, "inadequate security": 12}

// A stream that is reset is no answer, whatever status gRPC makes of it: the server may
// have the request, and do it later.
func TestARequestToCancelWhoseStreamIsResetIsUnanswered(t *testing.T) {
	for name, code := range resetCodes {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			f := &fake{action: func(*pb.Action, pb.FlightService_DoActionServer) error { <-over; return nil }}
			r := &resets{on: onRequest}
			inBubble(t, f, func(b *bubble) {
				over = make(chan struct{})
				defer close(over)
				b.endpoint.cfg.Dialer = r.dial(b.net)
				b.endpoint.capabilities.closeSession.markMissing()
				c := b.open()
				r.code.Store(code)
				require.Equal(b, cancel.Unanswered, do(b.Context(), c, operation())["CancelFlightInfo"])
			})
		})
	}
}

// A stream that is reset says nothing of the statement, and some servers run it when
// they plan it.
func TestAStatementWhoseStreamIsResetMayRun(t *testing.T) {
	for name, code := range resetCodes {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			f := &fake{}
			r := &resets{on: onRequest}
			inBubble(t, f, func(b *bubble) {
				over = make(chan struct{})
				defer close(over)
				b.endpoint.cfg.Dialer = r.dial(b.net)
				b.endpoint.capabilities.closeSession.markMissing()
				c := b.open()
				f.info = func(context.Context, *pb.FlightDescriptor) (*pb.FlightInfo, error) { <-over; return nil, nil }
				f.put = func(pb.FlightService_DoPutServer) error { <-over; return nil }
				r.code.Store(code)
				_, planned := c.Query(b.Context(), "q", backend.Call{})
				_, updated := c.Update(b.Context(), "u", backend.Call{})
				for _, err := range []error{planned, updated} {
					require.Equal(b, backend.FaultTransport, failure(b, err).Fault, "%v", err)
					require.False(b, failure(b, err).Unsent)
					require.True(b, failure(b, err).Running)
				}
			})
		})
	}
}

// gRPC sends a read again that the server has disowned.
func TestTheAnswerIsThatOfTheLastAttempt(t *testing.T) {
	over := make(chan struct{})
	f := &fake{info: infoOf(answer(int64Schema, "a"))}
	r := &resets{on: onHeaders, forOnce: true}
	inBubble(t, f, func(b *bubble) {
		over = make(chan struct{})
		defer close(over)
		b.endpoint.cfg.Dialer = r.dial(b.net)
		b.endpoint.cfg.DialOptions = []grpc.DialOption{grpc.WithUserAgent("gRPC's own client")}
		c := b.open()
		attempts := 0
		var cookies []string
		f.info = func(ctx context.Context, _ *pb.FlightDescriptor) (*pb.FlightInfo, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			cookies = md.Get("cookie")
			return nil, answerAfterHeaders(over, &attempts, func(md metadata.MD) error { return grpc.SendHeader(ctx, md) })
		}
		r.code.Store(7) // refused
		for range 2 {
			ctx, stop := context.WithTimeout(b.Context(), time.Minute)
			_, err := c.Query(ctx, "q", backend.Call{})
			stop()
			require.Equal(b, codes.InvalidArgument, status.Code(failure(b, err).Err))
		}
		require.Equal(b, 3, attempts)
		require.Empty(b, cookies)
	})
}

// A server that has begun to answer a change has it, whatever it says then: the change is
// sent once.
func TestAChangeThatIsAnsweredIsNotSentAgain(t *testing.T) {
	for name, transport := range transports {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			f := &fake{info: infoOf(answer(int64Schema, "a"))}
			r := &resets{on: onHeaders, forOnce: true}
			inBubble(t, f, func(b *bubble) {
				over = make(chan struct{})
				defer close(over)
				b.endpoint.cfg.Dialer = r.dial(b.net)
				c := b.open()
				attempts := 0
				f.put = func(s pb.FlightService_DoPutServer) error { return answerAfterHeaders(over, &attempts, s.SendHeader) }
				r.code.Store(7) // refused
				ctx, stop := context.WithTimeout(b.Context(), time.Minute)
				defer stop()
				_, err := c.Update(ctx, "u", backend.Call{})
				require.Equal(b, backend.FaultTransport, failure(b, err).Fault, "%v", err)
				require.False(b, failure(b, err).Unsent)
				require.False(b, backend.SafeToRetry(err))
				require.Equal(b, 1, attempts)
			}, transport)
		})
	}
}

// answerAfterHeaders is an RPC of which the first is never answered but by headers.
func answerAfterHeaders(over chan struct{}, attempts *int, sendHeader func(metadata.MD) error) error {
	if *attempts++; *attempts > 1 {
		return status.Error(codes.InvalidArgument, "no")
	}
	_ = sendHeader(metadata.Pairs("set-cookie", "disowned=1"))
	<-over
	return nil
}

// A request to cancel may reach another server than the one that has the session, where
// one address leads to several. That it knows no such statement says nothing.
func TestOnlyTheSessionsOwnServerConfirmsThatAStatementIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		own  error // of the session's server
		want cancel.Outcome
	}{
		"unknown there, too": {status.Error(codes.NotFound, "no such query"), cancel.Confirmed},
		"running there":      {status.Error(codes.InvalidArgument, "not now"), cancel.Failed},
		"stopped there":      {nil, cancel.Confirmed},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			own := &fake{action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
				asked++
				if c.own != nil {
					return c.own
				}
				return s.Send(&pb.Result{Body: marshal(&pb.CancelFlightInfoResult{Status: pb.CancelStatus_CANCEL_STATUS_CANCELLED})})
			}}
			inBubble(t, own, func(b *bubble) {
				b.endpoint.capabilities.closeSession.markMissing()
				b.endpoint.capabilities.cancelQuery.markMissing()
				conn := b.open()
				b.net.serve(b, here, &fake{action: func(*pb.Action, pb.FlightService_DoActionServer) error {
					return status.Error(codes.NotFound, "no such query")
				}})
				require.Equal(b, c.want, do(b.Context(), conn, operation())["CancelFlightInfo"])
				require.Equal(b, 1, asked)
			})
		})
	}
}

// A server may run a statement when its rows are fetched, and be named by several
// locations.
func TestTheOwnServerIsAskedForRowsOnce(t *testing.T) {
	info := answer(int64Schema, "a")
	for _, uri := range []string{"arrow-flight-reuse-connection://?", "grpc://" + here, "grpc+tcp://" + here} {
		info.Endpoint[0].Location = append(info.Endpoint[0].Location, &pb.Location{Uri: uri})
	}
	asked := 0
	f := &fake{info: infoOf(info), get: func(*pb.Ticket, pb.FlightService_DoGetServer) error {
		asked++
		return status.Error(codes.Unavailable, "the proxy's own")
	}}
	inBubble(t, f, func(b *bubble) {
		_, err := b.open().Query(b.Context(), "q", backend.Call{})
		require.Equal(b, backend.FaultTransport, failure(b, err).Fault)
		require.Equal(b, 1, asked)
	})
}
