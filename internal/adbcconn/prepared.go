package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unicode/utf8"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// prepared is backend.Prepared: a prepared statement of the driver's. The
// driver allows one call at a time on a statement, and sees to nothing itself:
// the session does.
type prepared struct {
	conn          *Conn
	sql           string
	stmt          adbc.Statement
	params        *arrow.Schema
	rows          *arrow.Schema
	handle        string      // the server's
	headers       metadata.MD // of the preparing, which go with the closing too
	boundForQuery bool        // with parameters
	closed        atomic.Bool
}

// Prepare is part of backend.Conn.
//
// INVARIANT: no statement is executed that is one with those of others, as equal texts are on Arrow's reference server in Java.
func (c *Conn) Prepare(ctx context.Context, sql string, sc backend.Call) (backend.Prepared, error) {
	for {
		p, again, err := c.prepareUnlessShared(ctx, sql, sc)
		switch {
		case p == nil:
			return nil, err
		case !again && err == nil:
			return p, nil
		}
		if failed := p.Close(ctx); err != nil || failed != nil && !backend.FaultIn(failed).KeepsConn() {
			return nil, cmp.Or(err, failed)
		}
	}
}

// prepareUnlessShared prepares a text in the form in which it is nobody else's. What comes beside again, or an error, is, and must be closed.
func (c *Conn) prepareUnlessShared(ctx context.Context, sql string, sc backend.Call) (p *prepared, again bool, err error) {
	attempt := c.BeginPrepare(ctx, sql)
	defer attempt.End()
	if p, err = c.prepare(ctx, attempt.Text, sc); err != nil {
		return nil, false, err
	}
	p.sql = sql
	again, err = attempt.Learn(p.handle)
	return p, again, err
}

// prepare has the driver prepare a text. Schemas come with the answer; asking for
// them makes no further RPC.
func (c *Conn) prepare(ctx context.Context, sql string, sc backend.Call) (*prepared, error) {
	k, err := c.begin(ctx, "Prepare", sc)
	if err != nil {
		return nil, err
	}
	defer k.end()
	stmt, err := k.statement(sql)
	if err != nil {
		return nil, err
	}
	if err := stmt.Prepare(k.ctx); err != nil {
		err = k.wrapError(backend.StagePrepare, err)
		_ = stmt.Close()
		return nil, err
	}
	p := &prepared{conn: c, sql: sql, stmt: stmt, handle: k.preparedHandle, headers: sc.Headers}
	p.rows = preparedResultSchema(k.ctx, stmt)
	if schema, err := stmt.GetParameterSchema(); err == nil {
		p.params = flightconn.ByNumber(schema, sql, p.handle) // else the server did not tell
	}
	return p, nil
}

// ParameterSchema is part of backend.Prepared.
func (p *prepared) ParameterSchema() *arrow.Schema { return p.params }

// ResultSchema is part of backend.ResultDescriber.
func (p *prepared) ResultSchema() *arrow.Schema { return p.rows }

// FirstHandle is part of backend.HandleTeller.
func (p *prepared) FirstHandle() string { return p.handle }

// preparedResultSchema is the schema of a prepared statement's rows, which the Flight
// SQL driver keeps from the preparing, or nil.
func preparedResultSchema(ctx context.Context, stmt adbc.Statement) *arrow.Schema {
	if described, ok := stmt.(adbc.StatementExecuteSchema); ok {
		if schema, err := described.ExecuteSchema(ctx); err == nil {
			return schema
		}
	}
	return nil
}

// Query is part of backend.Prepared. The parameters stay bound until the result
// is released, as the driver sends them while it executes.
func (p *prepared) Query(ctx context.Context, params arrow.RecordBatch, sc backend.Call) (backend.Stream, error) {
	if params != nil {
		params = flightconn.OwnNames(p.params, params)
		defer params.Release()
	}
	k, err := p.begin(ctx, "PreparedQuery", params, sc)
	if err != nil {
		return nil, err
	}
	k.binds, p.boundForQuery = true, p.boundForQuery || params != nil
	return k.query(p.stmt, func() { p.unbind(k) })
}

