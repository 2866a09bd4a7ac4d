package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// conn is a driver.Conn over one session. database/sql sees to it that it
// is used by one goroutine at a time.
type conn struct {
	pool       *flightpool.FlightSQLPool
	unused     unused
	handle     *flightpool.SessionHandle // nil until the first call: see use
	baseCtx    context.Context           //nolint:containedctx // the values of Connect's, for calls that have none
	unended    driverapi.UnendedTx       // of a transaction that is over for database/sql
	tx         *tx                       // the open one, or nil
	openRows   int
	rolledBack <-chan struct{} // closed once a rollback is over that nobody waits for; nil: none
	afterClose func()          // runs once the connection is closed, or nil

	// lastCtx is the context of the last call. database/sql closes the connection
	// before that call returns.
	lastCtx context.Context //nolint:containedctx // of whoever waits for Close
	// toClose are the statements that the server is to close yet.
	toClose []*flightpool.PreparedQuery
}

var (
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
)

// beginCall is the first step of a call: it ends on the server what is over here.
func (c *conn) beginCall(ctx context.Context, op string) error {
	c.lastCtx = ctx
	if err := c.use(ctx, op); err != nil {
		return err
	}
	if err := c.awaitRollback(ctx, op); err != nil {
		return c.toDriverError(err)
	}
	if err := containError(op, func() error { return c.unended.RollBack(ctx, c.handle) }); err != nil {
		return c.toDriverError(err)
	}
	for i, q := range c.toClose {
		if err := containError(op, func() error { return q.Close(ctx) }); errors.Is(err, backend.ErrBusy) || driverapi.EndedByContext(err) || ctx.Err() != nil {
			c.toClose = c.toClose[i:] // what fails now is the call's to find out
			return nil
		}
	}
	c.toClose = nil
	return nil
}

// toDriverError makes of a session's error what database/sql must see. While rows or a
// transaction are open that is not driver.ErrBadConn: see package badconn. Nor is that of the
// cause of a context, which may be what a call on another database has failed with.
func (c *conn) toDriverError(err error) error {
	var e *flightpool.Error
	if c.tx == nil && c.openRows == 0 && errors.Is(err, flightpool.ErrSessionLost) && errors.As(err, &e) && e.Unsent && !driverapi.EndedByContext(err) {
		return badConnError{err}
	}
	return badconn.Hide(err)
}

// badConnError is an error upon which database/sql may try another connection.
type badConnError struct{ err error }

func (e badConnError) Error() string   { return e.err.Error() }
func (e badConnError) Unwrap() []error { return []error{driver.ErrBadConn, e.err} }

// Ping is part of driver.Pinger: a round trip to the server.
func (c *conn) Ping(ctx context.Context) error {
	c.lastCtx = ctx
	if err := c.use(ctx, "Ping"); err != nil {
		return err
	}
	if err := c.awaitRollback(ctx, "Ping"); err != nil {
		return c.toDriverError(err)
	}
	return c.toDriverError(containError("Ping", func() error { return c.handle.Ping(ctx) }))
}

// IsValid is part of driver.Validator. database/sql asks it when a connection is
// no longer in use, and closes one that is not valid: what is idle is the pool's
// to keep, whatever SetMaxIdleConns says.
func (*conn) IsValid() bool { return false }

// Close is part of driver.Conn: it gives the session back to the pool, which
// discards what cannot be used again.
//
// INVARIANT: nobody waits for that past the end of the context of the last call, and
// where there was no call nobody waits.
func (c *conn) Close() error {
	c.unused.giveBack()
	if c.handle != nil {
		c.closeHandle()
	}
	if c.afterClose != nil {
		c.afterClose()
	}
	return nil
}

// closeHandle gives the session of a call back.
func (c *conn) closeHandle() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.awaitRollback(c.baseCtx, "Close")
		_ = c.handle.Close() // its error says why the connection is not used again
	}()
	select {
	case <-done:
	case <-c.lastCtx.Done():
	}
}

// QueryContext is part of driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, args, func(ctx context.Context, opts flightpool.QueryOptions) (*flightpool.QueryResult, error) {
		return c.handle.QueryWithOptions(ctx, query, opts)
	})
}

// ExecContext is part of driver.ExecerContext. Rows that a statement returns
// are read and dropped.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, args, func(ctx context.Context, opts flightpool.QueryOptions) (*flightpool.QueryResult, error) {
		return c.handle.QueryWithOptions(ctx, query, opts)
	})
}

// exec runs a text or a prepared statement for its effect. The result is read to its
// end, for its count.
func (c *conn) exec(ctx context.Context, args []driver.NamedValue, run runFunc) (driver.Result, error) {
	if err := c.beginCall(ctx, "Exec"); err != nil {
		return nil, err
	}
	opts := flightpool.QueryOptions{Route: routeOf(ctx), Args: valuesOf(args)}
	ctx, stop := c.tx.bindContext(ctx)
	defer stop()
	result, err := contain("Exec", func() (driver.Result, error) { return execute(ctx, opts, run) })
	return result, c.toDriverError(err)
}

// execute runs a text or a prepared statement, and reads its result to the end.
func execute(ctx context.Context, opts flightpool.QueryOptions, run runFunc) (driver.Result, error) {
	result, err := run(ctx, opts)
	if errors.Is(err, flightpool.ErrAmbiguousRoute) && !driverapi.EndedByContext(err) { // Exec wants the effect
		opts.Route = flightpool.RouteUpdate
		result, err = run(ctx, opts)
	}
	if err != nil {
		return nil, err
	}
	defer result.Release() // the clean-up of a session has the pool's context
	for result.Next() {
		continue
	}
	if err := result.Err(); err != nil {
		return nil, err
	}
	n, known := result.RowsAffected()
	return execResult{n, known}, nil
}

// runFunc runs a text or a prepared statement.
type runFunc = func(ctx context.Context, opts flightpool.QueryOptions) (*flightpool.QueryResult, error)

// execResult is a driver.Result.
type execResult struct {
	rows  int64
	known bool
}

// LastInsertId is part of driver.Result. Flight SQL has no such thing.
func (execResult) LastInsertId() (int64, error) {
	return 0, errors.New("flightpool: Flight SQL has no last insert id")
}

// RowsAffected is part of driver.Result.
func (a execResult) RowsAffected() (int64, error) {
	if !a.known {
		return 0, errors.New("flightpool: the server does not tell the rows affected")
	}
	return a.rows, nil
}
