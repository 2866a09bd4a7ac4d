package adbcconn

import (
	"bytes"
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/memnet"
)

// fake answers GetFlightInfo with NOT_FOUND, which is a sign of life, and
// the rest as its test wants.
type fake struct {
	pb.UnimplementedFlightServiceServer
	put  func(pb.FlightService_DoPutServer) error
	get  func(*pb.Ticket, pb.FlightService_DoGetServer) error
	info *pb.FlightInfo // of every query, and of the table types

	dataset, params []byte // schemas of prepared statements
	noHandle        bool
	handle          string                   // "p" if empty
	textHandles     func(text string) string // handles of prepared statements by their texts; nil: one for all
	used            []string                 // handles that were executed as queries, and closed
}

func (f *fake) GetFlightInfo(_ context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
	if bytes.Contains(d.GetCmd(), []byte("CommandPreparedStatementQuery")) {
		var q pb.CommandPreparedStatementQuery
		unpack(d.GetCmd(), &q)
		f.used = append(f.used, string(q.GetPreparedStatementHandle()))
	}
	asked := bytes.Contains(d.GetCmd(), []byte("CommandStatementQuery")) || bytes.Contains(d.GetCmd(), []byte("CommandGetTableTypes"))
	if f.info == nil || !asked {
		return nil, status.Error(codes.NotFound, "nothing here")
	}
	return f.info, nil
}

func (f *fake) DoGet(t *pb.Ticket, s pb.FlightService_DoGetServer) error { return f.get(t, s) }

func (f *fake) DoAction(a *pb.Action, s pb.FlightService_DoActionServer) error {
	if a.GetType() == flightsql.ClosePreparedStatementActionType {
		var r pb.ActionClosePreparedStatementRequest
		unpack(a.GetBody(), &r)
		f.used = append(f.used, string(r.GetPreparedStatementHandle()))
	}
	if a.GetType() != flightsql.CreatePreparedStatementActionType {
		return status.Error(codes.Unimplemented, a.GetType())
	}
	handle := []byte(cmp.Or(f.handle, "p"))
	if f.textHandles != nil {
		var r pb.ActionCreatePreparedStatementRequest
		unpack(a.GetBody(), &r)
		handle = []byte(f.textHandles(r.GetQuery()))
	}
	if f.noHandle {
		handle = nil
	}
	packed, err := anypb.New(&pb.ActionCreatePreparedStatementResult{PreparedStatementHandle: handle, DatasetSchema: f.dataset, ParameterSchema: f.params})
	if err != nil {
		return err
	}
	body, err := proto.Marshal(packed)
	if err != nil {
		return err
	}
	return s.Send(&pb.Result{Body: body})
}

// unpack reads a command, or the body of an action.
func unpack(packed []byte, m proto.Message) {
	var envelope anypb.Any
	if proto.Unmarshal(packed, &envelope) == nil {
		_ = envelope.UnmarshalTo(m)
	}
}

func (f *fake) DoPut(s pb.FlightService_DoPutServer) error { return f.put(s) }

// withFake opens a connection of our driver to a fake server.
func withFake(t *testing.T, f *fake, test func(t *testing.T, c backend.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, fakeConn(t, f, flightconn.Config{})) })
}

// fakeConn is one, within a bubble.
func fakeConn(t *testing.T, f *fake, cfg flightconn.Config) backend.Conn {
	l := memnet.New("fake:1")
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	pb.RegisterFlightServiceServer(server, f)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		_ = l.Close()
	})
	cfg.Address, cfg.Dialer = "fake:1", l.Dial
	c, err := newOurs(t, cfg).open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The driver would take the first answer for the whole of it.
func TestAnUpdateThatFailsAfterItsAnswerHasFailed(t *testing.T) {
	withFake(t, &fake{put: func(s pb.FlightService_DoPutServer) error {
		count, err := proto.Marshal(&pb.DoPutUpdateResult{RecordCount: 1})
		require.NoError(t, err)
		require.NoError(t, s.Send(&pb.PutResult{AppMetadata: count}))
		return status.Error(codes.Internal, "could not be stored")
	}}, func(t *testing.T, c backend.Conn) {
		_, err := c.Update(t.Context(), "u", backend.Call{})
		require.ErrorContains(t, err, "could not be stored")
		require.Equal(t, backend.FaultStatement, failure(t, err).Fault)
	})
}

