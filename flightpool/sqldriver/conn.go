package adbcpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/flightpool"
)

// OpenDB is the pool as a *sql.DB. Each use of the DB takes a session of the
// pool and gives it back at its end: database/sql keeps no idle connections,
// so leave SetMaxIdleConns alone. Limits and waiting are the pool's. Closing
// the DB does not close the pool.
//
// Parameters are positional ("?" or what else the server takes) and need no
// Prepare. Beside the types of database/sql they may be of every integer and
// float type, time.Duration and session.Decimal. Rows give what the driver
// interface has: int64, float64, bool, []byte, string, time.Time. Durations and
// times of day are nanoseconds, and so fit a time.Duration; decimals, intervals
// and integers above the range of int64 are exact strings. Lists are []any,
// structs and maps map[string]any, of such values, for an *any.
//
// Contexts end statements on the server, as with the pool itself. Errors are
// the pool's; where nothing was sent on a connection that is gone, errors.Is
// also finds driver.ErrBadConn, and database/sql has tried others already.
// Isolation levels and read-only transactions are refused. WithRoute says how a
// statement is sent whose text leaves that open.
func OpenDB(p *flightpool.FlightSQLPool) *sql.DB {
	db := sql.OpenDB(connector{p})
	db.SetMaxIdleConns(-1)
	return db
}

type connector struct{ pool *flightpool.FlightSQLPool }

// Connect is part of driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	s, err := c.pool.AcquireSession(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlConn{pool: c.pool, s: s, late: context.WithoutCancel(ctx)}, nil
}

// Driver is part of driver.Connector.
func (c connector) Driver() driver.Driver { return sqlDriver{c} }

// sqlDriver is what sql.DB.Driver returns.
type sqlDriver struct{ connector connector }

// Open is part of driver.Driver. There are no names to open.
func (sqlDriver) Open(string) (driver.Conn, error) {
	return nil, badArgument("Open", errors.New("use adbcpool.OpenDB"))
}

// lateTimeout bounds what database/sql asks for without a context: rollbacks
// and the closing of statements.
const lateTimeout = 30 * time.Second

// sqlConn is a driver.Conn over one session. database/sql sees to it that it
// is used by one goroutine at a time.
type sqlConn struct {
	pool *flightpool.FlightSQLPool
	s    *flightpool.SessionHandle
	late context.Context //nolint:containedctx // the values of Connect's, for calls that have none
	lost atomic.Bool     // the session is gone
	left leftover        // of a transaction that is over for database/sql
	tx   *sqlTx          // the open one, or nil
}

var (
	_ driver.QueryerContext     = (*sqlConn)(nil)
	_ driver.ExecerContext      = (*sqlConn)(nil)
	_ driver.ConnPrepareContext = (*sqlConn)(nil)
	_ driver.ConnBeginTx        = (*sqlConn)(nil)
	_ driver.Pinger             = (*sqlConn)(nil)
	_ driver.SessionResetter    = (*sqlConn)(nil)
	_ driver.Validator          = (*sqlConn)(nil)
	_ driver.NamedValueChecker  = (*sqlConn)(nil)
)

func (c *sqlConn) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.late, lateTimeout)
}

// fail makes of a session's error what database/sql must see.
func (c *sqlConn) fail(err error) error {
	if err == nil || !errors.Is(err, flightpool.ErrSessionLost) {
		return err
	}
	c.lost.Store(true)
	var e *flightpool.Error
	if errors.As(err, &e) && e.Unsent {
		return badConn{err}
	}
	return err
}

// badConn is an error upon which database/sql may try another connection.
type badConn struct{ err error }

func (e badConn) Error() string   { return e.err.Error() }
func (e badConn) Unwrap() []error { return []error{driver.ErrBadConn, e.err} }

// Ping is part of driver.Pinger: a round trip to the server.
func (c *sqlConn) Ping(ctx context.Context) error { return c.fail(c.s.Ping(ctx)) }

// IsValid is part of driver.Validator.
func (c *sqlConn) IsValid() bool { return !c.lost.Load() }

// ResetSession is part of driver.SessionResetter. A connection that
// database/sql has kept goes on with a session of the pool that nobody has
// left anything in.
func (c *sqlConn) ResetSession(ctx context.Context) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	_ = c.s.Close() //nolint:contextcheck // its own; its error says why the connection is not used again
	s, err := c.pool.AcquireSession(ctx)
	if err != nil {
		return err
	}
	c.s, c.left, c.tx = s, false, nil
	return nil
}

// Close is part of driver.Conn: it gives the session back to the pool, which
// discards what cannot be used again.
func (c *sqlConn) Close() error {
	_ = c.s.Close()
	return nil
}

// QueryContext is part of driver.QueryerContext.
func (c *sqlConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	params, err := bindRow(args)
	if err != nil {
		return nil, badArgument("Query", err)
	}
	opts := flightpool.QueryOptions{Route: routeOf(ctx)}
	if params != nil {
		defer params.Release()
		opts.Params = params
	}
	return c.query(ctx, func(ctx context.Context) (*flightpool.QueryResult, error) {
		return c.s.QueryWithOptions(ctx, query, opts)
	})
}

// ExecContext is part of driver.ExecerContext. Rows that a statement returns
// are read and dropped.
func (c *sqlConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	params, err := bindRow(args)
	if err != nil {
		return nil, badArgument("Exec", err)
	}
	if err := c.left.end(ctx, c.s); err != nil {
		return nil, c.fail(err)
	}
	opts := flightpool.QueryOptions{Route: routeOf(ctx)}
	if params != nil {
		defer params.Release()
		opts.Params = params
	}
	result, err := c.s.QueryWithOptions(ctx, query, opts)
	if errors.Is(err, flightpool.ErrAmbiguousRoute) { // Exec wants the effect
		opts.Route = flightpool.RouteUpdate
		result, err = c.s.QueryWithOptions(ctx, query, opts)
	}
	if err != nil {
		return nil, c.fail(err)
	}
	return c.drain(result) //nolint:contextcheck // the clean-up of a session has the pool's context
}

// drain reads a result to its end, for its count.
func (c *sqlConn) drain(result *flightpool.QueryResult) (driver.Result, error) {
	defer result.Release()
	for result.Next() {
		continue
	}
	if err := result.Err(); err != nil {
		return nil, c.fail(err)
	}
	n, known := result.RowsAffected()
	return affected{n, known}, nil
}

// affected is a driver.Result.
type affected struct {
	rows  int64
	known bool
}

// LastInsertId is part of driver.Result. Flight SQL has no such thing.
func (affected) LastInsertId() (int64, error) {
	return 0, errors.New("adbcpool: Flight SQL has no last insert id")
}

// RowsAffected is part of driver.Result.
func (a affected) RowsAffected() (int64, error) {
	if !a.known {
		return 0, errors.New("adbcpool: the server does not tell the rows affected")
	}
	return a.rows, nil
}
