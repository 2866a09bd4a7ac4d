package adbcconn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/memnet"
)

// foreignOn opens a connection of ADBC's driver, as any driver, to a fake server.
func foreignOn(t *testing.T, f *fake) backend.Conn {
	l := memnet.New("fake:1")
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, f)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = l.Close()
	})
	c, err := openForeign(flightDatabase(t, "127.0.0.1:1", grpc.WithContextDialer(l.Dial)))(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// endpointsOf is a result of n endpoints, whose tickets are their numbers.
func endpointsOf(n int, schema bool) *pb.FlightInfo {
	info := &pb.FlightInfo{}
	if schema {
		info.Schema = flight.SerializeSchema(int64s().Schema(), memory.DefaultAllocator)
	}
	for i := range n {
		info.Endpoint = append(info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte{byte(i)}}})
	}
	return info
}

// The driver's own reader would give out the rows of the third endpoint, and tell at the
// end that those of the second have failed.
func TestRowsBehindThoseThatHaveFailedAreNotGivenOut(t *testing.T) {
	for _, schema := range []bool{true, false} {
		for failing := range 3 {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
					k := int64(ticket.GetTicket()[0])
					batch := int64s(2*k, 2*k+1)
					defer batch.Release()
					w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
					if err := w.Write(batch); err != nil {
						return err
					}
					if f.info.GetTotalRecords() == k {
						return status.Error(codes.Internal, "the disk is gone")
					}
					return w.Close()
				}
				f.info = endpointsOf(3, schema)
				f.info.TotalRecords = -1
				c := foreignOn(t, f)
				f.info.TotalRecords = int64(failing)
				s, err := c.Query(t.Context(), "q", backend.Call{})
				require.NoError(t, err)
				got, err := ints(t, s)
				require.ErrorContains(t, err, "the disk is gone")
				require.Equal(t, codes.Internal, status.Code(err))
				require.Equal(t, []int64{0, 1, 2, 3, 4, 5}[:2*failing+2], got)
			})
		}
	}
}

// The driver would open them all at once, in any order.
func TestTheEndpointsOfAForeignResultAreOpenedInTurn(t *testing.T) {
	for _, schema := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var opened []byte
			var seen metadata.MD
			f := &fake{info: endpointsOf(5, schema)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				opened = append(opened, ticket.GetTicket()...)
				seen, _ = metadata.FromIncomingContext(s.Context())
				batch := int64s(int64(ticket.GetTicket()[0]))
				defer batch.Release()
				w := flight.NewRecordWriter(s, ipc.WithSchema(batch.Schema()))
				if err := w.Write(batch); err != nil {
					return err
				}
				return w.Close()
			}
			c := foreignOn(t, f)
			opened = nil
			s, err := c.Query(t.Context(), "q", backend.Call{})
			require.NoError(t, err)
			got, err := ints(t, s)
			require.NoError(t, err)
			require.Equal(t, []int64{0, 1, 2, 3, 4}, got)
			require.Equal(t, []byte{0, 1, 2, 3, 4}, opened)

			s, err = c.Query(t.Context(), "q", backend.Call{Headers: metadata.Pairs("x-who", "me")})
			require.NoError(t, err)
			got, err = ints(t, s)
			require.NoError(t, err)
			require.Equal(t, []int64{0, 1, 2, 3, 4}, got)
			require.Equal(t, []string{"me"}, seen.Get("x-who"))
			require.NoError(t, c.Ping(t.Context()))
			require.Empty(t, seen.Get("x-who"), "it was the call's")
		})
	}
}

func TestAForeignResultWithoutRowsOrSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{info: endpointsOf(0, true)}
		c := foreignOn(t, f)
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		require.True(t, s.Schema().Equal(int64s().Schema()))
		got, err := ints(t, s)
		require.NoError(t, err)
		require.Empty(t, got)
		f.info = endpointsOf(0, false)
		_, err = c.Query(t.Context(), "q", backend.Call{})
		require.ErrorContains(t, err, "neither a schema nor rows")
	})
}

// What a stream fails with tells as much as what a request fails with.
func TestTheErrorOfAForeignStreamHasItsDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		detailed, err := status.New(codes.FailedPrecondition, "not now").WithDetails(&pb.Ticket{Ticket: []byte("why")})
		require.NoError(t, err)
		f := &fake{info: endpointsOf(1, true)}
		f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
			w := flight.NewRecordWriter(s, ipc.WithSchema(int64s().Schema()))
			return w.Close()
		}
		c := foreignOn(t, f)
		f.get = func(*pb.Ticket, pb.FlightService_DoGetServer) error { return detailed.Err() }
		s, err := c.Query(t.Context(), "q", backend.Call{})
		if err == nil {
			_, err = ints(t, s)
		}
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		var e adbc.Error
		require.ErrorAs(t, err, &e)
		require.Len(t, e.Details, 1)
	})
}

