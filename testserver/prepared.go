package testserver

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// prepared is a prepared statement of one session.
type prepared struct {
	sql, tx string
	desc    Description

	mu     sync.Mutex
	params []arrow.RecordBatch // bound, owned
}

// bind replaces the parameters; it takes them over.
func (p *prepared) bind(params []arrow.RecordBatch) {
	p.mu.Lock()
	old := p.params
	p.params = params
	p.mu.Unlock()
	releaseAll(old)
}

// bound returns the parameters, retained.
func (p *prepared) bound() []arrow.RecordBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.params {
		b.Retain()
	}
	return append([]arrow.RecordBatch(nil), p.params...)
}

func (s *session) findPrepared(handle []byte) (*prepared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.mu.prepared[string(handle)]; p != nil {
		return p, nil
	}
	return nil, status.Error(codes.InvalidArgument, "unknown prepared statement")
}

// preparedSQL finds the statement of a handle in any session.
func (s *sessions) preparedSQL(handle string) string {
	for _, sess := range s.all() {
		sess.mu.Lock()
		p := sess.mu.prepared[handle]
		sess.mu.Unlock()
		if p != nil {
			return p.sql
		}
	}
	return ""
}

func (h *handlers) CreatePreparedStatement(ctx context.Context, r flightsql.ActionCreatePreparedStatementRequest) (flightsql.ActionCreatePreparedStatementResult, error) {
	var result flightsql.ActionCreatePreparedStatementResult
	c := callOf(ctx)
	c.sess.touch()
	p := &prepared{sql: r.GetQuery(), tx: string(r.GetTransactionId())}
	var err error
	if p.desc, err = h.describe(ctx, c, p.sql, p.tx); err != nil {
		return result, err
	}
	handle := c.sess.newID()
	c.sess.mu.Lock()
	c.sess.mu.prepared[handle] = p
	c.sess.mu.Unlock()
	h.srv.ledger.update(func(now *Snapshot) { now.Prepared++ })

	result.Handle = []byte(handle)
	result.DatasetSchema, result.ParameterSchema = p.desc.Rows, p.desc.Params
	result.IsUpdate = &p.desc.Update
	return result, nil
}

func (h *handlers) ClosePreparedStatement(ctx context.Context, r flightsql.ActionClosePreparedStatementRequest) error {
	sess := callOf(ctx).sess
	p, err := sess.findPrepared(r.GetPreparedStatementHandle())
	if err != nil {
		return err
	}
	sess.mu.Lock()
	_, mine := sess.mu.prepared[string(r.GetPreparedStatementHandle())]
	delete(sess.mu.prepared, string(r.GetPreparedStatementHandle()))
	sess.mu.Unlock()
	if mine {
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
	params, err := readParams(rows)
	if err != nil {
		return nil, err
	}
	if h.srv.profile.BindFirstRow {
		params = firstRow(params)
	}
	p.bind(params)
	if !h.srv.profile.RenewHandles {
		return q.GetPreparedStatementHandle(), nil
	}
	handle := sess.newID()
	sess.mu.Lock()
	defer sess.mu.Unlock()
	delete(sess.mu.prepared, string(q.GetPreparedStatementHandle()))
	sess.mu.prepared[handle] = p
	return []byte(handle), nil
}

func (h *handlers) DoPutPreparedStatementUpdate(ctx context.Context, u flightsql.PreparedStatementUpdate, rows flight.MessageReader) (int64, error) {
	p, err := callOf(ctx).sess.findPrepared(u.GetPreparedStatementHandle())
	if err != nil {
		return 0, err
	}
	params, err := readParams(rows)
	if err != nil {
		return 0, err
	}
	return h.update(ctx, Statement{SQL: p.sql, Kind: KindUpdate, Tx: p.tx}, params)
}

func (h *handlers) GetFlightInfoPreparedStatement(ctx context.Context, q flightsql.PreparedStatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	p, err := callOf(ctx).sess.findPrepared(q.GetPreparedStatementHandle())
	if err != nil {
		return nil, err
	}
	st := Statement{SQL: p.sql, Kind: KindQuery, Tx: p.tx}
	if h.srv.profile.RoamingTickets {
		return h.info(d, p.desc.Rows, d.Cmd), nil // DoGetPreparedStatement redeems it
	}
	return h.plan(ctx, st, h.take(p), d)
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
	return h.stream(ctx, c, &ticket{sess: c.sess, stmt: Statement{SQL: p.sql, Kind: KindQuery, Tx: p.tx}, bind: h.take(p)})
}

// take returns the parameters for one run.
func (h *handlers) take(p *prepared) []arrow.RecordBatch {
	params := p.bound()
	if h.srv.profile.BindFirstRow {
		p.bind(nil)
	}
	return params
}

// readParams reads all batches; a stream without columns binds nothing.
func readParams(rows array.RecordReader) ([]arrow.RecordBatch, error) {
	var params []arrow.RecordBatch
	for rows.Next() {
		if b := rows.RecordBatch(); b.NumCols() > 0 {
			b.Retain()
			params = append(params, b)
		}
	}
	if err := rows.Err(); err != nil {
		releaseAll(params)
		return nil, status.Errorf(codes.InvalidArgument, "parameters: %v", err)
	}
	return params, nil
}

// firstRow keeps the first row only; it takes params over.
func firstRow(params []arrow.RecordBatch) []arrow.RecordBatch {
	defer releaseAll(params)
	for _, b := range params {
		if b.NumRows() > 0 {
			return []arrow.RecordBatch{b.NewSlice(0, 1)}
		}
	}
	return nil
}
