package sqlconn

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// borrowedStmt wraps a prepared statement for one loan: many drivers prepare each
// statement with arguments.
type borrowedStmt struct {
	driver.Stmt
	l *borrowedConn

	numInputErr error // of NumInput, which has none of its own

	text  string
	first *tracedCall // which it was prepared for
}

// Close closes the driver's statement.
func (s *borrowedStmt) Close() error {
	s.first.finish(errNotRun)
	s.first = nil
	return catchPanicError(s.l.conn, s.Stmt.Close)
}

// startTrace tells of a call, unless it is the one that the statement was prepared for.
func (s *borrowedStmt) startTrace(ctx context.Context, op string) (context.Context, *tracedCall) {
	if call := s.first; call != nil {
		s.first = nil
		return call.ctx, call
	}
	return s.l.startTrace(ctx, op, s.text)
}

// NumInput asks the driver how many arguments there are. Where that panics, what runs
// the statement fails.
func (s *borrowedStmt) NumInput() int {
	n, err := catchPanic(s.l.conn, func() (int, error) { return s.Stmt.NumInput(), nil })
	if s.numInputErr = err; err != nil {
		return -1
	}
	return n
}

func (s *borrowedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.numInputErr != nil {
		return nil, s.l.hideBadConn(s.numInputErr)
	}
	ctx, call := s.startTrace(ctx, "Query")
	return s.l.query(ctx, call, func(ctx context.Context) (driver.Rows, error) {
		if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
			return q.QueryContext(ctx, args)
		}
		return positional(ctx, args, s.Query)
	})
}

func (s *borrowedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.numInputErr != nil {
		return nil, s.l.hideBadConn(s.numInputErr)
	}
	ctx, call := s.startTrace(ctx, "Exec")
	return s.l.exec(ctx, call, func(ctx context.Context) (driver.Result, error) {
		if e, ok := s.Stmt.(driver.StmtExecContext); ok {
			return e.ExecContext(ctx, args)
		}
		return positional(ctx, args, s.Exec)
	})
}

// positional runs a statement of a driver that knows neither names nor contexts.
func positional[T any](ctx context.Context, args []driver.NamedValue, run func([]driver.Value) (T, error)) (none T, err error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if a.Name != "" {
			return none, errors.New("sqlconn: the driver does not support named arguments")
		}
		values[i] = a.Value
	}
	if err := endOf(ctx); err != nil {
		return none, err
	}
	return run(values)
}

// CheckNamedValue asks the statement about an argument, or else the connection.
// What they skip goes to the statement's ColumnConverter, if it has one.
func (s *borrowedStmt) CheckNamedValue(v *driver.NamedValue) error {
	if c, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return s.l.checkArgument(c, v)
	}
	return s.l.CheckNamedValue(v)
}

// borrowedRows end the time of their query with themselves. They have all optional
// interfaces of driver.Rows; what the driver's do not have is answered as
// database/sql would without it.
type borrowedRows struct {
	driver.Rows
	l    *borrowedConn
	ctx  context.Context    //nolint:containedctx // of the query
	stop context.CancelFunc // nil: the query has no time
	call *tracedCall

	closed bool // and counted no more
}

func (r *borrowedRows) Close() error {
	if r.stop != nil {
		defer r.stop()
	}
	err := catchPanicError(r.l.conn, r.Rows.Close)
	if !r.closed {
		r.closed = true
		r.l.openRows.Add(-1)
	}
	if err != io.EOF { //nolint:errorlint // the end of rows is io.EOF itself
		err = r.l.recordError(r.ctx, err)
	}
	if r.call != nil {
		r.call.finish(cmp.Or(r.call.outcome.Err, err))
		r.call = nil
	}
	return err
}

func (r *borrowedRows) Next(dest []driver.Value) error {
	err := r.run(func() error { return r.Rows.Next(dest) })
	r.call.read(err)
	return err
}

func (r *borrowedRows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *borrowedRows) NextResultSet() error {
	if n, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return r.run(n.NextResultSet)
	}
	return io.EOF
}

// run makes a call of the driver's rows that does not end them.
func (r *borrowedRows) run(call func() error) error {
	err := catchPanicError(r.l.conn, call)
	if err != io.EOF { //nolint:errorlint // the end of rows is io.EOF itself
		r.l.record(r.ctx, err, r.l.openRows.Load() > 1)
	}
	return err
}

func (r *borrowedRows) ColumnTypeScanType(index int) reflect.Type {
	if t, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return t.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r *borrowedRows) ColumnTypeDatabaseTypeName(index int) string {
	if t, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r *borrowedRows) ColumnTypeLength(index int) (length int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return t.ColumnTypeLength(index)
	}
	return 0, false
}

func (r *borrowedRows) ColumnTypeNullable(index int) (nullable, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return t.ColumnTypeNullable(index)
	}
	return false, false
}

func (r *borrowedRows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return t.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
