package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// parameters are what a statement is executed with: every row of a batch, or one row of
// Go values. The zero value is none.
type parameters struct {
	batch  arrow.RecordBatch
	values bind.Values
}

// parametersOf reads the arguments of a call. They are not looked at again, so that the
// caller may change them once the call has returned, although its step may still run.
func parametersOf(opts QueryOptions) (parameters, error) {
	if len(opts.Args) == 0 {
		return parameters{batch: opts.Params}, nil
	}
	if opts.Params != nil {
		return parameters{}, errors.New("parameters are given twice: as a batch and as Go values")
	}
	if batch, ok := opts.Args[0].(arrow.RecordBatch); ok && len(opts.Args) == 1 {
		return parameters{batch: batch}, nil
	}
	values, err := bind.Of(opts.Args)
	return parameters{values: values}, err
}

func (p parameters) given() bool { return p.batch != nil || p.values != nil }

// severalRows reports whether there is a row for more than one execution.
func (p parameters) severalRows() bool { return p.batch != nil && p.batch.NumRows() > 1 }

// bindTo calls execute with the rows that stmt is executed with, nil for none. They are
// released when it has returned. Only here is it known what the server has told of its
// parameters.
func (p parameters) bindTo(stmt backend.Prepared, execute func(rows arrow.RecordBatch) error) error {
	if p.values == nil {
		return execute(p.batch)
	}
	rows, err := p.values.Batch(stmt.ParameterSchema())
	if err != nil {
		return &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultUsage, Err: err} // the preparing was sent
	}
	defer rows.Release()
	return execute(rows)
}

// withOwnStatement prepares sql for one execution with params. finish closes the
// statement behind the caller.
func (s *SessionHandle) withOwnStatement(ctx context.Context, c *call, sql string, params parameters, execute func(stmt backend.Prepared, rows arrow.RecordBatch) error) error {
	c.preparesSteps.Store(c.script.MayLeaveTxWhenPrepared())
	stmt, err := s.prepare(ctx, sql, c.ownStatement(), c.backendCall)
	if err != nil {
		return err
	}
	c.setOwnStatement(stmt)
	if err := c.leftBefore(); err != nil {
		return err
	}
	return params.bindTo(stmt, func(rows arrow.RecordBatch) error { return execute(stmt, rows) })
}

// bind calls execute with the statement and the rows of its parameters.
//
// INVARIANT: a statement runs in the handle's transaction, or in none where there is none. By the
// protocol it is that of the preparing whose it is: a handle from before the transaction would
// store what a rollback leaves.
func (q *PreparedQuery) bind(ctx context.Context, c *call, params parameters, execute func(stmt backend.Prepared, rows arrow.RecordBatch) error) error {
	stmt := q.statement()
	if params.given() && q.goesAsText() {
		return q.s.withOwnStatement(ctx, c, q.sql, params, execute)
	}
	if q.mustPrepareAgain(c) {
		var err error
		if stmt, err = q.prepareAgain(ctx, c, stmt); err != nil {
			return err
		}
	}
	if err := c.leftBefore(); err != nil {
		return err
	}
	return params.bindTo(stmt, func(rows arrow.RecordBatch) error {
		err := execute(stmt, rows)
		if q.isGone(c, err) {
			if err = q.restore(ctx, c, stmt); err == nil {
				err = execute(q.statement(), rows)
			}
		}
		if err != nil && rows != nil && !unsent(err) && (params.severalRows() || q.script.Rows() == sqlscan.RowsNone) {
			q.s.mu.Lock()
			q.failedRows = true
			q.s.mu.Unlock()
		}
		return err
	})
}

// markCut notes that an execution was cut, which a server may have cancelled. q may be nil.
func (q *PreparedQuery) markCut() {
	if q != nil {
		q.s.mu.Lock()
		q.cut = true
		q.s.mu.Unlock()
	}
}

// isGone reports whether an execution has failed in err since the server has closed the statement with one that was cut
// before, as DazzleDuck does. Nothing of it was done. The session has to be one that can be known again.
func (q *PreparedQuery) isGone(c *call, err error) bool {
	if err == nil {
		return false
	}
	var e *backend.Error
	if !errors.As(err, &e) || e.Fault != backend.FaultStatement || e.Stage == backend.StageFetch || status.Code(e.Err) != codes.NotFound {
		return false
	}
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return q.cut && q.s.mu.proof.state == proofHeld && c.backendCall.Tx == "" && q.script.PlainRead() && !c.asUpdate
}

// restore prepares a statement again that is gone, in the same session.
func (q *PreparedQuery) restore(ctx context.Context, c *call, gone backend.Prepared) error {
	if err := q.s.checkProof(ctx, ""); err != nil {
		return err
	}
	c.operation.ForgetName()
	_, err := q.prepareAgain(ctx, c, gone)
	return err
}

func unsent(err error) bool {
	var e *backend.Error
	return errors.As(err, &e) && (e.Unsent || e.Fault == backend.FaultUsage)
}

// prepareAgain prepares the statement in the transaction of the call, and closes the one before,
// unless the server has one handle for equal texts.
func (q *PreparedQuery) prepareAgain(ctx context.Context, c *call, before backend.Prepared) (backend.Prepared, error) {
	preparing := c.backendCall
	preparing.Headers = q.headers
	objects := q.s.objectsNow()
	stmt, err := q.s.prepare(ctx, q.sql, nil, preparing)
	if err != nil {
		return nil, err
	}
	q.s.mu.Lock()
	q.stmt, q.tx, q.failedRows, q.cut, q.objects = stmt, c.backendCall.Tx, false, false, objects
	q.s.mu.Unlock()
	if handle := handleOf(before); handle != "" && handle == handleOf(stmt) {
		return stmt, nil
	}
	if err := q.s.checkTxAfterRefusal(ctx, before.Close(ctx)); err != nil {
		q.s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
		if !backend.FaultIn(err).KeepsConn() {
			return nil, err
		}
	}
	return stmt, nil
}

// mustPrepareAgain reports whether the statement has to be prepared again for the call, which is of another transaction, in
// doubt too, or behind an execution whose rows have failed, or a read behind a change of what it may name: GizmoSQL gives its
// rows by the columns of then.
//
// INVARIANT: no execution has rows of one before. Arrow's server in Java keeps those of one that it has failed to bind, up
// to the one that it could not, and executes them with the next. DuckDB's driver in Java (DazzleDuck) closes a statement
// whose change has failed, so that it would refuse all others, and says so. Behind one row a text with rows stays as it is: to prepare
// it again may be to run it (requireSingleExecution; SwanLake does, with NULLs).
func (q *PreparedQuery) mustPrepareAgain(c *call) bool {
	q.s.mu.Lock()
	stmt, failedRows := q.stmt, q.failedRows
	q.s.mu.Unlock()
	_, named := stmt.(backend.HandleTeller)
	sameTx := q.tx == c.backendCall.Tx
	otherObjects := q.objects.stale(q.s, sameTx) && q.script.PlainRead()
	return failedRows || otherObjects || named && !sameTx && !q.s.confirmsUnknownTx()
}

// retainParams holds the parameters until the call has ended, which may be after the
// caller has released them. A batch of several rows may have been applied in part when
// the call fails.
func (c *call) retainParams(params parameters) {
	c.hasParams = params.given()
	if batch := params.batch; batch != nil {
		c.runCallersCode(func() { batch.Retain() })
		c.onEnd = append(c.onEnd, batch.Release)
	}
	c.manyExecutions = params.severalRows()
	c.backendCall.ChangesSeveral = c.changesSeveral()
	c.learnAfterLoss()
}
