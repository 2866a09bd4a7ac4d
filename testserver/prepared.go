package testserver

import (
	"context"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

// prepared is a prepared statement of one session.
type prepared struct {
	sql, tx   string
	desc      engine.Description
	isCommand bool // ByText takes it for one

	mu     sync.Mutex
	params []arrow.RecordBatch // bound, owned
	closed bool                // by ClosesFailed
	ticket string              // the last that was made for it, with CancelCloses
}

// bind replaces the parameters; it takes them over.
func (p *prepared) bind(params []arrow.RecordBatch) {
	p.mu.Lock()
	old := p.params
	p.params = params
	p.mu.Unlock()
	releaseAll(old)
}

// boundParams returns the parameters, retained.
func (p *prepared) boundParams() []arrow.RecordBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.params {
		b.Retain()
	}
	return append([]arrow.RecordBatch(nil), p.params...)
}

func (h *handlers) CreatePreparedStatement(ctx context.Context, r flightsql.ActionCreatePreparedStatementRequest) (flightsql.ActionCreatePreparedStatementResult, error) {
	var result flightsql.ActionCreatePreparedStatementResult
	c := callOf(ctx)
	c.sess.restartTTL()
	p := &prepared{sql: h.srv.profile.queryText(r.GetQuery()), tx: string(r.GetTransactionId())}
	if err := h.srv.profile.checkText(p.sql); err != nil {
		return result, err
	}
	if err := h.describePrepared(ctx, c, p); err != nil {
		return result, err
	}
	handle, err := c.sess.addPrepared(ctx, p, "")
	if err != nil {
		return result, err
	}
	if !h.srv.profile.NoHandles {
		result.Handle = []byte(handle)
		h.srv.ledger.update(func(now *Snapshot) { now.Prepared++ })
	}
	result.DatasetSchema, result.ParameterSchema = p.desc.Rows, p.desc.Params
	if !h.srv.profile.ByText {
		result.IsUpdate = &p.desc.Update
	}
	return result, nil
}

// describePrepared learns of a statement that is prepared: a query is run for
// its schema where the profile does so for other queries, and of several
// statements all but the last are run, also of those that DuckDB makes of one.
func (h *handlers) describePrepared(ctx context.Context, c *call, p *prepared) error {
	parts := []string{p.sql}
	if h.srv.profile.ByText {
		parts = sqltext.Statements(p.sql)
		p.isCommand = kindOfText(parts) != textQuery
	}
	var schema *arrow.Schema
	if h.srv.profile.ByText && !p.isCommand && len(parts) == 1 {
		var err error
		k := &ticket{sess: c.sess, stmt: Statement{SQL: p.sql, Kind: KindQuery, Tx: p.tx}}
		if schema, err = h.runForSchema(ctx, c, k); err != nil {
			return err
		}
	}
	if err := h.runSteps(ctx, c, parts); err != nil {
		return err
	}
	for i, part := range parts {
		if i < len(parts)-1 {
			if _, err := h.update(ctx, Statement{SQL: part, Kind: KindUpdate, Tx: p.tx}, nil); err != nil {
				return err
			}
			continue
		}
		var err error
		if p.desc, err = h.describe(ctx, c, part, p.tx); err != nil {
			return err
		}
	}
	if h.srv.profile.ByText {
		p.desc.Rows = schema
	}
	if h.srv.profile.NullParams && !typesKnown(p.desc.Params) {
		p.desc.Params = textParams(sqltext.CountParams(p.sql))
	}
	h.nameParams(ctx, c, p)
	return nil
}

// typesKnown reports whether the types of all parameters are known.
func typesKnown(params *arrow.Schema) bool {
	if params == nil {
		return false
	}
	return !slices.ContainsFunc(params.Fields(), func(f arrow.Field) bool { return f.Type.ID() == arrow.NULL })
}

