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
	limit := l.c.target.cfg.QueryTimeout
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
	return l.note(p.Ping(ctx))
}

func (l *lent) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := l.c.raw.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	ctx = l.bound(ctx)
	return timed(l, query, func() (driver.Rows, error) { return q.QueryContext(ctx, query, args) })
}

func (l *lent) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e, ok := l.c.raw.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	ctx = l.bound(ctx)
	defer l.unbound()
	return timed(l, query, func() (driver.Result, error) { return e.ExecContext(ctx, query, args) })
}

func (l *lent) Prepare(query string) (driver.Stmt, error) {
	return timed(l, query, func() (driver.Stmt, error) { return l.c.raw.Prepare(query) })
}

func (l *lent) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	p, ok := l.c.raw.(driver.ConnPrepareContext)
	if ok {
		return timed(l, query, func() (driver.Stmt, error) { return p.PrepareContext(ctx, query) })
	}
	stmt, err := l.Prepare(query)
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
		return tx, l.note(err)
	case opts.ReadOnly || opts.Isolation != 0:
		return nil, errors.New("sqlconn: the driver does not support transaction options")
	}
	tx, err := l.c.raw.Begin() //nolint:staticcheck // drivers without BeginTx have nothing else
	return tx, l.note(err)
}

// CheckNamedValue asks the driver about an argument.
func (l *lent) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := l.c.raw.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// timed runs one statement and takes note of it.
func timed[T any](l *lent, query string, run func() (T, error)) (T, error) {
	if !l.counts {
		v, err := run()
		return v, l.note(err)
	}
	if traceless := l.c.target.cfg.Kind.Traceless; traceless != nil && !traceless(query) {
		l.c.traces.Store(true)
	}
	began := time.Now()
	v, err := run()
	if errors.Is(err, driver.ErrSkip) {
		return v, err
	}
	took := time.Since(began)
	l.c.busy.Add(int64(took))
	if observe := l.c.target.cfg.Observe; observe != nil {
		observe(took, err)
	}
	l.c.queries.Add(1)
	if err != nil {
		l.c.failures.Add(1)
	}
	return v, l.note(err)
}

// note remembers an error that tells the end of the connection.
func (l *lent) note(err error) error {
	if err != nil && Broken(err) {
		l.c.lost.CompareAndSwap(nil, &err)
	}
	return err
}
