package adbcconn

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// ClickHouse gives each block of a result an endpoint, and refuses a call of a session while it serves
// another.
func TestTheEndpointsOfASessionThatServesOneCallAreReadInTurn(t *testing.T) {
	const endpoints, batches, rows = 4, 10, 200_000 // each is larger than all buffers
	for _, change := range []bool{false, true} {
		asked, mu := make([]int, endpoints), &sync.Mutex{}
		f := &fake{info: &pb.FlightInfo{}}
		for i := range endpoints {
			f.info.Endpoint = append(f.info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte{byte(i)}}})
		}
		f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			asked[ticket.GetTicket()[0]]++
			if !mu.TryLock() {
				return status.Error(codes.InvalidArgument, "Session 1 is locked by a concurrent client")
			}
			defer mu.Unlock()
			batch := int64s(make([]int64, rows)...)
			defer batch.Release()
			w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
			for range batches {
				if err := w.Write(batch); err != nil {
					return err
				}
			}
			return w.Close()
		}
		withFake(t, f, func(t *testing.T, c backend.Conn) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := c.Query(ctx, "q", backend.Call{MayChange: change})
			require.NoError(t, err)
			got, err := ints(t, s)
			if change { // what was asked for once is not asked for again
				require.ErrorContains(t, err, "is locked")
				require.Equal(t, 1, asked[1])
				return
			}
			require.NoError(t, err)
			require.Len(t, got, endpoints*batches*rows)
			require.Equal(t, []int{1, 2, 1, 1}, asked)
		})
	}
}
