package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"
)

// lent stands before a physical connection for the time of one loan. It passes
// everything on but Close. Optional interfaces that the driver does not have are
// answered as database/sql would without them.
//
// INVARIANT: nothing reaches the connection through it after its Close; the
// driverConn that database/sql has made of it sees to that.
type lent struct {
	c      *Conn
	counts bool // for a borrower, not for our own checks

	// stop ends the time limit of the latest query, whose rows may still be
	// read. database/sql makes one call at a time.
	stop context.CancelFunc
}

func (l *lent) Close() error {
	l.unbound()
	return nil
}

// bound gives a statement its time. The limit of the statement before ends: on
// one connection its rows are done, or lost.
func (l *lent) bound(ctx context.Context) context.Context {
	l.unbound()
	limit := time.Duration(l.c.target.limit.Load())
	if !l.counts || limit <= 0 {
		return ctx
	}
	ctx, l.stop = context.WithTimeout(ctx, limit)
	return ctx
}

func (l *lent) unbound() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
}

// IsValid lets database/sql see what the driver knows.
func (l *lent) IsValid() bool { return l.c.Lost() == nil }

func (l *lent) Ping(ctx context.Context) error {
	p, ok := l.c.raw.(driver.Pinger)
	if !ok {
		return nil
	}
	return l.note(ctx, p.Ping(ctx))
}

func (l *lent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := l.c.raw.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	l.trace(query)
	ctx = l.bound(ctx)
	return timed(ctx, l, func() (driver.Rows, error) { return q.QueryContext(ctx, query, args) })
}

func (l *lent) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := l.c.raw.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	l.trace(query)
	ctx = l.bound(ctx)
	defer l.unbound()
	return timed(ctx, l, func() (driver.Result, error) { return e.ExecContext(ctx, query, args) })
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
	stmt, err := l.prepare(ctx, query)
	if err != nil {
		l.count(time.Since(began), err) // a statement that never runs
		return nil, l.note(ctx, err)
	}
	return &lentStmt{Stmt: stmt, l: l}, nil
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
	b, ok := l.c.raw.(driver.ConnBeginTx)
	switch {
	case ok:
		tx, err := b.BeginTx(ctx, opts)
		return tx, l.note(ctx, err)
	case opts.ReadOnly || opts.Isolation != 0:
		return nil, errors.New("sqlconn: the driver does not support transaction options")
	}
	tx, err := l.c.raw.Begin() //nolint:staticcheck // drivers without BeginTx have nothing else
	return tx, l.note(ctx, err)
}

// CheckNamedValue asks the driver about an argument.
func (l *lent) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := l.c.raw.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// trace remembers a statement of a borrower that Reset cannot take back.
func (l *lent) trace(query string) {
	if traceless := l.c.target.cfg.Kind.Traceless; l.counts && traceless != nil && !traceless(query) {
		l.c.traces.Store(true)
	}
}

// timed runs one statement and takes note of it.
func timed[T any](ctx context.Context, l *lent, run func() (T, error)) (T, error) {
	l.c.began(ctx)
	began := time.Now()
	v, err := run()
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
