package testserver

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// service takes the RPCs of one connection. It lets them in, lets faults strike
// before and after them, and hands them to the handlers.
type service struct {
	flight.FlightServer // the Flight SQL decoding in front of the handlers
	srv                 *Server
	conn                *serverConn
}

func newService(srv *Server, conn *serverConn) *service {
	sql := flightsql.NewFlightServerWithAllocator(srv.handlers, srv.opts.Allocator)
	return &service{FlightServer: sql, srv: srv, conn: conn}
}

// fireAfter lets faults strike a finished RPC. reply may be changed by them.
func (f *service) fireAfter(ctx context.Context, on Point, sql string, reply any) error {
	return f.srv.faults.fire(ctx, faultMoment{on: on, after: true, sql: sql, conn: f.conn, reply: reply})
}

func (f *service) Handshake(stream flight.FlightService_HandshakeServer) error {
	ctx := stream.Context()
	if err := f.srv.faults.fire(ctx, faultMoment{on: OnHandshake, conn: f.conn}); err != nil {
		return err
	}
	if err := f.srv.auth.handshake(stream); err != nil {
		f.srv.ledger.update(func(now *Snapshot) { now.Refused++ })
		return err
	}
	return f.fireAfter(ctx, OnHandshake, "", nil)
}

func (f *service) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if err := f.srv.checkSize(d); err != nil {
		return nil, err
	}
	cmd, sql := f.command(d.GetCmd())
	ctx, end, err := f.beginRPC(ctx, OnGetFlightInfo, cmd, sql, openSession)
	defer end()
	if err != nil {
		return nil, err
	}
	info, err := f.FlightServer.GetFlightInfo(ctx, d)
	if err != nil {
		return nil, err
	}
	return info, f.fireAfter(ctx, OnGetFlightInfo, sql, info)
}

func (f *service) GetSchema(ctx context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	cmd, sql := f.command(d.GetCmd())
	ctx, end, err := f.beginRPC(ctx, "GetSchema", cmd, sql, openSession)
	defer end()
	if err != nil {
		return nil, err
	}
	return f.FlightServer.GetSchema(ctx, d)
}

func (f *service) PollFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	cmd, sql := f.command(d.GetCmd())
	ctx, end, err := f.beginRPC(ctx, "PollFlightInfo", cmd, sql, openSession)
	defer end()
	if err != nil {
		return nil, err
	}
	return f.FlightServer.PollFlightInfo(ctx, d)
}

func (f *service) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	cmd, sql := f.command(t.GetTicket())
	ctx, end, err := f.beginRPC(stream.Context(), OnDoGet, cmd, sql, openSession)
	defer end()
	if err != nil {
		return err
	}
	f.srv.ledger.update(func(now *Snapshot) { now.Streams++ })
	defer f.srv.ledger.update(func(now *Snapshot) { now.Streams-- })
	out := &getStream{FlightService_DoGetServer: stream, ctx: ctx, service: f, sql: sql}
	if err := f.FlightServer.DoGet(t, out); out.failed == nil {
		return err
	}
	return out.failed
}

func (f *service) DoPut(stream flight.FlightService_DoPutServer) error {
	first, err := stream.Recv()
	if err == nil {
		err = f.srv.checkSize(first)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	cmd, sql := f.command(first.GetFlightDescriptor().GetCmd())
	ctx, end, err := f.beginRPC(stream.Context(), OnDoPut, cmd, sql, openSession)
	defer end()
	if err != nil {
		return err
	}
	out := &putStream{FlightService_DoPutServer: stream, ctx: ctx, service: f, sql: sql, first: first}
	return f.FlightServer.DoPut(out)
}

func (f *service) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	if err := f.srv.checkSize(a); err != nil {
		return err
	}
	n, sql := openSession, ""
	switch a.GetType() {
	case "CancelFlightInfo", "CancelQuery", "RenewFlightEndpoint", "CloseSession", "GetSessionOptions":
		n = noSession
	case "CreatePreparedStatement":
		_, sql = f.command(a.GetBody())
	default:
		if slices.Contains(f.srv.profile.CancelActions, a.GetType()) {
			n = noSession
		}
	}
	ctx, end, err := f.beginRPC(stream.Context(), "DoAction", a.GetType(), sql, n)
	defer end()
	if err != nil {
		return err
	}
	out := &actionStream{FlightService_DoActionServer: stream, ctx: ctx, service: f, on: Point(a.GetType()), sql: sql}
	if slices.Contains(f.srv.profile.CancelActions, a.GetType()) {
		return f.srv.handlers.customCancel(ctx, a, out)
	}
	return f.FlightServer.DoAction(a, out)
}

