package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Query runs a statement and streams its rows. args are its parameters by position, as
// QueryOptions.Args has them. The caller must Release the
// result (or read it to its end, or Close it); until then the handle is busy.
//
// ctx covers the result as well: when it ends, reading fails with its error
// and the statement is cancelled on the server. A statement that returns no
// rows is run by Update and gives an empty result with RowsAffected. A text
// that leaves open how it is to be sent fails with ErrAmbiguousRoute: see
// QueryOptions.Route.
func (s *SessionHandle) Query(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return s.query(ctx, "Query", sql, QueryOptions{Args: args})
}

// QueryRow runs a statement for the first of its rows, which Row.Scan reads. The
// caller must call that: until then the handle is busy.
func (s *SessionHandle) QueryRow(ctx context.Context, sql string, args ...any) *Row {
	return NewRow(s.query(ctx, "QueryRow", sql, QueryOptions{Args: args}))
}

// Execute runs any statement: one with rows as Query does, one without as
// Update does, with the count in the result's RowsAffected.
func (s *SessionHandle) Execute(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return s.query(ctx, "Execute", sql, QueryOptions{Args: args})
}

// Update runs a statement for its effect, with args as in Query. It is sent once and
// never repeated.
func (s *SessionHandle) Update(ctx context.Context, sql string, args ...any) (UpdateResult, error) {
	return s.update(ctx, "Update", sql, QueryOptions{Args: args})
}

// QueryWithParams runs a statement with parameters, a row of params per
// execution, through a prepared statement that ends with the result.
func (s *SessionHandle) QueryWithParams(ctx context.Context, sql string, params arrow.RecordBatch) (*QueryResult, error) {
	return s.query(ctx, "Query", sql, QueryOptions{Params: params})
}

// UpdateWithRecordBatch runs a change once for every row of batch. Whether the rows are
// applied atomically depends on the server; use a transaction if that matters. The
// batch is sent in parts that fit the server's message limit. One that is cut may cost its connection: see CancelPolicy.
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

// Ping makes a round trip to the server's session layer. ErrSessionLost: what the handle
// had in its session is gone, though the server may answer. On a handle for a
// single call, in which no transaction can be open, it proves the session by
// the policy's ProbeSQL.
func (s *SessionHandle) Ping(ctx context.Context) error {
	c, err := s.begin(ctx, "Ping", QueryOptions{}, s.readMode())
	if err != nil {
		return err
	}
	if s.stateless {
		return runStepWithoutValue(c, func(ctx context.Context) error { return CheckSession(ctx, s.conn, s.policy.probeSQL()) }, errorOutcome)
	}
	c.beforeSend = s.proveIfAlive
	return runStepWithoutValue(c, func(ctx context.Context) error { return s.checkTxAfterRefusal(ctx, s.conn.Ping(ctx)) }, errorOutcome)
}

// query is every call that may have rows. A text without rows goes the way of an
// update, under the name of the caller's call. Faults of the arguments are told once
// the handle is busy, so that a busy or closed handle says that first.
func (s *SessionHandle) query(ctx context.Context, op, sql string, opts QueryOptions) (*QueryResult, error) {
	script := sqlscan.Parse(sql)
	asUpdate, ambiguity := opts.Route.sendsAsUpdate(script)
	if asUpdate {
		done, err := s.update(ctx, op, sql, opts)
		if err != nil {
			return nil, err
		}
		return resultWithoutRows(done), nil
	}
	c, params, err := s.beginText(ctx, op, sql, script, opts, ambiguity)
	if err != nil {
		return nil, err
	}
	c.requireSingleExecution(opts.Route, script)
	if !params.given() {
		return s.openResult(c, func(ctx context.Context) (backend.Stream, error) { return s.conn.Query(ctx, sql, c.backendCall) })
	}
	if s.mayKeepStatement(c, opts.Retry, params) {
		return s.openResult(c, func(ctx context.Context) (backend.Stream, error) { return s.queryKept(ctx, c, sql, params) })
	}
	return s.openResult(c, func(ctx context.Context) (stream backend.Stream, err error) {
		err = s.withOwnStatement(ctx, c, sql, params, func(stmt backend.Prepared, rows arrow.RecordBatch) error {
			stream, err = stmt.Query(ctx, rows, c.backendCall)
			return err
		})
		return stream, err
	})
}

// update is every call for an effect. With parameters it makes a prepared statement of
// its own, which finish closes behind the caller.
func (s *SessionHandle) update(ctx context.Context, op, sql string, opts QueryOptions) (UpdateResult, error) {
	script := sqlscan.Parse(sql)
	opts.asUpdate = true
	fault := opts.Route.check()
	if opts.Route == RouteQuery {
		fault = errors.New("Update sends an update: RouteQuery is for QueryWithOptions")
	}
	c, params, err := s.beginText(ctx, op, sql, script, opts, fault)
	if err != nil {
		return UpdateResult{}, err
	}
	if params.given() {
		c.requireSingleExecution(opts.Route, script) // to prepare a text may be to execute it
	}
	c.requireHeededParams(script, params)
	return updateResult(runStep(c, func(ctx context.Context) (n int64, err error) {
		if !params.given() {
			return s.conn.Update(ctx, sql, c.backendCall)
		}
		err = s.withOwnStatement(ctx, c, sql, params, func(stmt backend.Prepared, rows arrow.RecordBatch) error {
			n, err = s.updatePrepared(ctx, c, stmt, rows)
			return err
		})
		return n, err
	}, c.countOutcome))
}

