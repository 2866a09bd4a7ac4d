package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// PreparedQuery is a prepared statement of a SessionHandle. It is used by one
// goroutine at a time, and lives until Close or the handle's. Where it is executed in
// another transaction than it was prepared in, or outside of any, it is prepared again
// for that, unless the server goes by its session alone, and behind an execution with several rows of parameters that has
// failed, or with one where it returns no rows, and a read once a session of the pool has made, altered or dropped something, or where the server has closed it with one that was cut. A text that servers run
// while they prepare it is sent anew by each execution instead: a PIVOT by the values in the data, what else DuckDB makes several statements of, on SwanLake a change behind a WITH.
// Times of Args are sent as what the server told of the parameters then: prepare another where another program has made a column one of dates, or of times, since.
//
// It is on record in the handle's prepared, guarded by the handle's lock as is stmt, until its Close or that of the handle; what is not
// there any more is closed. bound, tx and objects belong to the call that has the handle. The other fields do not change.
type PreparedQuery struct {
	s       *SessionHandle
	stmt    backend.Prepared
	tx      backend.TxID // in which stmt was prepared
	objects preparedBehind
	sql     string
	script  sqlscan.Script
	route   Route
	headers metadata.MD // of the preparing
	bound   bool        // parameters were sent, which the server may have kept
	// failedRows says that an execution has failed behind which it is prepared again, cut that one was. The handle's lock guards both.
	failedRows, cut bool
}

// PrepareQuery prepares a statement, a query or a change, on the handle's
// session. A text that only its executions send (see PreparedQuery) is not looked at by the
// server before. The caller should Close it; the handle's Close does so otherwise.
func (s *SessionHandle) PrepareQuery(ctx context.Context, sql string) (*PreparedQuery, error) {
	return s.PrepareQueryWithOptions(ctx, sql, QueryOptions{})
}

// PrepareQueryWithOptions is PrepareQuery with options. Route says how
// PreparedQuery.Query sends the statement, Timeout bounds the preparing, and
// Headers go with it. The others do not apply.
func (s *SessionHandle) PrepareQueryWithOptions(ctx context.Context, sql string, opts QueryOptions) (*PreparedQuery, error) {
	c, err := s.begin(ctx, "PrepareQuery", QueryOptions{Timeout: opts.Timeout, Headers: opts.Headers, text: sql}, finishWithinBudget)
	if err != nil {
		return nil, err
	}
	script := sqlscan.Parse(sql)
	if err = opts.Route.check(); err != nil {
		err = usageError(err)
	} else if err = checkSingleStatement(script); err == nil {
		err = s.checkStatement(c, script)
	}
	if err != nil {
		return nil, c.finish(outcome{err: err})
	}
	c.script = sqlscan.Script{} // preparing runs nothing
	c.beforeSend = func(ctx context.Context) error {
		if err := s.proveSession(ctx, accessState); err != nil {
			return err
		}
		return s.returnBeforeStatement(ctx, c.backendCall)
	}
	c.requireSingleExecution(opts.Route, script) // but on some servers it does
	// A failure is taken for one that has left nothing. Where the answer leaves that
	// open, what it may have left can be seen by nobody and ends with the connection.
	q := &PreparedQuery{s: s, sql: sql, script: script, route: opts.Route, headers: c.backendCall.Headers, objects: s.objectsNow()}
	_, err = runStep(c, func(ctx context.Context) (backend.Prepared, error) {
		return s.prepareToKeep(ctx, sql, script, c.backendCall)
	},
		func(stmt backend.Prepared, inTime bool, err error) outcome {
			switch {
			case err != nil:
			case inTime:
				q.stmt, q.tx = stmt, c.backendCall.Tx
				s.register(q)
			default: // nobody waits for it any more
				c.setOwnStatement(stmt)
			}
			return outcome{err: err}
		})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// prepare prepares a statement beside the call's own, which may be nil. A server that counts its handles
// gives that of the proof again, or of another statement, once it has replaced the session: by that handle
// either would run the text of the other. Equal texts may have one handle, as on servers where it is the text.
func (s *SessionHandle) prepare(ctx context.Context, sql string, own backend.Prepared, bc backend.Call) (backend.Prepared, error) {
	stmt, err := s.conn.Prepare(ctx, sql, bc)
	if err != nil {
		return nil, err
	}
	if given := handleOf(stmt); given != "" && s.hasHandle(given, sql, own) {
		_ = stmt.Close(ctx) // the session is given up
		return nil, &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultSession, Err: errReplaced}
	}
	return stmt, nil
}

