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

// Close closes the driver's statement.
func (s *lentStmt) Close() error { return caughtError(s.l.c, s.Stmt.Close) }

func (s *lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.l.query(ctx, func(ctx context.Context) (driver.Rows, error) {
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
	return s.l.exec(ctx, func(ctx context.Context) (driver.Result, error) {
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

// CheckNamedValue asks the statement about an argument, or else the connection.
// What they skip goes to the statement's ColumnConverter, if it has one.
func (s *lentStmt) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return c.CheckNamedValue(v)
	}
	return s.l.CheckNamedValue(v)
}
