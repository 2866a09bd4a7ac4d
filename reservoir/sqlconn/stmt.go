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

	unfit error // of NumInput, which has none of its own
}

// Close closes the driver's statement.
func (s *lentStmt) Close() error { return caughtError(s.l.c, s.Stmt.Close) }

// NumInput asks the driver how many arguments there are. Where that panics, what runs
// the statement fails.
func (s *lentStmt) NumInput() int {
	n, err := caught(s.l.c, func() (int, error) { return s.Stmt.NumInput(), nil })
	if s.unfit = err; err != nil {
		return -1
	}
	return n
}

func (s *lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.unfit != nil {
		return nil, s.unfit
	}
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
	if s.unfit != nil {
		return nil, s.unfit
	}
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
		return s.l.checked(c, v)
	}
	return s.l.CheckNamedValue(v)
}
