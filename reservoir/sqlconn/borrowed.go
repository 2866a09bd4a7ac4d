package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// borrowedConn wraps a physical connection for one loan. It passes on everything but
// Close. It has the optional interfaces of database/sql that the driver has
// (withDriverInterfaces) where they matter; the others are answered as database/sql
// would without them.
//
// INVARIANT: nothing reaches the connection through it after its Close; the
// driverConn that database/sql has made of it sees to that.
type borrowedConn struct {
	conn        *Conn
	forBorrower bool          // for a borrower, not for our own checks
	ended       chan struct{} // closed by the first Close; nil: it is ours
	closes      atomic.Int32
	openRows    atomic.Int32
	openTx      atomic.Int32
	unended     atomic.Uint32 // an unendedTx
	endable     endableTxs

	// database/sql makes one call at a time.
	trace   Trace           // nil: nobody is told
	skipped *tracedCall     // which goes on with a prepared statement
	txCtx   context.Context //nolint:containedctx // of the open transaction; nil: there is none
}

// withDriverInterfaces gives c the interfaces for statements that the driver has: with
// others, database/sql would check arguments that only a prepared statement knows.
func withDriverInterfaces(l *borrowedConn) driver.Conn {
	_, execs := l.conn.raw.(driver.ExecerContext)
	_, queries := l.conn.raw.(driver.QueryerContext)
	switch {
	case execs && queries:
		return struct {
			*borrowedConn
			execer
			queryer
		}{l, execer{l}, queryer{l}}
	case execs:
		return struct {
			*borrowedConn
			execer
		}{l, execer{l}}
	case queries:
		return struct {
			*borrowedConn
			queryer
		}{l, queryer{l}}
	}
	return l
}

type (
	execer  struct{ conn *borrowedConn }
	queryer struct{ conn *borrowedConn }
)

func (l *borrowedConn) unwrap() *borrowedConn { return l }

// Close is called by database/sql, once, when nobody uses it any more. A borrower can
// call it before, by the Raw method of *sql.Conn: the connection is not used again then.
func (l *borrowedConn) Close() error {
	switch {
	case l.ended == nil:
	case l.closes.Add(1) == 1:
		l.endSkipped(errNotRun)
		close(l.ended)
	default:
		closed := net.ErrClosed
		l.conn.lost.CompareAndSwap(nil, &closed)
	}
	return nil
}

// withQueryTimeout gives a statement its time. The caller must call stop, for a query
// after its rows.
func (l *borrowedConn) withQueryTimeout(ctx context.Context) (limited context.Context, stop context.CancelFunc) {
	limit := time.Duration(l.conn.lifecycle.queryTimeout.Load())
	if !l.forBorrower || limit <= 0 {
		return ctx, nil
	}
	return context.WithTimeout(ctx, limit)
}

// IsValid lets database/sql see what the driver knows.
func (l *borrowedConn) IsValid() bool { return l.conn.Lost() == nil }

func (l *borrowedConn) Ping(ctx context.Context) error {
	p, ok := l.conn.raw.(driver.Pinger)
	if !ok {
		return nil
	}
	return l.recordError(ctx, catchPanicError(l.conn, func() error { return p.Ping(ctx) }))
}

func (q queryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	l := q.conn
	l.recordState(query)
	ctx, call := l.startTrace(ctx, "Query", query)
	return l.query(ctx, call, func(ctx context.Context) (driver.Rows, error) {
		return l.conn.raw.(driver.QueryerContext).QueryContext(ctx, query, args) //nolint:forcetypeassert // withDriverInterfaces has looked
	})
}

// query runs a query within its time, which its rows share.
func (l *borrowedConn) query(ctx context.Context, call *tracedCall, run func(ctx context.Context) (driver.Rows, error)) (driver.Rows, error) {
	ctx, stop := l.statementContext(ctx)
	rows, err := runCounted(ctx, l, call, func() (driver.Rows, error) { return run(ctx) })
	l.answered(call, err)
	if err != nil {
		if stop != nil {
			stop()
		}
		return nil, err
	}
	if call != nil {
		call.outcome.Answered = time.Since(call.began)
	}
	l.openRows.Add(1)
	return &borrowedRows{Rows: rows, l: l, ctx: ctx, stop: stop, call: call}, nil
}

func (e execer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	l := e.conn
	l.recordState(query)
	ctx, call := l.startTrace(ctx, "Exec", query)
	return l.exec(ctx, call, func(ctx context.Context) (driver.Result, error) {
		return l.conn.raw.(driver.ExecerContext).ExecContext(ctx, query, args) //nolint:forcetypeassert // withDriverInterfaces has looked
	})
}

// exec runs a statement within its time.
func (l *borrowedConn) exec(ctx context.Context, call *tracedCall, run func(ctx context.Context) (driver.Result, error)) (driver.Result, error) {
	ctx, stop := l.statementContext(ctx)
	if stop != nil {
		defer stop()
	}
	res, err := runCounted(ctx, l, call, func() (driver.Result, error) { return run(ctx) })
	l.executed(call, res, err)
	return res, err
}

