package testserver

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/flight"
)

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