// Update is part of backend.Prepared.
func (p *prepared) Update(ctx context.Context, params arrow.RecordBatch, sc backend.Call) (int64, error) {
	if params != nil && !p.closed.Load() && mustPrepareForUpdate(p.boundForQuery, p.sql) {
		if err := p.prepareAgain(ctx, sc.Tx); err != nil {
			return 0, err
		}
	}
	k, err := p.begin(ctx, "PreparedUpdate", params, sc)
	if err != nil {
		return 0, err
	}
	defer k.end()
	defer p.unbind(k)
	return k.update(p.stmt)
}

// mustPrepareForUpdate reports whether a statement is prepared again for an update, bound saying that it was executed as a query
// with parameters. A text with rows is not, since there are servers to which to prepare that is to run it.
//
// INVARIANT: no update runs with the parameters of a query before it, which ClickHouse takes in place of those that come with it.
func mustPrepareForUpdate(bound bool, sql string) bool {
	return bound && sqlscan.Parse(sql).Rows() == sqlscan.RowsNone
}

// prepareAgain puts another statement of the same text in the place of the driver's.
func (p *prepared) prepareAgain(ctx context.Context, tx backend.TxID) error {
	made, err := p.conn.Prepare(ctx, p.sql, backend.Call{Tx: tx, Headers: p.headers})
	if err != nil {
		return err
	}
	before := made.(*prepared)
	p.stmt, before.stmt = before.stmt, p.stmt
	p.handle, p.boundForQuery = before.handle, false
	if err := before.Close(ctx); err != nil && !backend.FaultIn(err).KeepsConn() {
		return err
	}
	return nil
}

// begin starts a call with params bound, in parts that the server accepts. The
// caller must unbind and end the call. Parameters that cannot be sent, or which the
// server takes for others, are the caller's fault, found before anything is.
func (p *prepared) begin(ctx context.Context, op string, params arrow.RecordBatch, sc backend.Call) (*call, error) {
	if err := p.conn.CheckNulls(ctx, params, p.params, sc); err != nil {
		return nil, err
	}
	k, err := p.conn.begin(ctx, op, sc)
	if err != nil {
		return nil, err
	}
	k.external.NeedsSession()
	if err := p.bind(k, params); err != nil {
		err = k.external.Usage(err)
		k.end()
		return nil, err
	}
	return k, nil
}

// bind gives the driver params, which it sends with the execution. nil leaves
// the statement without any.
func (p *prepared) bind(k *call, params arrow.RecordBatch) error {
	if p.closed.Load() {
		return backend.ErrHandleClosed
	}
	if params == nil {
		return nil
	}
	if err := cmp.Or(flightconn.CheckParams(p.params, params), flightconn.CheckSendable(params.Schema())); err != nil {
		return err
	}
	parts, err := split(params, k.external.RequestLimit())
	if err != nil {
		return err
	}
	defer parts.Release()
	k.sendsRows = true
	return p.stmt.BindStream(k.ctx, parts)
}

// unbind lets go of the parameters, which the driver would send again with
// the next execution.
func (p *prepared) unbind(k *call) { _ = p.stmt.Bind(k.ctx, nil) }

// Close is part of backend.Prepared. Later calls do nothing. The driver closes
// a statement without a context, so that its RPC is found by the client
// (closingStatement).
func (p *prepared) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	k, err := p.conn.begin(ctx, "PreparedClose", backend.Call{Headers: p.headers})
	if err != nil {
		return err
	}
	defer k.end()
	p.conn.closingStatement.Store(k)
	err = p.stmt.Close()
	p.conn.closingStatement.Store(nil)
	if err != nil {
		return k.wrapError(backend.StageClose, err)
	}
	return nil
}

// statement makes a statement of the driver's for sql, unless servers would refuse that for its size, or it cannot be sent. No RPC is made.
func (k *call) statement(sql string) (adbc.Statement, error) {
	if limit := k.external.RequestLimit(); len(sql) > limit {
		return nil, k.external.Usage(fmt.Errorf("the statement is %d bytes, above the limit of %d for one message", len(sql), limit))
	}
	if !utf8.ValidString(sql) {
		return nil, k.external.Usage(errNotUTF8)
	}
	stmt, err := k.conn.cn.NewStatement()
	if err == nil {
		if err = stmt.SetSqlQuery(sql); err != nil {
			_ = stmt.Close()
		}
	}
	if err != nil {
		return nil, k.external.Usage(WithCause(err, nil))
	}
	return stmt, nil
}

var errNotUTF8 = errors.New("the statement cannot be sent: it is not UTF-8")
