package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/errjoin"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Query runs a statement and streams its rows. The caller must Release the
// result (or read it to its end, or Close it); until then the handle is busy.
//
// ctx covers the result as well: when it ends, reading fails with its error
// and the statement is cancelled on the server. A statement that returns no
// rows is run by Update and gives an empty result with RowsAffected. A text
// that leaves open how it is to be sent fails with ErrAmbiguousRoute: see
// QueryOptions.Route.
func (s *SessionHandle) Query(ctx context.Context, sql string) (*QueryResult, error) {
	return s.query(ctx, "Query", sql, QueryOptions{})
}

// Execute runs any statement: one with rows as Query does, one without as
// Update does, with the count in the result's RowsAffected.
func (s *SessionHandle) Execute(ctx context.Context, sql string) (*QueryResult, error) {
	return s.query(ctx, "Execute", sql, QueryOptions{})
}

// Update runs a statement for its effect. It is sent once and never repeated.
func (s *SessionHandle) Update(ctx context.Context, sql string) (UpdateResult, error) {
	return s.update(ctx, "Update", sql, QueryOptions{})
}

// QueryWithParams runs a statement with parameters, a row of params per
// execution, through a prepared statement that ends with the result.
func (s *SessionHandle) QueryWithParams(ctx context.Context, sql string, params arrow.RecordBatch) (*QueryResult, error) {
	return s.query(ctx, "Query", sql, QueryOptions{Params: params})
}

// UpdateWithRecordBatch runs a change once for every row of batch. Whether
// these are one unit is the server's affair: use a transaction where it
// matters. The batch is sent in parts that fit the server's message limit.
func (s *SessionHandle) UpdateWithRecordBatch(ctx context.Context, sql string, batch arrow.RecordBatch) (UpdateResult, error) {
	return s.update(ctx, "Update", sql, QueryOptions{Params: batch})
}

// QueryWithOptions is Query with options.
func (s *SessionHandle) QueryWithOptions(ctx context.Context, sql string, opts QueryOptions) (*QueryResult, error) {
	return s.query(ctx, "Query", sql, opts)
}

// UpdateWithOptions is Update with options.
func (s *SessionHandle) UpdateWithOptions(ctx context.Context, sql string, opts QueryOptions) (UpdateResult, error) {
	return s.update(ctx, "Update", sql, opts)
}

// Ingest loads rows into a table, in bulk, inside the open transaction if
// there is one. It returns how many were stored, or -1 when the server does
// not tell. It does not release rows. Servers without bulk ingestion fail it
// with FaultUnsupported.
//
// Ingest reads rows in a goroutine of its own. When ctx ends while rows does
// not return, Ingest returns all the same, and rows is let go when it does.
func (s *SessionHandle) Ingest(ctx context.Context, table string, rows array.RecordReader, opts IngestOptions) (int64, error) {
	c, err := s.begin(ctx, "Ingest", QueryOptions{Headers: opts.Headers, apart: true}, cutShort) // rows may block, or panic
	if err != nil {
		return 0, err
	}
	if err := errjoin.Join(required(table != "", "a table name is needed"), required(rows != nil, "a record reader is needed")); err != nil {
		return 0, c.finish(outcome{err: usage(err)})
	}
	script := "INSERT INTO " + quoteName(table) + " DEFAULT VALUES" // it is no read
	if opts.Temporary {
		script = "CREATE TEMP TABLE " + quoteName(table) + " (x INT)"
	}
	if err := s.enterStatement(c, sqlscan.Parse(script)); err != nil {
		return 0, c.finish(outcome{err: err})
	}
	opts.Table = table
	c.many = true // the table may have been made before the rows failed
	rows.Retain()
	c.hooks = append(c.hooks, rows.Release)
	return perform(c, func(ctx context.Context) (int64, error) { return s.conn.Ingest(ctx, rows, opts, c.info) }, plainly)
}

// Ping makes a round trip to the server's session layer. On a handle for a
// single call, in which no transaction can be open, it proves the session by
// the policy's ProbeSQL.
func (s *SessionHandle) Ping(ctx context.Context) error {
	c, err := s.begin(ctx, "Ping", QueryOptions{}, cutShort)
	if err != nil {
		return err
	}
	if s.stateless {
		return do(c, func(ctx context.Context) error { return Prove(ctx, s.conn, s.policy.probeSQL()) }, errorOnly)
	}
	return do(c, func(ctx context.Context) error { return s.refusedBesideTx(ctx, s.conn.Ping(ctx)) }, errorOnly)
}

