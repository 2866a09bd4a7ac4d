package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
)

// lentStmt stands before a prepared statement for the time of one loan: many
// drivers prepare each statement with arguments.
type lentStmt struct {
	driver.Stmt
	l *lent
}

func (s *lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx = s.l.bound(ctx)
	return timed(ctx, s.l, func() (driver.Rows, error) {
		if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return q.QueryContext(ctx, args)
		}
		values, err := positional(ctx, args)
		if err != nil {
			return nil, err
		}
		return s.Query(values)
	})
}

func (s *lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx = s.l.bound(ctx)
	defer s.l.unbound()
	return timed(ctx, s.l, func() (driver.Result, error) {
		if e, ok := s.Stmt.(driver.StmtExecContext); ok {
			return e.ExecContext(ctx, args)
		}
		values, err := positional(ctx, args)
		if err != nil {
			return nil, err
		}
		return s.Exec(values)
	})
}

// positional makes arguments for drivers that know neither names nor contexts.
func positional(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return nil, errors.New("sqlconn: the driver does not support named arguments")
		}
		values[i] = a.Value
	}
	return values, ctx.Err()
}

// CheckNamedValue asks the statement about an argument, and then the connection.
func (s *lentStmt) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	if c, ok := s.Stmt.(driver.ColumnConverter); ok { //nolint:staticcheck // older drivers have nothing else
		value, err := c.ColumnConverter(v.Ordinal - 1).ConvertValue(v.Value)
		v.Value = value
		return err
	}
	return s.l.CheckNamedValue(v)
}
