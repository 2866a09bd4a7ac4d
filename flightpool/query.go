package flightpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/session"
)

// The types of package session that calls of a pool take and return.
type (
	// SessionHandle holds one connection for a transaction or other state.
	SessionHandle = session.SessionHandle
	// QueryResult streams the rows of a query.
	QueryResult = session.QueryResult
	// UpdateResult is what a change did.
	UpdateResult = session.UpdateResult
	// PreparedQuery is a prepared statement of a SessionHandle.
	PreparedQuery = session.PreparedQuery
	// QueryOptions adjust one call.
	QueryOptions = session.QueryOptions
	// IngestOptions tell Ingest where and how to store.
	IngestOptions = backend.IngestOptions
	// IngestMode tells what Ingest does with a table that exists, or does not.
	IngestMode = backend.IngestMode
	// IngestCompression is the compression of an Ingest's rows on the wire.
	IngestCompression = backend.IngestCompression
	// RetryPolicy says which failed calls are repeated.
	RetryPolicy = session.RetryPolicy
	// Route says by which call a statement is sent.
	Route = session.Route
)

// The routes.
const (
	RouteAuto   = session.RouteAuto
	RouteQuery  = session.RouteQuery
	RouteUpdate = session.RouteUpdate
)

// The retry policies.
const (
	RetryReads  = session.RetryReads
	RetryNever  = session.RetryNever
	RetryAlways = session.RetryAlways
)

// The modes of an ingestion.
const (
	IngestCreateAppend = backend.IngestCreateAppend // create the table if it is missing, append otherwise (default)
	IngestCreate       = backend.IngestCreate       // fail if it exists
	IngestAppend       = backend.IngestAppend       // fail if it is missing
	IngestReplace      = backend.IngestReplace      // drop and create it
)

// The compressions of an ingestion.
const (
	IngestUncompressed = backend.IngestUncompressed
	IngestLZ4          = backend.IngestLZ4
	IngestZSTD         = backend.IngestZSTD
)

// Query runs a statement on any free connection and streams its rows. args are its
// parameters by position, as QueryOptions.Args has them. The caller must Release the
// result, or read it to its end; until then it holds its connection. ctx covers the
// result as well: when it ends, reading fails with its error and the statement is
// cancelled on the server.
//
// A read whose connection fails before its first batch is repeated once. A
// statement that changes anything is sent once, whatever happens. One without
// rows gives an empty result with RowsAffected. A text that leaves open whether
// it is a query or an update fails with ErrAmbiguousRoute and is not sent: see
// QueryOptions.Route.
func (p *FlightSQLPool) Query(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return p.QueryWithOptions(ctx, sql, QueryOptions{Args: args})
}

// QueryRow runs a statement for the first of its rows, which Row.Scan reads. The caller
// must call that: until then the row holds its connection.
func (p *FlightSQLPool) QueryRow(ctx context.Context, sql string, args ...any) *Row {
	return session.NewRow(p.Query(ctx, sql, args...))
}

// Execute runs any statement: one with rows as Query does, any other as Update
// does, with the count in RowsAffected of the result.
func (p *FlightSQLPool) Execute(ctx context.Context, sql string, args ...any) (*QueryResult, error) {
	return runStateless(ctx, p, "Execute", sql, QueryOptions{Args: args}, func(ctx context.Context, s *SessionHandle, opts QueryOptions) (*QueryResult, error) {
		return s.QueryWithOptions(ctx, sql, opts)
	})
}

// Update runs a statement for its effect, once. args are its parameters, as in Query.
func (p *FlightSQLPool) Update(ctx context.Context, sql string, args ...any) (UpdateResult, error) {
	return p.UpdateWithOptions(ctx, sql, QueryOptions{Args: args})
}

// QueryWithParams runs a statement with parameters, one row of params per
// execution.
func (p *FlightSQLPool) QueryWithParams(ctx context.Context, sql string, params arrow.RecordBatch) (*QueryResult, error) {
	return p.QueryWithOptions(ctx, sql, QueryOptions{Params: params})
}

// UpdateWithRecordBatch runs a change once for every row of batch, in parts
// that fit the server's message limit.
func (p *FlightSQLPool) UpdateWithRecordBatch(ctx context.Context, sql string, batch arrow.RecordBatch) (UpdateResult, error) {
	return p.UpdateWithOptions(ctx, sql, QueryOptions{Params: batch})
}

// QueryWithOptions is Query with options.
func (p *FlightSQLPool) QueryWithOptions(ctx context.Context, sql string, opts QueryOptions) (*QueryResult, error) {
	return runStateless(ctx, p, "Query", sql, opts, func(ctx context.Context, s *SessionHandle, opts QueryOptions) (*QueryResult, error) {
		return s.QueryWithOptions(ctx, sql, opts)
	})
}

