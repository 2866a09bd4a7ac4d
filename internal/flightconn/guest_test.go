package flightconn

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func (b *bubble) host(c *Conn, op string) *ExternalCall {
	b.Helper()
	g, err := c.BeginExternal(b.Context(), op, nil)
	require.NoError(b, err)
	b.Cleanup(g.End)
	return g
}

func describe(cmd proto.Message) *pb.FlightDescriptor {
	return &pb.FlightDescriptor{Type: pb.FlightDescriptor_CMD, Cmd: pack(cmd)}
}

// endpointOf is the only named endpoint of an Info of one.
func endpointOf(t testing.TB, info *pb.FlightInfo) *FlightEndpoint {
	in, err := newInfo(marshal(info))
	require.NoError(t, err)
	all, err := in.Endpoints()
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

const getFlightInfo = "/arrow.flight.protocol.FlightService/GetFlightInfo"

func TestAnotherClientsCallsEndWithTheirContextTheirCallAndTheConnection(t *testing.T) {
	asked := make(chan struct{}, 1)
	f := &fake{info: func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if isProbe(d) {
			return nil, status.Error(codes.NotFound, "no information")
		}
		if string(d.GetCmd()) == "wait" {
			asked <- struct{}{}
			return nil, silence(ctx)
		}
		return answer(int64Schema, "0"), nil
	}}
	inBubble(t, f, func(b *bubble) {
		c := b.open()
		g := b.host(c, "Foreign")
		require.Equal(b, c.cfg().RequestLimit, g.RequestLimit())
		var info pb.FlightInfo
		require.NoError(b, g.Invoke(b.Context(), getFlightInfo, &pb.FlightDescriptor{Cmd: []byte("q")}, &info))
		require.Len(b, info.GetEndpoint(), 1)
		err := g.Invoke(b.Context(), "/arrow.flight.protocol.FlightService/GetSchema", &pb.FlightDescriptor{}, &pb.SchemaResult{})
		require.Equal(b, codes.Unimplemented, status.Code(err), "what the server says is returned")

		waiting := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { done <- g.Invoke(ctx, getFlightInfo, &pb.FlightDescriptor{Cmd: []byte("wait")}, &info) }()
			<-asked
			return done
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := waiting(ctx)
		cancel()
		require.Equal(b, codes.Canceled, status.Code(<-ended))
		ended = waiting(b.Context())
		g.End()
		require.Equal(b, codes.Canceled, status.Code(<-ended))
		require.Error(b, g.Context().Err())

		require.NoError(b, c.Close())
		_, err = c.BeginExternal(b.Context(), "Foreign", nil)
		require.Equal(b, backend.FaultTransport, failure(b, err).Fault)
		require.True(b, failure(b, err).Unsent)
		_, err = c.BeginExternal(b.Context(), "Foreign", metadata.MD{"cookie": {"x"}})
		require.Equal(b, backend.FaultUsage, failure(b, err).Fault)
	})
}

func TestAnotherClientsFaultsAreTheConnectionsOwn(t *testing.T) {
	inBubble(t, &fake{}, func(b *bubble) {
		g := b.host(b.open(), "Foreign")
		cause := errors.New("why")
		for fault, err := range map[backend.Fault]error{
			backend.FaultUsage:       g.Usage(cause),
			backend.FaultUnsupported: g.Unsupported(backend.StagePrepare, cause),
			backend.FaultStatement:   g.WrapError(backend.StageExecute, status.Error(codes.InvalidArgument, "why")),
		} {
			e := failure(b, err)
			require.Equal(b, fault, e.Fault)
			require.Equal(b, "Foreign", e.Op)
			require.Equal(b, here, e.Target)
			require.ErrorContains(b, err, "why")
		}
	})
}

