package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// Do makes a call on a user's pool of a Flight SQL server: for the calls of
// flightpool.FlightSQLPool that the registry does not have itself. fn is called at
// most once and must not keep the pool. A pool that an Update replaces goes on until
// fn returns. One that is removed, with its server, by CloseAll or with the user's
// mapping, does not: what fn then calls fails with ErrClosed, at once, and Do with what
// fn returns.
func (r *Registry) Do(ctx context.Context, server, user string, fn func(p *flightpool.FlightSQLPool) error) error {
	var failed error
	_, err := callUserPool(ctx, r, server, user, func(u *userPool, g *currentVersion) (struct{}, error) {
		f, ok := g.poolVersion.(flightVersion)
		switch {
		case !ok:
			return struct{}{}, errNotFlight
		case !u.beginDo(g, f.doCalls):
			return struct{}{}, ErrClosed // the call goes to the successor
		}
		defer f.doCalls.Done()
		if err := fn(f.pool); err != nil { // it may have done something, whatever the error is: it is not repeated
			failed = u.withNumbers(err)
		}
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	return failed
}

var errNotFlight = fmt.Errorf("%w: borrow a connection with Acquire", ErrWrongKind)

// countedFlightCall makes a call that is one statement, and counts it when it was sent.
// The time of a query ends with its first batch, before its rows are read.
func countedFlightCall[T any](ctx context.Context, r *Registry, server, user string, call func(p *flightpool.FlightSQLPool) (T, error)) (T, error) {
	return flightCall(ctx, r, server, user, call, func(u *userPool, g *currentVersion, took time.Duration, err error) {
		if !neverSent(err) {
			u.recordStatement(g.witness, !g.connKey.DisableQueryStats, took, err)
		}
	})
}

// neverSent says that nothing of a call has reached the server.
func neverSent(err error) bool {
	var e *flightpool.Error
	return errors.Is(err, ErrExhausted) || errors.Is(err, ErrUnhealthy) || errors.Is(err, ErrClosed) ||
		errors.As(err, &e) && (e.Stage == backend.StageAcquire || e.Stage == backend.StageArgument)
}

// flightCall makes a call on the Flight pool of a user, or fails with ErrWrongKind.
// done, if it is not nil, is told of the call's end, also of one that is repeated on
// the next version.
func flightCall[T any](ctx context.Context, r *Registry, server, user string, call func(p *flightpool.FlightSQLPool) (T, error), done func(u *userPool, g *currentVersion, took time.Duration, err error)) (T, error) {
	return callUserPool(ctx, r, server, user, func(u *userPool, g *currentVersion) (T, error) {
		f, ok := g.poolVersion.(flightVersion)
		if !ok {
			var none T
			return none, errNotFlight
		}
		if done == nil {
			return call(f.pool)
		}
		began := time.Now()
		v, err := call(f.pool)
		done(u, g, time.Since(began), err)
		return v, err
	})
}

// Query is flightpool.FlightSQLPool.Query on a server, as a user.
func (r *Registry) Query(ctx context.Context, server, user, sql string, args ...any) (*flightpool.QueryResult, error) {
	return r.QueryWithOptions(ctx, server, user, sql, flightpool.QueryOptions{Args: args})
}

// QueryRow is flightpool.FlightSQLPool.QueryRow on a server, as a user.
func (r *Registry) QueryRow(ctx context.Context, server, user, sql string, args ...any) *flightpool.Row {
	return session.NewRow(r.Query(ctx, server, user, sql, args...))
}

// QueryWithParams is flightpool.FlightSQLPool.QueryWithParams on a server, as a user.
func (r *Registry) QueryWithParams(ctx context.Context, server, user, sql string, params arrow.RecordBatch) (*flightpool.QueryResult, error) {
	return r.QueryWithOptions(ctx, server, user, sql, flightpool.QueryOptions{Params: params})
}

// QueryWithOptions is flightpool.FlightSQLPool.QueryWithOptions on a server, as a user.
func (r *Registry) QueryWithOptions(ctx context.Context, server, user, sql string, opts flightpool.QueryOptions) (*flightpool.QueryResult, error) {
	return countedFlightCall(ctx, r, server, user, func(p *flightpool.FlightSQLPool) (*flightpool.QueryResult, error) {
		return p.QueryWithOptions(ctx, sql, opts)
	})
}

// Execute is flightpool.FlightSQLPool.Execute on a server, as a user.
func (r *Registry) Execute(ctx context.Context, server, user, sql string, args ...any) (*flightpool.QueryResult, error) {
	return countedFlightCall(ctx, r, server, user, func(p *flightpool.FlightSQLPool) (*flightpool.QueryResult, error) {
		return p.Execute(ctx, sql, args...)
	})
}

// ExecuteUpdate is flightpool.FlightSQLPool.Update on a server, as a user; Update
// of a registry changes a definition.
func (r *Registry) ExecuteUpdate(ctx context.Context, server, user, sql string, args ...any) (flightpool.UpdateResult, error) {
	return r.UpdateWithOptions(ctx, server, user, sql, flightpool.QueryOptions{Args: args})
}

// UpdateWithRecordBatch is flightpool.FlightSQLPool.UpdateWithRecordBatch on a
// server, as a user.
func (r *Registry) UpdateWithRecordBatch(ctx context.Context, server, user, sql string, batch arrow.RecordBatch) (flightpool.UpdateResult, error) {
	return r.UpdateWithOptions(ctx, server, user, sql, flightpool.QueryOptions{Params: batch})
}

// UpdateWithOptions is flightpool.FlightSQLPool.UpdateWithOptions on a server, as a
// user.
func (r *Registry) UpdateWithOptions(ctx context.Context, server, user, sql string, opts flightpool.QueryOptions) (flightpool.UpdateResult, error) {
	return countedFlightCall(ctx, r, server, user, func(p *flightpool.FlightSQLPool) (flightpool.UpdateResult, error) {
		return p.UpdateWithOptions(ctx, sql, opts)
	})
}

// Ingest is flightpool.FlightSQLPool.Ingest on a server, as a user.
func (r *Registry) Ingest(ctx context.Context, server, user, table string, rows array.RecordReader, opts flightpool.IngestOptions) (int64, error) {
	return countedFlightCall(ctx, r, server, user, func(p *flightpool.FlightSQLPool) (int64, error) { return p.Ingest(ctx, table, rows, opts) })
}

// AcquireSession is flightpool.FlightSQLPool.AcquireSession on a server, as a user.
func (r *Registry) AcquireSession(ctx context.Context, server, user string) (*flightpool.SessionHandle, error) {
	return flightCall(ctx, r, server, user, func(p *flightpool.FlightSQLPool) (*flightpool.SessionHandle, error) { return p.AcquireSession(ctx) }, nil)
}
