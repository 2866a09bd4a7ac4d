package testserver

import (
	"context"
	"maps"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/testserver/engine"
)

// handlers are the Flight SQL calls, decoded. The call and its session are in
// their context.
type handlers struct {
	flightsql.BaseServer
	srv *Server
}

func newHandlers(srv *Server) (*handlers, error) {
	h := &handlers{srv: srv}
	h.Alloc = srv.opts.Allocator // BaseServer would set it later, in a race
	srv.tickets.srv = srv
	for id, value := range srv.sqlInfo() {
		if err := h.RegisterSqlInfo(id, value); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// sqlInfo is what the engine and the profile tell of themselves.
func (s *Server) sqlInfo() map[flightsql.SqlInfo]any {
	if s.profile.SQLInfo != nil {
		return s.profile.SQLInfo
	}
	have := func(name string) bool { _, refused := s.profile.Refuse[name]; return !refused }
	tx := flightsql.SqlTransactionNone
	switch {
	case have("BeginSavepoint"):
		tx = flightsql.SqlTransactionSavepoint
	case have("BeginTransaction"):
		tx = flightsql.SqlTransactionTransaction
	}
	info := map[flightsql.SqlInfo]any{
		flightsql.SqlInfoFlightSqlServerName:                        "testserver " + s.profile.Name,
		flightsql.SqlInfoFlightSqlServerVersion:                     "1",
		flightsql.SqlInfoFlightSqlServerArrowVersion:                arrow.PkgVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly:                    !have("CommandStatementUpdate"),
		flightsql.SqlInfoFlightSqlServerTransaction:                 int32(tx),
		flightsql.SqlInfoFlightSqlServerCancel:                      have("CancelFlightInfo"),
		flightsql.SqlInfoFlightSqlServerBulkIngestion:               have("CommandStatementIngest"),
		flightsql.SqlInfoFlightSqlServerIngestTransactionsSupported: have("CommandStatementIngest") && have("BeginTransaction"),
	}
	maps.Copy(info, s.opts.Engine.SQLInfo())
	return info
}

// info makes the reply of GetFlightInfo. A nil schema is left out.
func (h *handlers) info(d *flight.FlightDescriptor, schema *arrow.Schema, tickets ...[]byte) *flight.FlightInfo {
	info := &flight.FlightInfo{FlightDescriptor: d, TotalRecords: -1, TotalBytes: -1, Ordered: !h.srv.profile.Unordered}
	if schema != nil && !h.srv.profile.NoSchema {
		info.Schema = flight.SerializeSchema(schema, h.Alloc)
	}
	for _, t := range tickets {
		info.Endpoint = append(info.Endpoint, &flight.FlightEndpoint{
			Ticket:   &flight.Ticket{Ticket: t},
			Location: h.srv.locations(),
		})
	}
	return info
}

// locations are those that every endpoint gets.
func (s *Server) locations() []*flight.Location {
	var all []*flight.Location
	for _, l := range s.profile.Locations {
		uri := flight.LocationReuseConnection
		switch l {
		case OwnAddress:
			uri = s.uri
		case Unreachable:
			uri = "grpc+tcp://127.0.0.1:1" // a reserved port that nobody listens on
		case ReuseConnection:
		}
		all = append(all, &flight.Location{Uri: uri})
	}
	return all
}

// describe asks the engine about a statement, with the session's engineLock.
func (h *handlers) describe(ctx context.Context, c *call, sql, tx string) (d engine.Description, err error) {
	err = c.sess.withEngineLock(ctx, func() error {
		if err := c.sess.checkTx(tx); err != nil {
			return err
		}
		d, err = c.sess.engine.Describe(ctx, sql)
		return h.srv.statusOf(ctx, err)
	})
	return d, err
}