// UpdateWithOptions is Update with options.
func (p *FlightSQLPool) UpdateWithOptions(ctx context.Context, sql string, opts QueryOptions) (UpdateResult, error) {
	return runStateless(ctx, p, "Update", sql, opts, func(ctx context.Context, s *SessionHandle, opts QueryOptions) (UpdateResult, error) {
		return s.UpdateWithOptions(ctx, sql, opts)
	})
}

// Ingest loads rows into a table in bulk and returns how many were stored, or
// -1 when the server does not tell. It does not release rows.
func (p *FlightSQLPool) Ingest(ctx context.Context, table string, rows array.RecordReader, opts IngestOptions) (int64, error) {
	return runStateless(ctx, p, "Ingest", table, QueryOptions{Retry: RetryNever}, func(ctx context.Context, s *SessionHandle, _ QueryOptions) (int64, error) {
		return s.Ingest(ctx, table, rows, opts)
	})
}

// Ping shows, on any free connection, that the server has a session that works,
// by running HealthCheck.SQL, which it may refuse. A connection that turns out to be
// dead is replaced and the ping repeated once.
func (p *FlightSQLPool) Ping(ctx context.Context) error {
	_, err := runStateless(ctx, p, "Ping", "", QueryOptions{Retry: RetryAlways}, func(ctx context.Context, s *SessionHandle, _ QueryOptions) (struct{}, error) {
		return struct{}{}, s.Ping(ctx)
	})
	return err
}

// AcquireSession takes a connection out of the pool for a transaction, temp
// tables or prepared statements. The caller must Close the handle.
func (p *FlightSQLPool) AcquireSession(ctx context.Context) (*SessionHandle, error) {
	return p.acquireSession(ctx, "AcquireSession", false)
}

func (p *FlightSQLPool) acquireSession(ctx context.Context, op string, verified bool) (*SessionHandle, error) {
	loan, err := p.borrow(ctx, op, verified)
	if err != nil {
		return nil, err
	}
	p.counters.sessions.Add(1)
	return session.NewWithID(loan.Value(), loan.ConnectionID(), p.policy, p.tracing.onRelease(ctx, p.target, loan.ConnectionID(), p.returnLoan(loan))), nil
}

// runStateless runs one stateless call, and once more where that is safe. text is what
// tracers see of it.
func runStateless[T any](ctx context.Context, p *FlightSQLPool, op, text string, opts QueryOptions, call func(context.Context, *SessionHandle, QueryOptions) (T, error)) (v T, err error) {
	opts.Args = bind.Read(opts.Args) // before a connection is taken, and once for both attempts
	deadline := p.callDeadline(opts)
	ctx, trace := session.StartTrace(ctx, p.policy.Tracer, op, p.target, text)
	err = errCallerGone // where something of the caller's ends the goroutine
	defer func() {
		if err != nil {
			trace.End(err)
		}
	}()
	attempt := func(verified bool) (v T, reached bool, err error) {
		wait, stop := withDeadline(ctx, deadline)
		defer stop()
		s, err := p.lend(wait, session.PoolCall{Op: op, Trace: trace, Deadline: deadline}, verified)
		if err != nil {
			return v, false, err
		}
		defer func() {
			if !reached { // a method of the caller's context panicked before the call had begun
				_ = s.Close()
			}
		}()
		v, err = call(ctx, s, opts)
		return v, true, err
	}
	p.counters.calls.Add(1)
	reached := false
	if v, reached, err = attempt(false); err != nil && reached && ctx.Err() == nil && p.shouldRepeat(err, opts) {
		p.retried(op, err)
		trace.Retried()
		first := err
		if v, _, err = attempt(true); err != nil {
			err = fmt.Errorf("%w (the first attempt: %w)", err, first)
		}
	}
	if err != nil {
		p.counters.failures.Add(1)
		var none T
		return none, err
	}
	return v, nil
}

// callDeadline is when the call's own timeout ends, or zero.
func (p *FlightSQLPool) callDeadline(opts QueryOptions) time.Time {
	timeout := opts.Timeout
	if timeout == 0 {
		timeout = p.cfg.DefaultQueryTimeout
	}
	if timeout <= 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}

// withDeadline is ctx, ended at the deadline if there is one.
func withDeadline(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	if deadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// shouldRepeat reports whether a call that failed on a connection is made again on
// another.
//
// INVARIANT: a change of which anything may have been sent is not, unless the
// caller asked for RetryAlways.
func (p *FlightSQLPool) shouldRepeat(err error, opts QueryOptions) bool {
	var e *Error
	if p.cfg.DisableRetry || opts.Retry == RetryNever || !errors.As(err, &e) {
		return false
	}
	switch e.Fault {
	case FaultTransport, FaultSession, FaultAuth:
		return e.Read || e.Unsent || opts.Retry == RetryAlways
	default:
		return false
	}
}