func (h *handlers) ClosePreparedStatement(ctx context.Context, r flightsql.ActionClosePreparedStatementRequest) error {
	if h.srv.profile.NoHandles {
		return nil
	}
	sess := callOf(ctx).sess
	handle := string(r.GetPreparedStatementHandle())
	if err := h.srv.profile.checkID("prepared statement handle", handle); err != nil {
		return err
	}
	p, err := sess.findPrepared([]byte(handle))
	if err != nil {
		return h.srv.profile.closeUnknown(err)
	}
	if sess.removePrepared(handle) {
		p.bind(nil)
		h.srv.ledger.update(func(now *Snapshot) { now.Prepared-- })
	}
	return nil
}

// DoPutPreparedStatementQuery binds parameters for the next runs.
func (h *handlers) DoPutPreparedStatementQuery(ctx context.Context, q flightsql.PreparedStatementQuery, rows flight.MessageReader, _ flight.MetadataWriter) ([]byte, error) {
	sess := callOf(ctx).sess
	p, err := sess.findPrepared(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	params, err := h.readParams(rows)
	if err != nil {
		return nil, err
	}
	if h.srv.profile.BindFirstRow {
		params = firstRow(params)
	}
	p.bind(params)
	switch {
	case h.srv.profile.CountedIDs: // the handle goes on; the reply names none
		return nil, nil
	case !h.srv.profile.RenewHandles:
		return q.GetPreparedStatementHandle(), nil
	}
	renewed, err := sess.addPrepared(ctx, p, string(q.GetPreparedStatementHandle()))
	return []byte(renewed), err
}

func (h *handlers) DoPutPreparedStatementUpdate(ctx context.Context, u flightsql.PreparedStatementUpdate, rows flight.MessageReader) (int64, error) {
	p, err := callOf(ctx).sess.findPrepared(u.GetPreparedStatementHandle())
	if err != nil {
		return 0, err
	}
	if h.srv.profile.ByText && !p.isCommand {
		return 0, status.Error(codes.InvalidArgument, "prepared statement returns rows; use ExecuteQuery")
	}
	params, err := h.readParams(rows)
	if err != nil {
		return 0, err
	}
	if h.srv.profile.BoundUpdates {
		releaseAll(params)
		params = p.boundParams()
		if len(params) == 0 && p.desc.Params.NumFields() > 0 {
			return 0, status.Error(codes.InvalidArgument, "Parameters were not bound before executing a prepared statement")
		}
	}
	return h.updatePrepared(ctx, p, params)
}

func (h *handlers) GetFlightInfoPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	p, err := callOf(ctx).sess.findPrepared(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	st := Statement{SQL: p.sql, Kind: KindQuery, Tx: p.tx}
	if h.srv.profile.RoamingTickets {
		rows := p.desc.Rows
		if p.isCommand {
			rows = arrow.NewSchema(nil, nil)
		}
		return h.info(d, rows, d.Cmd), nil // DoGetPreparedStatement redeems it
	}
	return h.planPrepared(ctx, p, st, d)
}

func (h *handlers) GetSchemaPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	p, err := callOf(ctx).sess.findPrepared(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	return h.schemaResult(p.desc)
}

func (h *handlers) DoGetPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	c := callOf(ctx)
	p, err := c.sess.findPrepared(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, nil, err
	}
	st := Statement{SQL: p.sql, Kind: KindQuery, Tx: p.tx}
	if p.isCommand {
		st.Kind = KindUpdate
		n, err := h.updateWith(ctx, st, h.takeParams(p), h.runAll)
		return h.commandResult(ctx, n, err)
	}
	return h.stream(ctx, c, &ticket{sess: c.sess, stmt: st, bind: h.takeParams(p)})
}

// takeParams returns the parameters for one run.
func (h *handlers) takeParams(p *prepared) []arrow.RecordBatch {
	params := p.boundParams()
	if h.srv.profile.BindFirstRow {
		p.bind(nil)
	}
	return params
}