func (s *SessionHandle) query(ctx context.Context, op, sql string, opts QueryOptions) (*QueryResult, error) {
	script := sqlscan.Parse(sql)
	byUpdate, ambiguity := opts.Route.byUpdate(script)
	if byUpdate {
		opts.Route = RouteUpdate
		done, err := s.update(ctx, op, sql, opts)
		if err != nil {
			return nil, err
		}
		return effectOnly(done), nil
	}
	c, err := s.begin(ctx, op, opts, cutShort)
	if err != nil {
		return nil, err
	}
	switch {
	case ambiguity != nil:
		err = usage(ambiguity)
	case opts.Params != nil:
		err = single(script)
	}
	if err == nil {
		err = s.enterStatement(c, script)
	}
	if err != nil {
		return nil, c.finish(outcome{err: err})
	}
	c.byOneExecution(opts.Route, script)
	if opts.Params == nil {
		return s.stream(c, func(ctx context.Context) (Stream, error) { return s.conn.Query(ctx, sql, c.info) })
	}
	c.keep(opts.Params)
	return s.stream(c, func(ctx context.Context) (Stream, error) {
		stmt, err := s.conn.Prepare(ctx, sql, c.info)
		if err != nil {
			return nil, err
		}
		c.own(stmt)
		return stmt.Query(ctx, opts.Params, c.info)
	})
}

func (s *SessionHandle) update(ctx context.Context, op, sql string, opts QueryOptions) (UpdateResult, error) {
	c, err := s.begin(ctx, op, opts, cutShort)
	if err != nil {
		return UpdateResult{}, err
	}
	script := sqlscan.Parse(sql)
	switch {
	case opts.Route == RouteQuery:
		err = usage(errors.New("Update sends an update: RouteQuery is for QueryWithOptions"))
	case opts.Params != nil:
		err = single(script)
	}
	if err == nil {
		err = s.enterStatement(c, script)
	}
	if err != nil {
		return UpdateResult{}, c.finish(outcome{err: err})
	}
	c.keep(opts.Params)
	if opts.Params != nil {
		c.byOneExecution(opts.Route, script) // to prepare a text may be to execute it
	}
	n, err := perform(c, func(ctx context.Context) (int64, error) {
		if opts.Params == nil {
			return s.conn.Update(ctx, sql, c.info)
		}
		stmt, err := s.conn.Prepare(ctx, sql, c.info)
		if err != nil {
			return 0, err
		}
		c.own(stmt)
		return s.updatePrepared(ctx, c, stmt, opts.Params)
	}, plainly)
	if err != nil {
		return UpdateResult{}, err
	}
	return UpdateResult{RowsAffected: n}, nil
}

// updatePrepared runs a prepared change, and mends what a bulk load does beside it.
func (s *SessionHandle) updatePrepared(ctx context.Context, c *call, stmt Prepared, params arrow.RecordBatch) (int64, error) {
	n, err := stmt.Update(ctx, params, c.info)
	s.afterInsert(ctx, c, err)
	return n, err
}

// enterStatement checks a statement against the state of the session. What it
// has to ask the server for is asked when the step begins.
func (s *SessionHandle) enterStatement(c *call, script sqlscan.Script) error {
	c.statement = true
	c.script = script
	if script.Empty() {
		return usage(errors.New("the SQL text holds no statement"))
	}
	if verb := script.TxControl(); verb != "" {
		return usage(fmt.Errorf("%s as SQL text is not taken, since the handle must know of its transactions: use BeginTransaction, Commit, Rollback or the savepoint calls of a SessionHandle (with database/sql: BeginTx, Tx.Commit and Tx.Rollback)", verb))
	}
	tx := s.txState()
	if tx.phase == txAborted {
		return usage(tx.abortedErr())
	}
	c.info.Tx = tx.id
	c.ready = func(ctx context.Context) error {
		if err := s.proveSession(ctx, needOf(script)); err != nil {
			return err
		}
		if err := s.backInPlace(ctx, c.info); err != nil {
			return err
		}
		if err := s.remember(ctx, script); err != nil {
			return err
		}
		return s.beforeInsert(ctx, c)
	}
	return nil
}

// stream runs a query and wraps what comes back. The first batch is fetched
// before it returns, so that errors of the statement are errors of the call.
func (s *SessionHandle) stream(c *call, open func(ctx context.Context) (Stream, error)) (*QueryResult, error) {
	got, present, err := await(c, func(ctx context.Context) (opened, error) {
		stream, err := open(ctx)
		if err != nil {
			return opened{}, err
		}
		first, err := stream.Next()
		if err != nil && !eof.Reached(err) {
			stream.Close()
			return opened{}, err
		}
		if first != nil {
			first.Retain()
		}
		return opened{stream, first, err}, nil
	}, func(late opened, err error) { _ = c.finish(late.abandon(err)) })
	if err != nil {
		if present {
			got.close()
			err = c.finish(outcome{err: err})
		}
		return nil, err
	}
	return newResult(c, got.stream, got.first, got.err), nil
}

// opened is a result whose first batch was fetched.
type opened struct {
	stream Stream
	first  arrow.RecordBatch
	err    error // of the first batch: nil or io.EOF
}

// abandon is the outcome of a result that came when its caller had left.
func (o opened) abandon(err error) outcome {
	switch {
	case err != nil:
		o.close()
		return outcome{err: err}
	case eof.Reached(o.err):
		o.close()
		return outcome{}
	}
	if o.first != nil {
		o.first.Release()
	}
	return outcome{rest: o.stream}
}

// close lets go of a result that nobody reads, if there is one.
func (o opened) close() {
	if o.first != nil {
		o.first.Release()
	}
	if o.stream != nil {
		o.stream.Close()
	}
}

func required(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New(what)
}
