package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// genericPrepared is backend.Prepared of a foreign driver. Parameters go to
// the driver in one piece, but to that of Flight SQL (cutToFit).
//
// stmt belongs to the session in which it was prepared, and is used with
// driverLock held.
type genericPrepared struct {
	conn          *GenericConn
	sql           string
	call          backend.Call // that it was prepared for last
	stmt          adbc.Statement
	params        *arrow.Schema
	rows          *arrow.Schema
	boundForQuery bool // with parameters
	closed        atomic.Bool
}

// Prepare is part of backend.Conn. A statement that the driver makes too late
// is closed.
func (c *GenericConn) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	t, err := c.begin(ctx, "Prepare")
	if err != nil {
		return nil, err
	}
	defer t.end()
	p := &genericPrepared{conn: c, sql: sql}
	if err := t.prepareToKeep(p, call); err != nil {
		return nil, err
	}
	return p, nil
}

// describe keeps what the server tells of a statement.
func (p *genericPrepared) describe(ctx context.Context, stmt adbc.Statement) error {
	if err := p.describeParams(ctx, stmt); err != nil {
		return err
	}
	if p.conn.isFlightSQL { // others may ask their server for it
		p.params = flightconn.ByNumberOrColumn(p.params, p.sql)
		p.rows = preparedResultSchema(ctx, stmt)
	}
	return nil
}

// ParameterSchema is part of backend.Prepared.
func (p *genericPrepared) ParameterSchema() *arrow.Schema { return p.params }

// ResultSchema is part of backend.ResultDescriber.
func (p *genericPrepared) ResultSchema() *arrow.Schema { return p.rows }

// begin starts a call if params fit the statement. The caller must call end of
// it.
func (p *genericPrepared) begin(ctx context.Context, op string, params arrow.RecordBatch, call backend.Call) (*driverCall, error) {
	t, err := p.conn.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	if p.closed.Load() {
		err = backend.ErrHandleClosed
	} else if params != nil {
		err = cmp.Or(flightconn.CheckParams(p.params, params), p.conn.checkSendable(params.Schema()))
	}
	if err == nil && params != nil && p.conn.isFlightSQL {
		var parts array.RecordReader
		if parts, err = p.conn.cutToFit(params); err == nil {
			parts.Release()
		}
	}
	if err != nil {
		t.end()
		return nil, t.usageError(err)
	}
	if err := p.leaveTx(t, call); err != nil {
		t.end()
		return nil, err
	}
	return t, nil
}

// Query is part of backend.Prepared. The driver may hold the parameters until others
// are bound, or the statement is closed; that of Flight SQL lets go of them with the result.
func (p *genericPrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	t, err := p.begin(ctx, "PreparedQuery", params, call)
	if err != nil {
		return nil, err
	}
	p.boundForQuery = p.boundForQuery || params != nil
	return t.openStream(func(ctx context.Context) (*genericRows, error) {
		return p.conn.execute(ctx, p.bound(params, call), call)
	})
}

// bound gives the statement with params bound, which the Flight SQL driver is made to forget
// when it is done with. Of others ADBC does not say that they take no batch for that: its
// driver manager crashes. A handle from before the transaction could belong to another session:
// inside the transaction the statement is prepared again.
func (p *genericPrepared) bound(params arrow.RecordBatch, call backend.Call) toExecute {
	return func(ctx context.Context) (stmt adbc.Statement, unbind func(), err error) {
		stmt = p.stmt
		if p.conn.isProvenTx(call) && p.call.Tx != call.Tx {
			if stmt, err = p.conn.prepareInTx(ctx, p.sql, call); err != nil {
				return nil, nil, err
			}
		}
		if params == nil {
			return stmt, func() {}, nil
		}
		if !p.conn.isFlightSQL {
			whole, err := flightconn.ForC(params)
			if err != nil {
				return nil, nil, err
			}
			if err = stmt.Bind(ctx, whole); err != nil {
				whole.Release()
				return nil, nil, err
			}
			p.conn.expectOwnTx(params)
			return stmt, whole.Release, nil
		}
		parts, err := p.conn.cutToFit(params)
		if err != nil {
			return nil, nil, err
		}
		defer parts.Release()
		// The call's context may have ended by then.
		return stmt, func() { _ = stmt.Bind(context.WithoutCancel(ctx), nil) }, stmt.BindStream(ctx, parts)
	}
}

// cutToFit cuts parameters into batches that the Flight SQL driver can send, and most servers take.
//
// INVARIANT: that driver is given no parameters that it cannot send whole. It would begin to, and to servers of Arrow's C++
// library a stream that is cut has ended: they execute the statement without, or with those of the last time.
func (c *GenericConn) cutToFit(params arrow.RecordBatch) (array.RecordReader, error) {
	parts, err := split(params, min(flightconn.DefaultRequestLimit, c.maxMessage))
	if errors.As(err, new(*tooLargeError)) { // what the server takes is its affair
		parts, err = split(params, c.maxMessage)
	}
	return parts, err
}

// Update is part of backend.Prepared. The count is -1 where the driver does not
// tell.
func (p *genericPrepared) Update(ctx context.Context, params arrow.RecordBatch, call backend.Call) (int64, error) {
	t, err := p.begin(ctx, "PreparedUpdate", params, call)
	if err != nil {
		return 0, err
	}
	if p.conn.isFlightSQL && params != nil && p.call.Tx == call.Tx && mustPrepareForUpdate(p.boundForQuery, p.sql) { // else another is made for the call
		again := p.call
		again.Prove = call.Prove
		if err := t.prepareToKeep(p, again); err != nil {
			t.end()
			return 0, err
		}
	}
	return t.update(p.bound(params, call), p.sql, call)
}

// closeStatement closes the driver's statement, once. The caller holds driverLock.
func (p *genericPrepared) closeStatement() error {
	if _, open := p.conn.prepared[p]; !open {
		return nil
	}
	delete(p.conn.prepared, p)
	err := p.stmt.Close()
	p.conn.dropMark()
	return err
}

// Close is part of backend.Prepared. Later calls do nothing. In a watched
// transaction a refusal may mean that the session was replaced
// (verifyAfterRefusal). On a connection that is lost the statement is left to its Close.
func (p *genericPrepared) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	t, err := p.conn.begin(ctx, "PreparedClose")
	if err != nil {
		return err
	}
	defer t.end()
	return doInDriver(t, backend.StageClose, func(context.Context) error { return p.conn.verifyAfterRefusal(p.closeStatement()) })
}
