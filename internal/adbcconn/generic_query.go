package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// genericRows is a driver's reader and what must be released after it. It is
// used with driverLock held. Releasing the reader may wait for the server, so
// no caller does that itself (enterInBackground).
type genericRows struct {
	conn   *GenericConn
	reader array.RecordReader
	done   func()
}

// trackRows makes the genericRows of a reader, whose release calls done. Close
// finds them by it: a driver whose connection is closed under its readers may
// crash. The caller holds driverLock.
func (c *GenericConn) trackRows(reader array.RecordReader, done func()) *genericRows {
	r := &genericRows{c, reader, done}
	c.readers[r] = struct{}{}
	return r
}

// release lets go of the reader. Later calls do nothing. The caller holds
// driverLock.
func (r *genericRows) release() {
	if _, open := r.conn.readers[r]; open {
		delete(r.conn.readers, r)
		r.conn.readOwnTx(r.reader)
		r.reader.Release()
		r.done()
		r.conn.endOwnTx()
		r.conn.leaveZone()
	}
}

// statement makes a statement for sql. The caller holds driverLock.
func (c *GenericConn) statement(sql string, call backend.Call) (adbc.Statement, error) {
	stmt, err := c.cn.NewStatement()
	if err != nil {
		return nil, err
	}
	if err := errjoin.Join(stmt.SetSqlQuery(sql), setHeaders(stmt, call)); err != nil {
		_ = stmt.Close()
		return nil, err
	}
	return stmt, nil
}

// prepare makes a prepared statement for sql. The Flight SQL driver does not
// read the server's answer to its end: a context of its own ends that RPC. The
// caller holds driverLock.
func (c *GenericConn) prepare(ctx context.Context, sql string, call backend.Call) (adbc.Statement, error) {
	stmt, err := c.statement(sql, call)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := stmt.Prepare(ctx); err != nil {
		_ = stmt.Close()
		return nil, err
	}
	return stmt, nil
}

// toExecute gives a statement that is ready to run, and a function that ends its use.
// The caller holds driverLock.
type toExecute func(ctx context.Context) (stmt adbc.Statement, done func(), err error)

// toRun makes a statement to run once.
func (c *GenericConn) toRun(sql string, call backend.Call) toExecute {
	return func(ctx context.Context) (stmt adbc.Statement, done func(), err error) {
		if c.isProvenTx(call) {
			stmt, err = c.prepareInTx(ctx, sql, call)
			return stmt, func() {}, err // it is the next currentProof
		}
		stmt, err = c.statement(sql, call)
		return stmt, func() { _ = stmt.Close() }, err
	}
}

// execute runs a query. The caller holds driverLock. The context stays that of
// the reader, so it must not end before that is released.
func (c *GenericConn) execute(ctx context.Context, prepare toExecute, call backend.Call) (*genericRows, error) {
	stmt, done, err := prepare(ctx)
	if err != nil {
		return nil, err
	}
	reader, err := c.runQuery(ctx, stmt, call)
	c.noteCut(ctx, call, err)
	if err != nil {
		done()
		c.endOwnTx()
		return nil, c.verifyAfterRefusal(err)
	}
	c.keepsOwnTx(true)
	return c.trackRows(reader, done), nil
}

// Query is part of backend.Conn. Drivers that end a statement with its
// context stop it so; there is no other way.
func (c *GenericConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	t, err := c.begin(ctx, "Query")
	if err != nil {
		return nil, err
	}
	return t.openStream(func(ctx context.Context) (*genericRows, error) { return c.execute(ctx, c.toRun(sql, call), call) })
}

// openStream opens a result. It ends the call unless it returns a stream, which
// does so then. A result that the driver gives too late is released.
func (t *driverCall) openStream(open func(context.Context) (*genericRows, error)) (backend.Stream, error) {
	c := t.conn
	rows, err := runInDriver(t, backend.StageExecute, open, (*genericRows).release)
	if err != nil {
		t.end()
		return nil, err
	}
	source := &genericSource{call: t, rows: rows}
	if parts, ok := rows.reader.(*partitionedRows); ok {
		err := doInDriver(t, backend.StageFetch, func(context.Context) error { return c.verifyAfterRefusal(parts.begin()) })
		if err != nil {
			source.release()
			return nil, err
		}
	}
	return newStream(source), nil
}

// hasNext reports whether a driver's reader has another batch. Drivers stop reading when the
// context of the call ends: some tell a regular end then, or go on behind what they have dropped.
// What comes behind the end of ctx, which is that context, is neither a batch nor the end.
func hasNext(ctx context.Context, reader array.RecordReader) (bool, error) {
	if reader.Next() && ctx.Err() == nil {
		return true, nil
	}
	return false, cmp.Or(asADBC(reader.Err()), ctx.Err())
}

