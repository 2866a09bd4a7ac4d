package adbcconn

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// The driver's reader gives up all endpoints where one has failed, and waits for the goroutines that
// read them. On a server that runs one statement of a session at a time, those behind one that it has left
// unread would never come to their turn, and on any an endpoint may be late.
func TestAnEndpointThatFailsEndsTheOthers(t *testing.T) {
	const endpoints, batches, rows = 4, 10, 200_000 // each is larger than all buffers
	for name, test := range map[string]struct {
		serial, fails bool
		want          string
	}{
		"one stream at a time":                     {true, true, "division by zero"},
		"one stream at a time, and another schema": {true, false, "inconsistent schema"},
		"one that is late":                         {false, true, "division by zero"},
		"one that is late, and another schema":     {false, false, "inconsistent schema"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{info: &pb.FlightInfo{}}
			for i := range endpoints {
				f.info.Endpoint = append(f.info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte{byte(i)}}})
			}
			withFake(t, f, func(t *testing.T, c backend.Conn) {
				session1 := make(chan struct{}, endpoints)
				if test.serial {
					session1 = make(chan struct{}, 1)
				}
				f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
					select {
					case session1 <- struct{}{}:
						defer func() { <-session1 }()
					case <-s.Context().Done():
						return s.Context().Err()
					}
					batch := int64s(make([]int64, rows)...)
					schema := batch.Schema()
					defer batch.Release()
					switch n := ticket.GetTicket()[0]; {
					case n == 1 && test.fails:
						if err := flight.NewRecordWriter(s, ipc.WithSchema(schema)).Write(batch); err != nil {
							return err
						}
						time.Sleep(time.Second) // until all of the first endpoint was read
						return status.Error(codes.InvalidArgument, "division by zero")
					case n == 1:
						time.Sleep(time.Second)
						schema = arrow.NewSchema([]arrow.Field{{Name: "other", Type: arrow.PrimitiveTypes.Int64}}, nil)
						return flight.NewRecordWriter(s, ipc.WithSchema(schema)).Close()
					case n == 2 && !test.serial:
						<-s.Context().Done()
						return s.Context().Err()
					}
					w := flight.NewRecordWriter(s, ipc.WithSchema(schema))
					for range batches {
						if err := w.Write(batch); err != nil {
							return err
						}
					}
					return w.Close()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, err := c.Query(ctx, "q", backend.Call{})
				require.NoError(t, err)
				_, err = ints(t, s)
				require.ErrorContains(t, err, test.want)
				require.NotEqual(t, codes.Canceled, status.Code(err), "what that has ended is not why")
				require.NoError(t, ctx.Err())
			})
		})
	}
}
