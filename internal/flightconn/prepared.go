package flightconn

import (
	"bytes"
	"cmp"
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"

	"github.com/flightpool/flightpool/backend"

	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// prepared is backend.Prepared: a handle on the server.
//
// It lives until Close or the end of the session. The handle means nothing to
// another session, so each execution needs the connection's own
// (callInfo.needsSession).
//
// One call at a time is the session's rule; Close may come beside one. params
// and rows are nil where the server does not tell.
type prepared struct {
	conn    *Conn
	params  *arrow.Schema
	rows    *arrow.Schema
	headers metadata.MD // of the preparing, which go with the closing too

	mu struct { // guards the fields below; nothing is called under it
		sync.Mutex
		handle        []byte // replaced when a bind is answered by another
		bound         bool   // that has happened
		boundForQuery bool   // the server may have parameters of a query
		closed        bool
	}
}

// Prepare is part of backend.Conn.
func (c *Conn) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	ctx, r, err := c.begin(ctx, "Prepare", call.Headers)
	if err != nil {
		return nil, err
	}
	defer r.end()
	reply, err := r.prepare(ctx, sql, call)
	if err != nil {
		return nil, r.wrapError(backend.StagePrepare, err)
	}
	params, err := decodeSchema(reply.GetParameterSchema())
	if err != nil {
		params = nil // as good as not told: the server judges the parameters
	}
	rows, err := decodeSchema(reply.GetDatasetSchema())
	if err != nil {
		rows = nil // as good as not told: the rows bring their own
	}
	p := &prepared{conn: c, rows: rows, headers: call.Headers}
	p.mu.handle = reply.GetPreparedStatementHandle()
	p.params = ByNumber(params, sql, string(p.mu.handle))
	return p, nil
}

// ParameterSchema is part of backend.Prepared.
func (p *prepared) ParameterSchema() *arrow.Schema { return p.params }

// ResultSchema is part of backend.ResultDescriber.
func (p *prepared) ResultSchema() *arrow.Schema { return p.rows }

// Handle is part of backend.HandleNamer.
func (p *prepared) Handle() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.bound {
		return ""
	}
	return string(p.mu.handle)
}

// FirstHandle is part of backend.HandleTeller.
func (p *prepared) FirstHandle() string { return p.Handle() }

// Query is part of backend.Prepared. Parameters are bound by a round trip of
// their own; without any the handle's last binding stands, which some servers
// have dropped by then. All rows are bound, but a server may use the first
// alone.
func (p *prepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	if err := p.conn.CheckNulls(ctx, params, p.params, call); err != nil {
		return nil, err
	}
	return p.query(ctx, params, call)
}

func (p *prepared) query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	ctx, r, handle, err := p.begin(ctx, "PreparedQuery", params, call)
	if err != nil {
		return nil, err
	}
	if params != nil {
		rows := OwnNames(p.params, params)
		defer rows.Release()
		if handle, err = p.bind(ctx, r, handle, rows); err != nil {
			r.end()
			return nil, r.wrapError(backend.StagePrepare, err)
		}
	}
	return r.query(ctx, &pb.CommandPreparedStatementQuery{PreparedStatementHandle: handle}, call)
}

// Update is part of backend.Prepared. All rows of params go in one RPC. The
// server executes the statement once for each row. The handle is not replaced
// by it.
//
// INVARIANT: no update runs with the parameters of a query before it, which ClickHouse takes in
// place of those that come with it: where there was one, they are bound as well.
func (p *prepared) Update(ctx context.Context, params arrow.RecordBatch, call backend.Call) (int64, error) {
	if err := p.conn.CheckNulls(ctx, params, p.params, call); err != nil {
		return 0, err
	}
	ctx, r, handle, err := p.begin(ctx, "PreparedUpdate", params, call)
	if err != nil {
		return 0, err
	}
	defer r.end()
	must := readsAll
	if params == nil { // servers expect a schema even so
		must = readsCommand
		params = array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 0)
		defer params.Release()
	} else if p.isBoundForQuery() {
		if handle, err = p.bind(ctx, r, handle, params); err != nil {
			return 0, r.wrapError(backend.StagePrepare, err)
		}
	}
	messages, err := r.encodeParams(&pb.CommandPreparedStatementUpdate{PreparedStatementHandle: handle}, params)
	if err != nil {
		return 0, r.wrapError(backend.StagePrepare, err)
	}
	n, err := r.putCount(ctx, fixedMessages(messages...), must)
	if err != nil {
		return 0, r.wrapError(backend.StageExecute, err)
	}
	return n, nil
}