// hasHandle reports whether the server has given the handle for another text before.
func (s *SessionHandle) hasHandle(handle, sql string, own backend.Prepared) bool {
	if handleOf(own) == handle || s.kept != nil && handleOf(s.kept.stmt) == handle {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if handleOf(s.mu.proof.stmt) == handle {
		return true
	}
	for q := range s.mu.prepared {
		if q.sql != "" && q.sql != sql && handleOf(q.stmt) == handle {
			return true
		}
	}
	return false
}

// handleOf is the server's handle of a statement; empty if that is not known, or there is none.
func handleOf(stmt backend.Prepared) string {
	if named, ok := stmt.(backend.HandleTeller); ok {
		return named.FirstHandle()
	}
	return ""
}

// register puts a prepared statement on record, to be closed with the handle.
func (s *SessionHandle) register(q *PreparedQuery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.prepared == nil {
		s.mu.prepared = make(map[*PreparedQuery]struct{})
	}
	s.mu.prepared[q] = struct{}{}
}

// registerUnclosed registers a statement of a call that could not close it. Nobody has
// a PreparedQuery of it, so that only the cleaning at the handle's end finds it.
func (s *SessionHandle) registerUnclosed(stmt backend.Prepared) {
	s.register(&PreparedQuery{s: s, stmt: stmt})
}

// ParameterSchema has a field per parameter. It is nil when the server does
// not tell.
func (q *PreparedQuery) ParameterSchema() *arrow.Schema { return q.statement().ParameterSchema() }

// ResultSchema has a field per column of the rows that Query would stream, and
// none where the statement has no rows. It is nil when the server does not tell.
func (q *PreparedQuery) ResultSchema() *arrow.Schema {
	if described, ok := q.statement().(backend.ResultDescriber); ok {
		return described.ResultSchema()
	}
	return nil
}

func (q *PreparedQuery) statement() backend.Prepared {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	return q.stmt
}

// Query runs the statement and streams its rows, as SessionHandle.Query does. args are
// its parameters: one row of Go values, or an arrow.RecordBatch with a row for each
// execution.
func (q *PreparedQuery) Query(ctx context.Context, args ...any) (*QueryResult, error) {
	return q.QueryWithOptions(ctx, QueryOptions{Args: args})
}

// QueryWithOptions is Query with options, of which Params are the parameters. A
// Route other than RouteAuto replaces that of the preparing.
func (q *PreparedQuery) QueryWithOptions(ctx context.Context, opts QueryOptions) (*QueryResult, error) {
	if opts.Route == RouteAuto {
		opts.Route = q.route
	}
	asUpdate, ambiguity := opts.Route.sendsAsUpdate(q.script)
	if asUpdate {
		done, err := q.update(ctx, opts)
		if err != nil {
			return nil, err
		}
		return resultWithoutRows(done), nil
	}
	c, params, err := q.begin(ctx, "PreparedQuery.Query", opts, ambiguity)
	if err != nil {
		return nil, err
	}
	return q.s.openResult(c, func(ctx context.Context) (stream backend.Stream, err error) {
		err = q.bind(ctx, c, params, func(stmt backend.Prepared, rows arrow.RecordBatch) error {
			stream, err = stmt.Query(ctx, rows, c.backendCall)
			return err
		})
		return stream, err
	})
}

// Update runs the statement for its effect, with args as in Query: once for every row.
func (q *PreparedQuery) Update(ctx context.Context, args ...any) (UpdateResult, error) {
	return q.update(ctx, QueryOptions{Args: args})
}

// UpdateWithOptions is Update with options, of which Params are the parameters.
// Retry and Route do not apply.
func (q *PreparedQuery) UpdateWithOptions(ctx context.Context, opts QueryOptions) (UpdateResult, error) {
	return q.update(ctx, opts)
}

func (q *PreparedQuery) update(ctx context.Context, opts QueryOptions) (UpdateResult, error) {
	opts.Route, opts.asUpdate = RouteUpdate, true
	c, params, err := q.begin(ctx, "PreparedQuery.Update", opts, nil)
	if err != nil {
		return UpdateResult{}, err
	}
	return updateResult(runStep(c, func(ctx context.Context) (n int64, err error) {
		err = q.bind(ctx, c, params, func(stmt backend.Prepared, rows arrow.RecordBatch) error {
			n, err = q.s.updatePrepared(ctx, c, stmt, rows)
			return err
		})
		return n, err
	}, c.countOutcome))
}

// begin begins a call of the statement, with the parameters of opts, or ends it with a
// fault of its arguments. That it is alive is looked at once the handle is busy: from
// then on neither Close can take it away.
//
// INVARIANT: no execution has the parameters of an earlier one, which some servers keep.
func (q *PreparedQuery) begin(ctx context.Context, op string, opts QueryOptions, fault error) (*call, parameters, error) {
	params, unsendable := parametersOf(opts)
	fault = cmp.Or(fault, unsendable)
	opts.text = q.sql
	c, err := q.s.begin(ctx, op, opts, q.s.changeMode(opts, q.script, params))
	if err != nil {
		return nil, params, err
	}
	q.s.mu.Lock()
	_, alive := q.s.mu.prepared[q]
	q.s.mu.Unlock()
	if !alive {
		err = usageError(backend.ErrHandleClosed)
	} else if err = q.s.checkStatement(c, q.script); err == nil {
		if fault == nil && q.bound && !params.given() {
			fault = errors.New("the statement was executed with parameters before: give it those of this execution")
		}
		if fault != nil {
			err = usageError(fault)
		}
	}
	if err != nil {
		return nil, params, c.finish(outcome{err: err})
	}
	switch {
	case q.goesAsText():
		c.requireSingleExecution(opts.Route, q.script)
	case q.mustPrepareAgain(c):
		c.requireSingleExecution(RouteAuto, q.script) // to prepare a text again may be to execute it
	}
	if opts.asUpdate {
		c.requireHeededParams(q.script, params)
	}
	c.query, q.bound = q, params.given()
	c.retainParams(params)
	return c, params, nil
}

// Close frees the statement on the server. It is idempotent. It is off the record
// before it is sent, so that it is closed for its user even if that fails; then the
// connection is closed after the session, and the server's statement with it.
func (q *PreparedQuery) Close(ctx context.Context) error {
	q.s.mu.Lock()
	_, alive := q.s.mu.prepared[q]
	q.s.mu.Unlock()
	if !alive {
		return nil
	}
	c, err := q.s.begin(ctx, "PreparedQuery.Close", QueryOptions{quiet: true, text: q.sql}, finishWithinBudget)
	if err != nil {
		if errors.Is(err, backend.ErrHandleClosed) || errors.Is(err, backend.ErrSessionLost) {
			return nil // it has gone with its session
		}
		return err
	}
	q.s.mu.Lock()
	delete(q.s.mu.prepared, q)
	q.s.mu.Unlock()
	return runStepWithoutValue(c, func(ctx context.Context) error { return q.s.checkTxAfterRefusal(ctx, q.statement().Close(ctx)) }, func(_ bool, err error) outcome {
		if err != nil {
			q.s.markDiscard(fmt.Errorf("close prepared statement: %w", err))
		}
		return outcome{err: err}
	})
}