// A server may have PollFlightInfo for some commands: which, it says when asked.
func TestAnotherClientsPlansTellTheirProgress(t *testing.T) {
	var polled []string
	f := &fake{info: infoOf(answer(int64Schema, "0"))}
	f.poll = func(_ context.Context, d *pb.FlightDescriptor) (*pb.PollInfo, error) {
		var cmd pb.CommandStatementQuery
		if unpack(d.GetCmd(), &cmd) != nil {
			polled = append(polled, "refused")
			return nil, status.Error(codes.Unimplemented, "no such poll")
		}
		polled = append(polled, cmd.GetQuery())
		return &pb.PollInfo{Info: answer(int64Schema, "0", "1")}, nil
	}
	inBubble(t, f, func(b *bubble) {
		g := b.host(b.open(), "Foreign")
		told := 0
		call := backend.Call{Progress: func(float64, bool) { told++ }}
		for range 2 {
			info, err := g.Plan(describe(&pb.CommandGetCatalogs{}), call)
			require.NoError(b, err)
			require.Equal(b, 1, info.Len(), "by GetFlightInfo")
		}
		require.Zero(b, told)
		info, err := g.Plan(describe(&pb.CommandStatementQuery{Query: "q"}), call)
		require.NoError(b, err)
		require.Equal(b, 2, info.Len())
		require.Equal(b, 1, told)
		require.Equal(b, []string{"refused", "q"}, polled, "a kind that is refused is not asked for again")
	})
}

func TestAnotherClientReadsAnEndpointMessageByMessage(t *testing.T) {
	batch := int64Batch(1, 2, 3)
	defer batch.Release()
	data := send(t, batch)
	remote := &fake{get: func(ticket *pb.Ticket, s pb.FlightService_DoGetServer) error {
		switch string(ticket.GetTicket()) {
		case "none":
			return nil
		case "refused":
			return status.Error(codes.InvalidArgument, "no such ticket")
		case "garbage":
			return errors.Join(s.Send(data[0]), s.Send(&pb.FlightData{DataHeader: []byte("garbage")}))
		case "cut":
			return errors.Join(s.Send(data[0]), status.Error(codes.Internal, "in the middle"))
		default: // metadata alone carries no Arrow data
			return errors.Join(s.Send(&pb.FlightData{AppMetadata: []byte("m")}), s.Send(data[0]), s.Send(&pb.FlightData{AppMetadata: []byte("m")}), s.Send(data[1]))
		}
	}}
	inBubble(t, remote, func(b *bubble) {
		b.net.serve(b, "remote:2", remote)
		c := b.open()
		for _, location := range []string{"", "grpc://remote:2"} {
			g := b.host(c, "Foreign")
			redeem := func(ticket string) (*TicketStream, error) {
				info := answer(int64Schema, ticket)
				if location != "" {
					info = at(info, location)
				}
				endpoint := endpointOf(b, info)
				return g.FetchTicket(endpoint, nil)
			}
			f, err := redeem("rows")
			require.NoError(b, err)
			require.Equal(b, data[0].GetDataHeader(), f.Peek().GetDataHeader())
			for _, want := range data {
				got, err := f.Recv()
				require.NoError(b, err)
				require.Equal(b, want.GetDataHeader(), got.GetDataHeader())
				require.Equal(b, want.GetDataBody(), got.GetDataBody())
			}
			_, err = f.Recv()
			require.Equal(b, io.EOF, err)
			synctest.Wait()
			require.Zero(b, b.endpoint.streamsAtLocations(), "the location is not in use any more")

			f, err = redeem("none")
			require.NoError(b, err)
			require.Nil(b, f.Peek())
			_, err = f.Recv()
			require.Equal(b, io.EOF, err)

			_, err = redeem("refused")
			require.Equal(b, codes.InvalidArgument, status.Code(err))

			f, err = redeem("garbage")
			require.NoError(b, err)
			_, err = f.Recv()
			require.NoError(b, err)
			_, err = f.Recv()
			require.ErrorIs(b, err, errMalformed)

			f, err = redeem("cut")
			require.NoError(b, err)
			_, err = f.Recv()
			require.NoError(b, err)
			_, err = f.Recv()
			require.ErrorContains(b, err, "in the middle")
			if location != "" {
				require.ErrorContains(b, err, location)
			}
			g.End()
		}
		_, err := b.host(c, "Foreign").FetchTicket(&FlightEndpoint{}, nil)
		require.ErrorIs(b, err, errMalformed, "no ticket")
	})
}

