package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/bind"
)

// Prepare is part of driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return c.PrepareContext(c.baseCtx, query) }

// PrepareContext is part of driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return st, nil
}

func (c *conn) prepare(ctx context.Context, query string) (*stmt, error) {
	if err := c.beginCall(ctx); err != nil {
		return nil, err
	}
	ctx, stop := c.tx.bindContext(ctx)
	defer stop()
	q, err := c.handle.PrepareQueryWithOptions(ctx, query, flightpool.QueryOptions{Route: routeOf(ctx)})
	if err != nil {
		return nil, toDriverError(err)
	}
	return &stmt{c, q}, nil
}

// stmt is a driver.Stmt over a prepared statement.
type stmt struct {
	conn *conn
	q    *flightpool.PreparedQuery
}

var (
	_ driver.StmtQueryContext = (*stmt)(nil)
	_ driver.StmtExecContext  = (*stmt)(nil)
)

// NumInput is part of driver.Stmt: -1 where the server does not tell.
func (s *stmt) NumInput() int {
	if schema := s.q.ParameterSchema(); schema != nil && schema.NumFields() > 0 {
		return schema.NumFields()
	}
	return -1
}

// QueryContext is part of driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(ctx, func(ctx context.Context) (*flightpool.QueryResult, error) { return s.run(ctx, args) })
}

// ExecContext is part of driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.beginCall(ctx); err != nil {
		return nil, err
	}
	ctx, stop := s.conn.tx.bindContext(ctx)
	defer stop()
	result, err := s.run(ctx, args)
	if errors.Is(err, flightpool.ErrAmbiguousRoute) { // Exec wants the effect
		return s.update(ctx, args)
	}
	if err != nil {
		return nil, toDriverError(err)
	}
	return s.conn.drain(result) // the clean-up of a session has the pool's context
}

func (s *stmt) update(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	done, err := s.q.Update(ctx, valuesOf(args)...)
	if err != nil {
		return nil, toDriverError(err)
	}
	return execResult{done.RowsAffected, done.RowsAffected >= 0}, nil
}

func (s *stmt) run(ctx context.Context, args []driver.NamedValue) (*flightpool.QueryResult, error) {
	return s.q.QueryWithOptions(ctx, flightpool.QueryOptions{Route: routeOf(ctx), Args: valuesOf(args)})
}

// CheckNamedValue is part of driver.NamedValueChecker: it reads what can be sent, so that
// a Value method is called once, and leaves the rest to database/sql.
func (c *conn) CheckNamedValue(arg *driver.NamedValue) error {
	v, err := bind.ValueOf(arg.Value)
	if err != nil {
		return driver.ErrSkip
	}
	arg.Value = v.Go()
	return nil
}

// valuesOf are arguments as calls of the pool take them.
func valuesOf(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, arg := range args {
		if values[i] = arg.Value; arg.Name != "" {
			values[i] = sql.Named(arg.Name, arg.Value)
		}
	}
	return values
}

// Query is part of driver.Stmt.
//
// Deprecated: database/sql calls QueryContext.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }

// Exec is part of driver.Stmt.
//
// Deprecated: database/sql calls ExecContext.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Close is part of driver.Stmt. The statement is closed on the server by the next
// call of the connection, or with its session: Close has no context to wait with,
// and database/sql calls it before a call of its user's returns.
func (s *stmt) Close() error {
	s.closeLater()
	return nil
}

func (s *stmt) closeLater() { s.conn.toClose = append(s.conn.toClose, s.q) }
