package adbcconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// slowRows take a second for each batch and for their end.
type slowRows struct{ array.RecordReader }

func (r slowRows) Next() bool {
	time.Sleep(time.Second)
	return r.RecordReader.Next()
}

// A server that says that an ingestion went well before it was told that there are no more rows
// has not read all of them. The driver would not notice.
func TestAnIngestionThroughTheDriverDoesNotGoWellBeforeItsEnd(t *testing.T) {
	for read := range 5 {
		withFake(t, &fake{put: func(s pb.FlightService_DoPutServer) error {
			for range read {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			count, err := proto.Marshal(&pb.DoPutUpdateResult{RecordCount: 7})
			require.NoError(t, err)
			return s.Send(&pb.PutResult{AppMetadata: count})
		}}, func(t *testing.T, c backend.Conn) {
			schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil)
			b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
			batch := b.NewRecordBatch()
			rows, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch, batch, batch})
			require.NoError(t, err)
			n, err := c.Ingest(t.Context(), slowRows{rows}, backend.IngestOptions{Table: "t"}, backend.Call{})
			require.Error(t, err, "after %d messages: %d", read, n)
			require.Equal(t, backend.FaultUnknown, failure(t, err).Fault, "%v", err)
			require.False(t, failure(t, err).Unsent, "%v", err)
		})
	}
}

// A server that says that all went well before it was sent the command has done nothing of it.
func TestAChangeThroughTheDriverDoesNotGoWellBeforeItsCommand(t *testing.T) {
	early := func(s pb.FlightService_DoPutServer) error { return s.Send(&pb.PutResult{}) }
	synctest.Test(t, func(t *testing.T) {
		c := fakeConn(t, &fake{put: early}, flightconn.Config{DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := streamer(ctx, desc, cc, method, opts...)
				time.Sleep(time.Second)
				return s, err
			})}})
		n, err := c.Update(t.Context(), "u", backend.Call{})
		require.ErrorContains(t, err, "before everything was sent", "%d", n)
		require.False(t, failure(t, err).Unsent)
	})
}

// A server that says that all went well has read all rows of the parameters.
func TestRowsThatWereNotReadAreNotDoneThroughTheDriver(t *testing.T) {
	for sent := range 3 {
		early := func(s pb.FlightService_DoPutServer) error {
			for range sent {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
			return s.Send(&pb.PutResult{})
		}
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := streamer(ctx, desc, cc, method, opts...)
				return slowStream{s}, err
			}
			c := fakeConn(t, &fake{put: early}, flightconn.Config{DialOptions: []grpc.DialOption{grpc.WithStreamInterceptor(slow)}})
			stmt, err := c.Prepare(t.Context(), "u", backend.Call{})
			require.NoError(t, err)
			schema := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}, nil)
			b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
			b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
			_, err = stmt.Update(t.Context(), b.NewRecordBatch(), backend.Call{})
			if sent == 2 {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "before everything was sent", "after %d messages", sent)
		})
	}
}

// slowStream takes a second for each message.
type slowStream struct{ grpc.ClientStream }

func (s slowStream) SendMsg(m any) error {
	time.Sleep(time.Second)
	return s.ClientStream.SendMsg(m)
}
