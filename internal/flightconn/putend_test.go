package flightconn

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
)

// slowEnd are rows that take a second to tell that there are no more.
type slowEnd struct{ array.RecordReader }

func (r slowEnd) Next() bool {
	more := r.RecordReader.Next()
	if !more {
		time.Sleep(time.Second)
	}
	return more
}

// answersAfter is a server that says that all went well once it has read so many messages.
func answersAfter(n int) *fake {
	return &fake{
		put: func(s pb.FlightService_DoPutServer) error {
			for range n {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			return s.Send(&pb.PutResult{AppMetadata: marshal(&pb.DoPutUpdateResult{RecordCount: 7})})
		},
		action: func(_ *pb.Action, s pb.FlightService_DoActionServer) error {
			return s.Send(&pb.Result{Body: pack(&pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: []byte("p")})})
		},
	}
}

var transports = map[string]func(*Config){
	"own":    func(*Config) {},
	"gRPC's": func(cfg *Config) { cfg.DialOptions = []grpc.DialOption{grpc.WithUserAgent("x")} },
}

// A server that says that an ingestion went well before it was told that there are no more
// rows has not read all of them, also where all of them were on their way by then.
func TestAnIngestionDoesNotGoWellBeforeItsEnd(t *testing.T) {
	for name, transport := range transports {
		for read := range 4 {
			inBubble(t, answersAfter(read), func(b *bubble) {
				batch := int64Batch(1, 2)
				rows, err := array.NewRecordReader(int64Schema, []arrow.RecordBatch{batch, batch})
				require.NoError(b, err)
				c := b.open()
				_, err = c.Ingest(b.Context(), slowEnd{rows}, backend.IngestOptions{Table: "t"}, backend.Call{})
				require.Error(b, err, "%s, after %d messages", name, read)
				require.Equal(b, backend.FaultUnknown, failure(b, err).Fault, "%v", err)
				require.False(b, failure(b, err).Unsent, "%v", err)
			}, transport)
		}
	}
}

// A change without parameters is done by its command alone: what follows holds nothing.
func TestAServerNeedNotReadParametersThatAreNone(t *testing.T) {
	slow := grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return &slowStream{ClientStream: s}, err
	})
	inBubble(t, answersAfter(1), func(b *bubble) {
		c := b.open()
		p, err := c.Prepare(b.Context(), "DELETE", backend.Call{})
		require.NoError(b, err)
		n, err := p.Update(b.Context(), nil, backend.Call{})
		require.NoError(b, err)
		require.EqualValues(b, 7, n)
		_, err = p.Update(b.Context(), int64Batch(1, 2), backend.Call{})
		require.ErrorContains(b, err, "before everything was sent")
	}, func(cfg *Config) { cfg.DialOptions = []grpc.DialOption{slow} })
}

// slowStream takes a second for each message after the first.
type slowStream struct {
	grpc.ClientStream
	sent bool
}

func (s *slowStream) SendMsg(m any) error {
	if s.sent {
		time.Sleep(time.Second)
	}
	s.sent = true
	return s.ClientStream.SendMsg(m)
}

// A server that says that all went well before it was sent the command has done nothing of it.
func TestAChangeDoesNotGoWellBeforeItsCommand(t *testing.T) {
	slow := grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		if desc.ClientStreams {
			time.Sleep(time.Second)
		}
		return s, err
	})
	server := answersAfter(0)
	server.putUnread = true
	inBubble(t, server, func(b *bubble) {
		c := b.open()
		_, err := c.Update(b.Context(), "DELETE", backend.Call{})
		require.ErrorContains(b, err, "before everything was sent")
		p, err := c.Prepare(b.Context(), "DELETE", backend.Call{})
		require.NoError(b, err)
		_, err = p.Update(b.Context(), nil, backend.Call{})
		require.ErrorContains(b, err, "before everything was sent")
	}, func(cfg *Config) { cfg.DialOptions = []grpc.DialOption{slow} })
}
