package adbcpool

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/session"
)

// Begin is part of driver.Conn.
//
// Deprecated: database/sql calls BeginTx.
func (c *sqlConn) Begin() (driver.Tx, error) { return c.BeginTx(c.late, driver.TxOptions{}) }

// BeginTx is part of driver.ConnBeginTx.
func (c *sqlConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts.Isolation != 0 || opts.ReadOnly {
		return nil, badArgument("BeginTx", errors.New("isolation levels and read-only transactions are not known to Flight SQL"))
	}
	if err := c.left.end(ctx, c.s); err != nil {
		return nil, c.fail(err)
	}
	if err := c.s.BeginTransaction(ctx); err != nil {
		return nil, c.fail(err)
	}
	c.tx = &sqlTx{c, ctx}
	return c.tx, nil
}

// sqlTx is a driver.Tx.
type sqlTx struct {
	conn *sqlConn
	ctx  context.Context //nolint:containedctx // the transaction's, as database/sql understands BeginTx
}

// Commit is part of driver.Tx. When the transaction's context ends before the
// server has answered, errors.Is finds flightpool.ErrCommitUnknown.
func (t *sqlTx) Commit() error {
	t.conn.tx = nil
	err := t.conn.s.Commit(t.ctx)
	t.conn.left.note(err)
	var bad badConn
	if failed := t.conn.fail(err); errors.As(failed, &bad) {
		return bad.err // never a reason to try the commit elsewhere
	}
	return err
}

// Rollback is part of driver.Tx. It goes out although the context has ended.
func (t *sqlTx) Rollback() error {
	t.conn.tx = nil
	ctx, stop := t.conn.bounded()
	defer stop()
	err := t.conn.s.Rollback(ctx)
	t.conn.left.note(err)
	if errors.Is(err, flightpool.ErrSessionLost) {
		t.conn.lost.Store(true)
		return nil // the server has nothing left to undo
	}
	return err
}

// Prepare is part of driver.Conn.
func (c *sqlConn) Prepare(query string) (driver.Stmt, error) { return c.PrepareContext(c.late, query) }

// PrepareContext is part of driver.ConnPrepareContext.
func (c *sqlConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.left.end(ctx, c.s); err != nil {
		return nil, c.fail(err)
	}
	q, err := c.s.PrepareQueryWithOptions(ctx, query, flightpool.QueryOptions{Route: routeOf(ctx)})
	if err != nil {
		return nil, c.fail(err)
	}
	return &sqlStmt{c, q}, nil
}

// sqlStmt is a driver.Stmt over a prepared statement.
type sqlStmt struct {
	conn *sqlConn
	q    *flightpool.PreparedQuery
}

var (
	_ driver.StmtQueryContext = (*sqlStmt)(nil)
	_ driver.StmtExecContext  = (*sqlStmt)(nil)
)

// NumInput is part of driver.Stmt: -1 where the server does not tell.
func (s *sqlStmt) NumInput() int {
	if schema := s.q.ParameterSchema(); schema != nil && schema.NumFields() > 0 {
		return schema.NumFields()
	}
	return -1
}

// QueryContext is part of driver.StmtQueryContext.
func (s *sqlStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, func(ctx context.Context) (*flightpool.QueryResult, error) { return s.run(ctx, args) })
}

// ExecContext is part of driver.StmtExecContext.
func (s *sqlStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.run(ctx, args)
	if errors.Is(err, flightpool.ErrAmbiguousRoute) { // Exec wants the effect
		return s.update(ctx, args)
	}
	if err != nil {
		return nil, s.conn.fail(err)
	}
	return s.conn.drain(result) //nolint:contextcheck // the clean-up of a session has the pool's context
}

func (s *sqlStmt) update(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	params, err := bindRow(args)
	if err != nil {
		return nil, badArgument("Stmt", err)
	}
	if params != nil {
		defer params.Release()
	}
	done, err := s.q.Update(ctx, params)
	if err != nil {
		return nil, s.conn.fail(err)
	}
	return affected{done.RowsAffected, done.RowsAffected >= 0}, nil
}

func (s *sqlStmt) run(ctx context.Context, args []driver.NamedValue) (*flightpool.QueryResult, error) {
	params, err := bindRow(args)
	if err != nil {
		return nil, badArgument("Stmt", err)
	}
	if err := s.conn.left.end(ctx, s.conn.s); err != nil {
		return nil, err
	}
	opts := flightpool.QueryOptions{Route: routeOf(ctx)}
	if params != nil {
		defer params.Release()
		opts.Params = params
	}
	return s.q.QueryWithOptions(ctx, opts)
}

// Query is part of driver.Stmt.
//
// Deprecated: database/sql calls QueryContext.
func (s *sqlStmt) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }

// Exec is part of driver.Stmt.
//
// Deprecated: database/sql calls ExecContext.
func (s *sqlStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Close is part of driver.Stmt. A statement whose rows are still being read is
// closed with its session.
func (s *sqlStmt) Close() error {
	ctx, stop := s.conn.bounded()
	defer stop()
	err := s.q.Close(ctx)
	if errors.Is(err, session.ErrBusy) {
		return nil
	}
	return s.conn.fail(err)
}
