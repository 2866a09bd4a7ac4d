package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/session"
)

// foreignRows is a driver's reader and what must be let go of after it. It is
// used inside the driver's turn.
type foreignRows struct {
	conn   *Foreign
	reader array.RecordReader
	done   func()
}

func (c *Foreign) opened(reader array.RecordReader, done func()) *foreignRows {
	r := &foreignRows{c, reader, done}
	c.readers[r] = struct{}{}
	return r
}

// release lets go of the reader. Later calls do nothing.
func (r *foreignRows) release() {
	if _, open := r.conn.readers[r]; open {
		delete(r.conn.readers, r)
		r.reader.Release()
		r.done()
	}
}

// statement makes a statement for sql. It is called inside the turn.
func (c *Foreign) statement(sql string, call session.Call) (adbc.Statement, error) {
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
// read the server's answer to its end: a context of its own ends that RPC. It
// is called inside the turn.
func (c *Foreign) prepare(ctx context.Context, sql string, call session.Call) (adbc.Statement, error) {
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

// toRun makes a statement to run once, and tells what lets go of it. It is
// called inside the turn.
func (c *Foreign) toRun(ctx context.Context, sql string, call session.Call) (stmt adbc.Statement, done func(), err error) {
	if c.watches(call) {
		stmt, err = c.pin(ctx, sql, call)
		return stmt, func() {}, err // it is the next witness
	}
	stmt, err = c.statement(sql, call)
	return stmt, func() { _ = stmt.Close() }, err
}

// execute runs a query. It is called inside the turn.
func (c *Foreign) execute(ctx context.Context, sql string, call session.Call) (*foreignRows, error) {
	stmt, done, err := c.toRun(ctx, sql, call)
	if err != nil {
		return nil, err
	}
	reader, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		done()
		return nil, c.suspect(err)
	}
	return c.opened(reader, done), nil
}

// Query is part of session.Conn. Drivers that end a statement with its
// context stop it so; there is no other way.
func (c *Foreign) Query(ctx context.Context, sql string, call session.Call) (session.Stream, error) {
	t, err := c.begin(ctx, "Query")
	if err != nil {
		return nil, err
	}
	return t.stream(func(ctx context.Context) (*foreignRows, error) { return c.execute(ctx, sql, call) })
}

// stream opens a result. It ends the call unless it returns a stream, which
// does so then.
func (t *task) stream(open func(context.Context) (*foreignRows, error)) (session.Stream, error) {
	rows, err := enter(t, session.StageExecute, open, (*foreignRows).release)
	if err != nil {
		t.end()
		return nil, err
	}
	return newStream(&foreignReading{task: t, rows: rows}), nil
}

// foreignReading is the source of a foreign connection's result.
type foreignReading struct {
	task *task
	rows *foreignRows
}

func (r *foreignReading) schema() *arrow.Schema { return r.rows.reader.Schema() }

func (r *foreignReading) next() (arrow.RecordBatch, error) {
	batch, err := enter(r.task, session.StageFetch, func(context.Context) (arrow.RecordBatch, error) {
		if r.rows.reader.Next() {
			return r.rows.reader.RecordBatch(), nil
		}
		return nil, r.task.conn.suspect(r.rows.reader.Err())
	}, nil)
	if batch == nil && err == nil {
		return nil, io.EOF
	}
	return batch, err
}

func (r *foreignReading) stop() { r.task.end() }

// release lets the driver clean up by itself: it may wait for its server.
func (r *foreignReading) release() {
	r.task.end()
	r.task.conn.after(r.rows.release)
}

func (r *foreignReading) closedErr() error { return r.task.usage(session.ErrHandleClosed) }

// Update is part of session.Conn.
func (c *Foreign) Update(ctx context.Context, sql string, call session.Call) (int64, error) {
	t, err := c.begin(ctx, "Update")
	if err != nil {
		return 0, err
	}
	defer t.end()
	return enter(t, session.StageExecute, func(ctx context.Context) (int64, error) {
		stmt, done, err := c.toRun(ctx, sql, call)
		if err != nil {
			return 0, err
		}
		defer done()
		n, err := stmt.ExecuteUpdate(ctx)
		return max(n, -1), c.suspect(err)
	}, nil)
}

// sendable is nil for what the driver can send. One of Flight SQL sends Arrow's
// IPC format; others are handed the arrays themselves.
func (c *Foreign) sendable(schema *arrow.Schema) error {
	if !c.flight {
		return nil
	}
	return flightconn.CheckSendable(schema)
}

// Ingest is part of session.Conn. Compression is the driver's affair.
func (c *Foreign) Ingest(ctx context.Context, rows array.RecordReader, opts session.IngestOptions, call session.Call) (int64, error) {
	t, err := c.begin(ctx, "Ingest")
	if err != nil {
		return 0, err
	}
	defer t.end()
	switch {
	case opts.Table == "":
		return 0, t.usage(errors.New("no table"))
	case call.Tx != "" && c.flight:
		e := c.error(t.op, session.StageArgument, session.FaultUnsupported,
			errors.New("ADBC's Flight SQL driver ingests outside of the open transaction"))
		e.Unsent = true
		return 0, e
	}
	if err := c.sendable(rows.Schema()); err != nil {
		return 0, t.usage(fmt.Errorf("rows: %w", err))
	}
	return enter(t, session.StageExecute, func(ctx context.Context) (int64, error) {
		stmt, err := c.cn.NewStatement()
		if err != nil {
			return 0, err
		}
		defer func() { _ = stmt.Close() }()
		if err := errjoin.Join(setIngest(stmt, opts), setHeaders(stmt, call), stmt.BindStream(ctx, rows)); err != nil {
			return 0, err
		}
		n, err := stmt.ExecuteUpdate(ctx)
		return max(n, -1), err
	}, nil)
}