func (f *service) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	ctx, end, err := f.beginRPC(stream.Context(), OnListActions, "", "", noSession)
	defer end()
	if err != nil {
		return err
	}
	for _, name := range f.actions() {
		a := &flight.ActionType{Type: name}
		if err := f.fireAfter(ctx, OnListActions, "", a); err != nil {
			return err
		}
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	return nil
}

// actions is what ListActions answers: the truth, or what the profile says.
func (f *service) actions() []string {
	if f.srv.profile.ListedActions != nil {
		return f.srv.profile.ListedActions
	}
	have := map[string]bool{"CloseSession": true, "GetSessionOptions": true, "SetSessionOptions": true}
	for _, name := range append(arrowActions(), f.srv.profile.CancelActions...) {
		have[name] = name != flightsql.CreatePreparedSubstraitPlanActionType
	}
	for name := range f.srv.profile.Refuse {
		have[name] = false
	}
	maps.DeleteFunc(have, func(_ string, yes bool) bool { return !yes })
	return slices.Sorted(maps.Keys(have))
}

// command returns the name of a Flight SQL command or ticket, and the SQL in
// it if there is any.
func (f *service) command(raw []byte) (name, sql string) {
	var packed anypb.Any
	if proto.Unmarshal(raw, &packed) != nil {
		return "", ""
	}
	name = string(packed.MessageName().Name())
	msg, err := packed.UnmarshalNew()
	if err != nil {
		return name, ""
	}
	switch msg := msg.(type) {
	case interface{ GetQuery() string }:
		sql = msg.GetQuery()
	case *pb.TicketStatementQuery:
		sql = f.srv.tickets.sqlOf(msg.GetStatementHandle())
	case interface{ GetPreparedStatementHandle() []byte }:
		sql = f.srv.sessions.preparedSQL(string(msg.GetPreparedStatementHandle()))
	}
	return name, sql
}

// The streams that service hands on: they carry its context and let faults
// strike what is sent.

type getStream struct {
	flight.FlightService_DoGetServer
	ctx     context.Context //nolint:containedctx // a gRPC stream has its context
	service *service
	sql     string
	schema  bool  // was sent
	failed  error // what a fault has answered
}

func (s *getStream) Context() context.Context { return s.ctx }

func (s *getStream) Send(d *flight.FlightData) error {
	at := faultMoment{on: OnBatch, sql: s.sql, conn: s.service.conn, reply: d}
	if !s.schema {
		s.schema = true
		at.on, at.after = OnDoGet, true
	}
	if s.failed = s.service.srv.faults.fire(s.ctx, at); s.failed != nil {
		return s.failed
	}
	return s.FlightService_DoGetServer.Send(d)
}

type putStream struct {
	flight.FlightService_DoPutServer
	ctx     context.Context //nolint:containedctx // a gRPC stream has its context
	service *service
	sql     string
	first   *flight.FlightData // read by service, still to be handed on
}

func (s *putStream) Context() context.Context { return s.ctx }

func (s *putStream) Recv() (*flight.FlightData, error) {
	if d := s.first; d != nil {
		s.first = nil
		return d, nil
	}
	d, err := s.FlightService_DoPutServer.Recv()
	if err == nil {
		err = s.service.srv.checkSize(d)
	}
	return d, err
}

func (s *putStream) Send(r *flight.PutResult) error {
	if err := s.service.fireAfter(s.ctx, OnDoPut, s.sql, r); err != nil {
		return err
	}
	return s.FlightService_DoPutServer.Send(r)
}

type actionStream struct {
	flight.FlightService_DoActionServer
	ctx     context.Context //nolint:containedctx // a gRPC stream has its context
	service *service
	on      Point
	sql     string
}

func (s *actionStream) Context() context.Context { return s.ctx }

func (s *actionStream) Send(r *flight.Result) error {
	if err := s.service.fireAfter(s.ctx, s.on, s.sql, r); err != nil {
		return err
	}
	return s.FlightService_DoActionServer.Send(r)
}