// So would it on our own connections, of which all endpoints are read at once: what is given
// out is without a gap, and whoever stops early has not missed a row.
func TestNoRowIsGivenOutBehindOneThatIsMissing(t *testing.T) {
	for failing := range 3 {
		for written := range 3 {
			f := &fake{info: endpointsOf(3, true)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				k := int64(ticket.GetTicket()[0])
				first, second := int64s(2*k), int64s(2*k+1)
				defer first.Release()
				defer second.Release()
				w := flight.NewRecordWriter(s, ipc.WithSchema(first.Schema()))
				for i, batch := range []arrow.RecordBatch{first, second} {
					if k == int64(failing) && i == written {
						break
					}
					if err := w.Write(batch); err != nil {
						return err
					}
				}
				if k == int64(failing) {
					time.Sleep(time.Second) // those behind it are there
					return status.Error(codes.Internal, "the disk is gone")
				}
				return w.Close()
			}
			withFake(t, f, func(t *testing.T, c backend.Conn) {
				got := []int64{}
				s, err := c.Query(t.Context(), "q", backend.Call{})
				if err == nil { // else the first has no schema
					rows, failed := ints(t, s)
					got, err = append(got, rows...), failed
				}
				require.ErrorContains(t, err, "the disk is gone", "%d of endpoint %d: %v", written, failing, got)
				require.Equal(t, codes.Internal, status.Code(err))
				require.Equal(t, []int64{0, 1, 2, 3, 4, 5}[:len(got)], got)
				require.LessOrEqual(t, len(got), 2*failing+written)
			})
		}
	}
}

// Where one endpoint has another schema, the driver's reader passes over what it is given of those before
// from then on, and would give out what it has of those behind.
func TestNoRowIsGivenOutBehindOneThatTheDriverHasPassedOver(t *testing.T) {
	f := &fake{info: endpointsOf(3, true)}
	f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
		k := int64(ticket.GetTicket()[0])
		first, second := int64s(2*k), int64s(2*k+1)
		defer first.Release()
		defer second.Release()
		schema := first.Schema()
		if k == 2 {
			time.Sleep(time.Second)
			schema = arrow.NewSchema([]arrow.Field{{Name: "another", Type: arrow.BinaryTypes.String}}, nil)
		}
		w := flight.NewRecordWriter(s, ipc.WithSchema(schema))
		if k == 2 {
			return w.Close()
		}
		if err := w.Write(first); err != nil {
			return err
		}
		if k == 0 {
			time.Sleep(2 * time.Second)
		}
		if err := w.Write(second); err != nil {
			return err
		}
		return w.Close()
	}
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		got, err := ints(t, s)
		require.Equal(t, []int64{0}, got)
		require.ErrorIs(t, err, flightconn.ErrSchemaMismatch)
	})
}

// A batch that comes beside the end of the context is dropped by the driver's reader, which then
// would give out what it has of the next endpoint.
func TestNoRowIsGivenOutBehindOneThatIsDroppedAtTheEndOfTheCall(t *testing.T) {
	for want, end := range map[error]func(c backend.Conn, cancel context.CancelFunc){
		context.Canceled:       func(_ backend.Conn, cancel context.CancelFunc) { cancel() },
		backend.ErrSessionLost: func(c backend.Conn, _ context.CancelFunc) { _ = c.Close() },
	} {
		for range 20 { // it is left to chance whether a message is received behind the end
			const batches = 20 // more than the driver holds of an endpoint
			f := &fake{info: endpointsOf(2, true)}
			f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
				schema := int64s().Schema()
				w := flight.NewRecordWriter(s, ipc.WithSchema(schema))
				for i := range int64(batches) {
					batch := int64s(int64(ticket.GetTicket()[0])*batches + i)
					err := w.Write(batch)
					batch.Release()
					if err != nil {
						return err
					}
				}
				return w.Close()
			}
			withFake(t, f, func(t *testing.T, c backend.Conn) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := c.Query(ctx, "q", backend.Call{})
				require.NoError(t, err)
				synctest.Wait()
				end(c, cancel)
				got, err := ints(t, s)
				require.ErrorIs(t, err, want)
				for i, v := range got {
					require.EqualValues(t, i, v, "%v, %v", got, err)
				}
			})
		}
	}
}
