package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// lent stands before a physical connection for the time of one loan. It passes
// everything on but Close. The optional interfaces with which database/sql asks
// for something are there where the driver has them (lend); others are answered
// as database/sql would without them.
//
// INVARIANT: nothing reaches the connection through it after its Close; the
// driverConn that database/sql has made of it sees to that.
type lent struct {
	c      *Conn
	counts bool // for a borrower, not for our own checks
}

// lend gives a lent the interfaces for statements that the driver has: with
// others, database/sql would check arguments that only a prepared statement knows.
func lend(l *lent) driver.Conn {
	_, execs := l.c.raw.(driver.ExecerContext)
	_, queries := l.c.raw.(driver.QueryerContext)
	switch {
	case execs && queries:
		return struct {
			*lent
			execer
			queryer
		}{l, execer{l}, queryer{l}}
	case execs:
		return struct {
			*lent
			execer
		}{l, execer{l}}
	case queries:
		return struct {
			*lent
			queryer
		}{l, queryer{l}}
	}
	return l
}

type (
	execer  struct{ of *lent }
	queryer struct{ of *lent }
)

func (l *lent) unwrap() *lent { return l }

func (l *lent) Close() error { return nil }

// limited gives a statement its time. The caller must call stop, for a query
// after its rows.
func (l *lent) limited(ctx context.Context) (limited context.Context, stop context.CancelFunc) {
	limit := time.Duration(l.c.target.limit.Load())
	if !l.counts || limit <= 0 {
		return ctx, nil
	}
	return context.WithTimeout(ctx, limit)
}

// IsValid lets database/sql see what the driver knows.
func (l *lent) IsValid() bool { return l.c.Lost() == nil }

func (l *lent) Ping(ctx context.Context) error {
	p, ok := l.c.raw.(driver.Pinger)
	if !ok {
		return nil
	}
	return l.note(ctx, caughtError(l.c, func() error { return p.Ping(ctx) }))
}

func (q queryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	l := q.of
	l.trace(query)
	return l.query(ctx, func(ctx context.Context) (driver.Rows, error) {
		return l.c.raw.(driver.QueryerContext).QueryContext(ctx, query, args) //nolint:forcetypeassert // lend has looked
	})
}

// query runs a query within its time, which its rows share.
func (l *lent) query(ctx context.Context, run func(ctx context.Context) (driver.Rows, error)) (driver.Rows, error) {
	ctx, stop := l.limited(ctx)
	rows, err := timed(ctx, l, func() (driver.Rows, error) { return run(ctx) })
	if err != nil {
		if stop != nil {
			stop()
		}
		return nil, err
	}
	return &lentRows{rows, l.c, stop}, nil
}

func (e execer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	l := e.of
	l.trace(query)
	return l.exec(ctx, func(ctx context.Context) (driver.Result, error) {
		return l.c.raw.(driver.ExecerContext).ExecContext(ctx, query, args) //nolint:forcetypeassert // lend has looked
	})
}

// exec runs a statement within its time.
func (l *lent) exec(ctx context.Context, run func(ctx context.Context) (driver.Result, error)) (driver.Result, error) {
	ctx, stop := l.limited(ctx)
	if stop != nil {
		defer stop()
	}
	return timed(ctx, l, func() (driver.Result, error) { return run(ctx) })
}

// Prepare is there for the driver.Conn interface; database/sql calls
// PrepareContext.
func (l *lent) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("sqlconn: Prepare without a context is not supported")
}

func (l *lent) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	l.trace(query)
	l.c.began(ctx)
	began := time.Now()
	stmt, err := caught(l.c, func() (driver.Stmt, error) { return l.prepare(ctx, query) })
	if err != nil {
		l.count(time.Since(began), err) // a statement that never runs
		return nil, l.note(ctx, err)
	}
	lent := &lentStmt{Stmt: stmt, l: l}
	if converter, ok := stmt.(driver.ColumnConverter); ok { //nolint:staticcheck // older drivers have nothing else
		return struct {
			*lentStmt
			driver.ColumnConverter
		}{lent, converter}, nil
	}
	return lent, nil
}

func (l *lent) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if p, ok := l.c.raw.(driver.ConnPrepareContext); ok {
		return p.PrepareContext(ctx, query)
	}
	stmt, err := l.c.raw.Prepare(query)
	if err == nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), stmt.Close())
	}
	return stmt, err
}

// Begin is there for the driver.Conn interface; database/sql calls BeginTx.
func (l *lent) Begin() (driver.Tx, error) {
	return nil, errors.New("sqlconn: Begin without a context is not supported")
}

func (l *lent) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := caught(l.c, func() (driver.Tx, error) {
		b, ok := l.c.raw.(driver.ConnBeginTx)
		switch {
		case ok:
			return b.BeginTx(ctx, opts)
		case opts.ReadOnly || opts.Isolation != 0:
			return nil, errors.New("sqlconn: the driver does not support transaction options")
		}
		return l.c.raw.Begin() //nolint:staticcheck // drivers without BeginTx have nothing else
	})
	if err != nil {
		return nil, l.note(ctx, err)
	}
	return lentTx{tx, l.c}, nil
}

// lentTx stands before a transaction.
type lentTx struct {
	tx driver.Tx
	c  *Conn
}

func (t lentTx) Commit() error   { return caughtError(t.c, t.tx.Commit) }
func (t lentTx) Rollback() error { return caughtError(t.c, t.tx.Rollback) }

// CheckNamedValue asks the driver about an argument.
func (l *lent) CheckNamedValue(v *driver.NamedValue) error {
	c, _ := l.c.raw.(driver.NamedValueChecker)
	return l.checked(c, v)
}

// checked lets a driver or one of its statements check an argument, if they do. What
// they skip and is a driver.Valuer gives its value here: database/sql would keep locks
// for ever where that panics. The connection is sound then, for nothing was sent.
func (l *lent) checked(c driver.NamedValueChecker, v *driver.NamedValue) (err error) {
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

// trace remembers what a statement of a borrower leaves for Reset to take back,
// or leaves although Reset cannot.
func (l *lent) trace(query string) {
	if !l.counts {
		return
	}
	k := &l.c.target.cfg.Kind
	if k.Traceless != nil && !k.Traceless(query) {
		l.c.traces.Store(true)
	}
	if k.Stateless == nil || !k.Stateless(query) {
		l.c.touched.Store(true)
	}
}

// timed runs one statement and takes note of it.
func timed[T any](ctx context.Context, l *lent, run func() (T, error)) (T, error) {
	l.c.began(ctx)
	began := time.Now()
	v, err := caught(l.c, run)
	if !errors.Is(err, driver.ErrSkip) {
		l.count(time.Since(began), err)
	}
	return v, l.note(ctx, err)
}

// count takes a statement of a borrower into account.
func (l *lent) count(took time.Duration, err error) {
	if !l.counts {
		return
	}
	l.c.busy.Add(int64(took))
	if observe := l.c.target.cfg.Observe; observe != nil {
		observe(took, err)
	}
	l.c.queries.Add(1)
	if err != nil {
		l.c.failures.Add(1)
	}
}

// note remembers an error that tells the end of the connection.
func (l *lent) note(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, driver.ErrSkip) {
		l.c.failed(ctx, err)
	}
	return err
}