// Prepare is there for the driver.Conn interface; database/sql calls
// PrepareContext.
func (l *borrowedConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("sqlconn: Prepare without a context is not supported")
}

func (l *borrowedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	l.recordState(query)
	first, prepares := l.takeSkipped(query), (*tracedCall)(nil)
	if first != nil {
		ctx = first.ctx
	} else {
		ctx, prepares = l.startTrace(ctx, "Prepare", query)
	}
	ctx, stop := l.statementContext(ctx)
	if stop != nil {
		defer stop()
	}
	l.conn.setLatest(ctx)
	began := time.Now()
	stmt, err := catchPanic(l.conn, func() (driver.Stmt, error) {
		return afterUnended(ctx, l, func() (driver.Stmt, error) { return l.prepare(ctx, query) })
	})
	if err != nil {
		l.count(time.Since(began), err) // a statement that never runs
		first.finish(err)
		prepares.finish(err)
		return nil, l.recordError(ctx, err)
	}
	prepares.finish(nil)
	lent := &borrowedStmt{Stmt: stmt, l: l, text: query, first: first}
	if converter, ok := stmt.(driver.ColumnConverter); ok { //nolint:staticcheck // older drivers have nothing else
		return struct {
			*borrowedStmt
			driver.ColumnConverter
		}{lent, converter}, nil
	}
	return lent, nil
}

func (l *borrowedConn) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := l.conn.raw.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	stmt, err := l.conn.raw.Prepare(query)
	if err == nil && ctx.Err() != nil {
		return nil, errors.Join(endOf(ctx), stmt.Close())
	}
	return stmt, err
}

// CheckNamedValue asks the driver about an argument.
func (l *borrowedConn) CheckNamedValue(v *driver.NamedValue) error {
	c, _ := l.conn.raw.(driver.NamedValueChecker)
	return l.checkArgument(c, v)
}

// checkArgument lets a driver or one of its statements check an argument, if they do. What
// they skip and is a driver.Valuer gives its value here: database/sql would keep locks
// for ever where that panics. The connection is sound then, for nothing was sent.
func (l *borrowedConn) checkArgument(c driver.NamedValueChecker, v *driver.NamedValue) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("sqlconn: argument %d: its value panicked: %v", v.Ordinal, p)
		}
	}()
	if c != nil {
		if err := c.CheckNamedValue(v); !errors.Is(err, driver.ErrSkip) {
			return err
		}
	}
	if valuer, ok := v.Value.(driver.Valuer); ok {
		value, err := driver.DefaultParameterConverter.ConvertValue(valuer)
		if err != nil {
			return fmt.Errorf("sqlconn: argument %d: %w", v.Ordinal, err)
		}
		v.Value = value
	}
	return driver.ErrSkip
}

// recordState remembers what a statement of a borrower leaves for Reset to take back,
// or leaves although Reset cannot.
func (l *borrowedConn) recordState(query string) {
	if !l.forBorrower {
		return
	}
	k := &l.conn.lifecycle.cfg.Kind
	if k.Resettable != nil && !k.Resettable(query) {
		l.conn.cannotReset.Store(true)
	}
	if k.LeavesNoState == nil || !k.LeavesNoState(query) {
		l.conn.needsReset.Store(true)
	}
}

// runCounted runs one statement and takes note of it.
func runCounted[T any](ctx context.Context, l *borrowedConn, call *tracedCall, run func() (T, error)) (T, error) {
	l.conn.setLatest(ctx)
	returned := false
	defer func() {
		if !returned {
			call.finish(errExited)
		}
	}()
	began := time.Now()
	v, err := catchPanic(l.conn, func() (T, error) { return afterUnended(ctx, l, run) })
	returned = true
	if err == nil && l.conn.refused.Load() {
		l.conn.refused.Store(false)
	}
	if !errors.Is(err, driver.ErrSkip) {
		l.count(time.Since(began), err)
	}
	return v, withCause(ctx, l.recordError(ctx, err))
}

// count takes a statement of a borrower into account.
func (l *borrowedConn) count(took time.Duration, err error) {
	if !l.forBorrower {
		return
	}
	l.conn.queryTime.Add(int64(took))
	if observe := l.conn.lifecycle.cfg.Observe; observe != nil {
		observe(took, err)
	}
	l.conn.queries.Add(1)
	if err != nil {
		l.conn.failures.Add(1)
	}
}

// recordError remembers an error that tells the end of the connection: whichever call
// of a borrower's the driver answers with it. It gives what database/sql is to see of it.
func (l *borrowedConn) recordError(ctx context.Context, err error) error {
	l.record(ctx, err, l.openRows.Load() > 0)
	return l.hideBadConn(err)
}