// updateResult is what a change has come to.
func updateResult(n int64, err error) (UpdateResult, error) {
	if err != nil {
		return UpdateResult{}, err
	}
	return UpdateResult{RowsAffected: n}, nil
}

// beginText begins the call of a text, with the parameters of opts, or ends it with a
// fault of its arguments.
func (s *SessionHandle) beginText(ctx context.Context, op, sql string, script sqlscan.Script, opts QueryOptions, fault error) (*call, parameters, error) {
	params, unsendable := parametersOf(opts)
	fault = cmp.Or(fault, unsendable)
	opts.text = sql
	c, err := s.begin(ctx, op, opts, s.changeMode(opts, script, params))
	if err != nil {
		return nil, params, err
	}
	switch {
	case fault != nil:
		err = usageError(fault)
	case params.given():
		err = checkSingleStatement(script)
	}
	if err == nil {
		err = s.checkStatement(c, script)
	}
	if err != nil {
		return nil, params, c.finish(outcome{err: err})
	}
	c.retainParams(params)
	c.requireWholeText(script)
	return c, params, nil
}

// checkStatement checks a statement against the state of the session. What it
// has to ask the server for is asked when the step begins.
//
// The order of these questions matters. The proof comes first: what another session
// says of its state is worth nothing. Then the session is led back to where the
// statement's names mean what they say. Then what the statement changes is read, and
// last where the session is before an INSERT, which may move it.
func (s *SessionHandle) checkStatement(c *call, script sqlscan.Script) error {
	c.statement = true
	c.script = script
	if script.Empty() { // what was meant to run may stand in a comment
		return usageError(errors.New(strings.TrimSuffix("the SQL text holds no statement: "+script.SyntaxFault, ": ")))
	}
	if verb := script.TxControl(); verb != "" {
		return usageError(fmt.Errorf("%s as SQL text is not taken, since the session must know of its transactions: use InTx or BeginTx of the pool, or BeginTransaction, Commit, Rollback and the savepoint calls of a session (with database/sql: BeginTx, Tx.Commit and Tx.Rollback)", verb))
	}
	if name := script.SettingRunAlone(); name != "" {
		return usageError(fmt.Errorf("SET %s is a text of its own: GizmoSQL sets it, and confirms what stands behind it without running that", name))
	}
	if s.stateless && script.PlainRead() {
		return nil // a session of one call has no state to ask for, and is given none
	}
	tx := s.txState()
	if tx.phase == txAborted {
		return usageError(tx.abortedErr())
	}
	c.backendCall.Tx, c.backendCall.MayChange, c.backendCall.Prove = tx.id, !script.ReadOnly(), s.proofOfUpdate(tx, script)
	c.beforeSend = func(ctx context.Context) error {
		if err := s.proveSession(ctx, accessOf(script)); err != nil {
			return err
		}
		if err := s.returnBeforeStatement(ctx, c.backendCall); err != nil {
			return err
		}
		if err := s.rememberState(ctx, script); err != nil {
			return err
		}
		return s.beforeInsert(ctx, c)
	}
	return nil
}

// openResult runs a query and wraps what comes back. The first batch is fetched before
// it returns, so that errors of the statement are errors of the call. A result that
// comes when the caller has left is read on or cancelled by finish, as one that was
// released at once.
func (s *SessionHandle) openResult(c *call, open func(ctx context.Context) (backend.Stream, error)) (*QueryResult, error) {
	got, inTime, err := awaitStep(c, func(ctx context.Context) (openedStream, error) {
		stream, err := open(ctx)
		if err != nil {
			return openedStream{}, err
		}
		good := false
		defer func() { // also where the read panics
			if !good {
				stream.Close()
			}
		}()
		first, err := c.firstBatch(stream)
		if err != nil && !eof.Reached(err) {
			return openedStream{}, err
		}
		good = true
		if first != nil {
			first.Retain()
		}
		return openedStream{stream, first, err}, nil
	}, func(late openedStream, err error) { _ = c.finish(late.unreadOutcome(err)) })
	if err != nil {
		if inTime {
			got.close()
			err = c.finish(outcome{err: err})
		}
		return nil, err
	}
	c.trace.answered()
	if f := c.s.policy.Observe.FirstBatch; f != nil {
		f(time.Since(c.startedAt()))
	}
	return newResult(c, got.stream, got.first, got.err), nil
}

// openedStream is a result whose first batch was fetched.
type openedStream struct {
	stream backend.Stream
	first  arrow.RecordBatch
	err    error // of the first batch: nil or io.EOF
}

// unreadOutcome is the outcome of a result that came when its caller had left.
func (o openedStream) unreadOutcome(err error) outcome {
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
	return outcome{unread: o.stream}
}

// close lets go of a result that nobody reads, if there is one.
func (o openedStream) close() {
	if o.first != nil {
		o.first.Release()
	}
	if o.stream != nil {
		o.stream.Close()
	}
}