func (e *Endpoint) streamsAtLocations() (n int) {
	e.locations.mu.Lock()
	defer e.locations.mu.Unlock()
	for _, l := range e.locations.mu.open {
		n += l.streams
	}
	return n
}

// Transactions and prepared statements are a session's own: an answer that comes
// from another session is none, also where the server has said goodbye meanwhile.
func TestWhatNamesThingsOfASessionIsNotAnsweredByAnother(t *testing.T) {
	meanwhile := func() {}
	replaced := func(ctx context.Context) {
		meanwhile()
		_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "session=2"))
	}
	replace := false
	var closed []string
	prepare := preparing(nil, &closed)
	f := &fake{}
	f.info = func(ctx context.Context, d *pb.FlightDescriptor) (*pb.FlightInfo, error) {
		if replace {
			replaced(ctx)
			return answer(int64Schema, "0"), nil
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("set-cookie", "session=1"))
		return nil, status.Error(codes.NotFound, "no information")
	}
	f.get = byTicket
	f.put = func(s pb.FlightService_DoPutServer) error {
		if replace {
			replaced(s.Context())
		}
		return s.Send(counted(1))
	}
	f.action = func(a *pb.Action, s pb.FlightService_DoActionServer) error {
		if replace {
			replaced(s.Context())
		}
		if a.GetType() == "EndTransaction" || a.GetType() == "EndSavepoint" {
			return nil
		}
		return prepare(a, s)
	}
	for name, call := range map[string]func(b *bubble, c *Conn, p backend.Prepared) error{
		"a query": func(b *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Query(b.Context(), "q", backend.Call{Tx: "tx"})
			return err
		},
		"an update": func(b *bubble, c *Conn, _ backend.Prepared) error {
			_, err := c.Update(b.Context(), "u", backend.Call{Tx: "tx"})
			return err
		},
		"the end of a transaction": func(b *bubble, c *Conn, _ backend.Prepared) error { return c.EndTx(b.Context(), "tx", true) },
		"the end of a savepoint": func(b *bubble, c *Conn, _ backend.Prepared) error {
			return c.EndSavepoint(b.Context(), "sp", backend.SavepointRelease)
		},
		"a prepared query": func(b *bubble, _ *Conn, p backend.Prepared) error {
			_, err := p.Query(b.Context(), nil, backend.Call{})
			return err
		},
		"a prepared update": func(b *bubble, _ *Conn, p backend.Prepared) error {
			_, err := p.Update(b.Context(), nil, backend.Call{})
			return err
		},
		"another client": func(b *bubble, c *Conn, _ backend.Prepared) error {
			g := b.host(c, "Foreign")
			g.NeedsSession()
			return g.Invoke(b.Context(), getFlightInfo, &pb.FlightDescriptor{}, &pb.FlightInfo{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			replace = false
			inBubble(t, f, func(b *bubble) {
				c := b.open()
				p, err := c.Prepare(b.Context(), "p", backend.Call{})
				require.NoError(b, err)
				replace, meanwhile = true, func() {}
				require.ErrorIs(b, call(b, c, p), backend.ErrSessionReplaced)

				replace = false
				c = b.open()
				p, err = c.Prepare(b.Context(), "p", backend.Call{})
				require.NoError(b, err)
				replace, meanwhile = true, func() { c.transport.markLost(errors.New("GOAWAY")) }
				require.ErrorIs(b, call(b, c, p), backend.ErrSessionReplaced)
				require.ErrorContains(b, c.Lost(), "GOAWAY")
			})
		})
	}
}