// asADBC is err, where it is what a C stream has failed with, as an error of ADBC's. Such a stream tells a
// number, by which most of ADBC's codes are one, and a text.
func asADBC(err error) error {
	if _, ok := errors.Unwrap(err).(syscall.Errno); ok { //nolint:errorlint // in what other drivers fail with it is not there
		return WithCause(adbc.Error{Code: adbc.StatusUnknown, Msg: err.Error()}, err)
	}
	return err
}

// nextChecked is the next batch of a driver's reader, or nil at its end. Each is
// checked, as in connSource: a driver may hand on what its server sent.
func nextChecked(ctx context.Context, reader array.RecordReader, validator *flightconn.Validator) (arrow.RecordBatch, error) {
	if more, err := hasNext(ctx, reader); !more {
		return nil, err
	}
	batch := reader.RecordBatch()
	return batch, validator.Check(batch)
}

// genericSource is the source of a GenericConn's result.
type genericSource struct {
	call      *driverCall
	rows      *genericRows
	validator flightconn.Validator
	given     arrow.RecordBatch // last, owned, or nil: the Close of the connection releases the reader
}

func (r *genericSource) schema() *arrow.Schema { return r.rows.reader.Schema() }

// affected is not told: ADBC counts the rows of a result there, not those that a statement changed.
func (r *genericSource) affected() (int64, bool) { return 0, false }

// next reads a batch in the driver. No batch and no error is the end.
func (r *genericSource) next() (arrow.RecordBatch, error) {
	r.dropGiven()
	batch, err := runInDriver(r.call, backend.StageFetch, func(ctx context.Context) (arrow.RecordBatch, error) {
		batch, err := nextChecked(ctx, r.rows.reader, &r.validator)
		switch {
		case err != nil:
			r.call.conn.keepsOwnTx(false)
		case batch != nil:
			batch.Retain()
		default:
			r.call.conn.ownTxEnded()
		}
		return batch, r.call.conn.verifyAfterRefusal(err)
	}, releaseBatch)
	if batch == nil && err == nil {
		return nil, io.EOF
	}
	r.given = batch
	return batch, err
}

func (r *genericSource) dropGiven() {
	releaseBatch(r.given)
	r.given = nil
}

func releaseBatch(b arrow.RecordBatch) {
	if b != nil {
		b.Release()
	}
}

// interrupt ends the context of the driver's reader.
func (r *genericSource) interrupt() { r.call.end() }

// release lets the driver clean up by itself: it may wait for its server, for
// GenericConfig.CloseTimeout. Later calls wait behind it, so that the connection is lost
// where that is not enough.
func (r *genericSource) release() {
	r.dropGiven()
	r.call.end()
	c := r.call.conn
	c.enterInBackground(func() {
		late := time.AfterFunc(c.cfg.CloseTimeout, func() { c.markLost(errReleaseStuck) })
		defer late.Stop()
		r.rows.release()
	})
}

var errReleaseStuck = errors.New("the driver does not return from the release of a result")

func (r *genericSource) closedErr() error { return r.call.usageError(backend.ErrHandleClosed) }

// Update is part of backend.Conn. A driver has one call for a statement without
// rows; the count is -1 where it does not tell.
func (c *GenericConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	t, err := c.begin(ctx, "Update")
	if err != nil {
		return 0, err
	}
	run, err := t.toRunProven(sql, call)
	if err != nil {
		t.end()
		return 0, err
	}
	n, err := t.update(run, sql, call)
	var e *backend.Error
	if c.mustProve(call) && errors.As(err, &e) && e.Fault == backend.FaultSession {
		e.Unsent = false // the session may have been replaced after it had run the statement
	}
	return n, err
}

// update runs a statement for its effect, and ends the call.
func (t *driverCall) update(prepare toExecute, sql string, call backend.Call) (int64, error) {
	defer t.end()
	return runInDriver(t, backend.StageExecute, func(ctx context.Context) (int64, error) {
		stmt, done, err := prepare(ctx)
		if err != nil {
			return 0, err
		}
		defer done()
		n, err := t.conn.runForEffect(ctx, stmt, sql)
		t.conn.noteCut(ctx, call, err)
		if err == nil {
			t.conn.ownTxEnded()
		}
		t.conn.endOwnTx()
		return max(n, -1), t.conn.verifyAfterRefusal(err)
	}, nil)
}