// begin starts a call with the current handle, if params fit the statement. The
// caller must call end of the call that it returns, unless it hands it to
// rpcCall.query.
func (p *prepared) begin(ctx context.Context, op string, params arrow.RecordBatch, call backend.Call) (context.Context, *rpcCall, []byte, error) {
	ctx, r, err := p.conn.begin(ctx, op, call.Headers)
	if err != nil {
		return nil, nil, nil, err
	}
	r.info.needsSession = true
	p.mu.Lock()
	handle, closed := p.mu.handle, p.mu.closed
	p.mu.Unlock()
	if closed {
		err = r.usageError("%w", backend.ErrHandleClosed)
	} else if params != nil {
		if fault := cmp.Or(CheckParams(p.params, params), CheckSendable(params.Schema())); fault != nil {
			err = r.usageError("%w", fault)
		}
	}
	if err != nil {
		r.end()
		return nil, nil, nil, err
	}
	return ctx, r, handle, nil
}

// bind sends the parameters of a query. The server may answer with another
// handle, which then stands for the statement with its parameters.
//
// The new handle is kept for later calls and for Close. An answer without one, or with an empty one,
// leaves the handle as it was, and so does an error. Some servers answer each message that they are
// sent: the last answer that says something counts.
func (p *prepared) bind(ctx context.Context, r *rpcCall, handle []byte, params arrow.RecordBatch) ([]byte, error) {
	messages, err := r.encodeParams(&pb.CommandPreparedStatementQuery{PreparedStatementHandle: handle}, params)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.mu.boundForQuery, r.bound = true, true
	p.mu.Unlock()
	answers, err := r.put(ctx, fixedMessages(messages...), readsAll)
	if err != nil {
		return nil, err
	}
	var result pb.DoPutPreparedStatementResult
	if err := proto.Unmarshal(answers.metadata, &result); err != nil {
		return nil, malformed("prepared statement handle: %w", err)
	}
	if updated := result.GetPreparedStatementHandle(); len(updated) > 0 {
		p.mu.Lock()
		p.mu.bound = p.mu.bound || !bytes.Equal(p.mu.handle, updated)
		p.mu.handle = updated
		p.mu.Unlock()
		handle = updated
	}
	return handle, nil
}

func (p *prepared) isBoundForQuery() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.boundForQuery
}

// encodeParams makes the messages of a bind, all of them, so that a row that
// cannot be sent is found while nothing has been.
func (r *rpcCall) encodeParams(cmd proto.Message, params arrow.RecordBatch) ([]*putMessage, error) {
	desc, err := r.descriptor(cmd)
	if err != nil {
		return nil, err
	}
	e := newEncoder(desc, params.Schema(), r.conn.cfg().RequestLimit)
	defer e.close()
	return e.encode(params)
}

// Close is part of backend.Prepared. Later calls do nothing. The handle is
// given up even where the server does not answer: the end of the session frees
// it then.
func (p *prepared) Close(ctx context.Context) error {
	p.mu.Lock()
	handle, closed := p.mu.handle, p.mu.closed
	p.mu.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	ctx, r, err := p.conn.begin(ctx, "PreparedClose", p.headers)
	if err != nil {
		return err
	}
	defer r.end()
	req := &pb.ActionClosePreparedStatementRequest{PreparedStatementHandle: handle}
	if err := p.conn.sqlAction(r.rpcContext(ctx), p.conn.flight, flightsql.ClosePreparedStatementActionType, req, nil); err != nil {
		return r.wrapError(backend.StageClose, err)
	}
	return nil
}