// The driver would give up with a bare EOF.
func TestAnUpdateRefusedBeforeItsMessageTellsWhy(t *testing.T) {
	withFake(t, &fake{put: func(pb.FlightService_DoPutServer) error {
		return status.Error(codes.PermissionDenied, "not you")
	}}, func(t *testing.T, c backend.Conn) {
		for range 100 { // now and then the refusal comes first
			_, err := c.Update(t.Context(), "u", backend.Call{})
			require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		}
	})
}

// The driver would open the endpoints in any order: a later one could take
// the session of a server that runs one statement at a time, and keep it while
// the one before it, which is read first, waits.
func TestEndpointsOfOneSessionAreOpenedInTurn(t *testing.T) {
	const endpoints, batches, rows = 3, 10, 200_000 // each is larger than all buffers
	for _, locations := range [][]*pb.Location{nil, {{Uri: "https://not-supported/"}, {Uri: "arrow-flight-reuse-connection://?"}}} {
		session1 := make(chan struct{}, 1)
		f := &fake{info: &pb.FlightInfo{}}
		for i := range endpoints {
			f.info.Endpoint = append(f.info.Endpoint, &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte{byte(i)}}})
		}
		f.info.Endpoint[1].Location = locations
		f.get = func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
			if ticket.GetTicket()[0] == 1 {
				time.Sleep(time.Second) // it lags
			}
			select {
			case session1 <- struct{}{}:
				defer func() { <-session1 }()
			case <-s.Context().Done():
				return s.Context().Err()
			}
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
			session1 = make(chan struct{}, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := c.Query(ctx, "q", backend.Call{})
			require.NoError(t, err)
			got, err := ints(t, s)
			require.NoError(t, err)
			require.Len(t, got, endpoints*batches*rows)
		})
	}
}

func TestAResultWithoutAStreamKeepsThePromisedSchema(t *testing.T) {
	batch := int64s(1)
	defer batch.Release()
	f := &fake{info: &pb.FlightInfo{
		Schema:   flight.SerializeSchema(batch.Schema(), memory.DefaultAllocator),
		Endpoint: []*pb.FlightEndpoint{{Ticket: &pb.Ticket{Ticket: []byte("t")}}},
	}}
	f.get = func(*pb.Ticket, pb.FlightService_DoGetServer) error { return nil }
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		s, err := c.Query(t.Context(), "q", backend.Call{})
		require.NoError(t, err)
		require.True(t, s.Schema().Equal(batch.Schema()))
		got, err := ints(t, s)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// The driver would read all of them at once, each in a goroutine.
func TestMoreEndpointsThanTheDriverMayReadAtOnceAreRefused(t *testing.T) {
	f := &fake{info: &pb.FlightInfo{}}
	var opened atomic.Int64
	f.get = func(_ *pb.Ticket, s pb.FlightService_DoGetServer) error {
		opened.Add(1)
		w := flight.NewRecordWriter(s, ipc.WithSchema(int64s().Schema()))
		return w.Close()
	}
	withFake(t, f, func(t *testing.T, c backend.Conn) {
		query := func(n int) (backend.Stream, error) {
			f.info.Endpoint = make([]*pb.FlightEndpoint, n)
			for i := range n {
				f.info.Endpoint[i] = &pb.FlightEndpoint{Ticket: &pb.Ticket{Ticket: []byte("t")}}
			}
			return c.Query(t.Context(), "q", backend.Call{})
		}
		_, err := query(maxEndpoints + 1)
		require.ErrorContains(t, err, "a result of 4097 endpoints, above the 4096 that ADBC's driver may read at once")
		require.Equal(t, backend.FaultUnsupported, failure(t, err).Fault)
		require.True(t, failure(t, err).Fault.KeepsConn())
		require.Zero(t, opened.Load(), "nothing was begun of it")

		s, err := query(maxEndpoints)
		require.NoError(t, err)
		got, err := ints(t, s)
		require.NoError(t, err)
		require.Empty(t, got)
		require.EqualValues(t, maxEndpoints, opened.Load())
	})
}

func TestOnlyNativeConnectionsCarryTheDriver(t *testing.T) {
	d, err := NewDriver(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	other := &closing{}
	_, err = d.Wrap(t.Context(), other)
	require.ErrorContains(t, err, "cannot carry the driver")
	require.True(t, other.closed)
}

type closing struct {
	backend.Conn
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}
