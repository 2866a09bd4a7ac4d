package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/bind"
	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/internal/driverapi"
)

// Prepare is part of driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return c.PrepareContext(c.baseCtx, query) }

// PrepareContext is part of driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.beginCall(ctx, "Prepare"); err != nil {
		return nil, err
	}
	ctx, stop := c.tx.bindContext(ctx)
	defer stop()
	q, err := contain("Prepare", func() (*flightpool.PreparedQuery, error) {
		return c.handle.PrepareQueryWithOptions(ctx, query, flightpool.QueryOptions{Route: routeOf(ctx)})
	})
	if err != nil {
		return nil, c.toDriverError(err)
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
	return s.conn.query(ctx, args, s.q.QueryWithOptions)
}

// ExecContext is part of driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(ctx, args, s.q.QueryWithOptions)
}

// CheckNamedValue is part of driver.NamedValueChecker: it reads what can be sent, so that
// a Value method is called once, and leaves the rest to database/sql.
//
// INVARIANT: no method of an argument is called on the caller's goroutine. database/sql has the
// connection in its hands there, and lets go of it, and of the locks of a transaction, only if
// CheckNamedValue returns.
func (c *conn) CheckNamedValue(arg *driver.NamedValue) error {
	var v bind.Value
	read := func() (err error) { v, err = bind.ValueOf(arg.Value); return err }
	if hasNoMethods(arg.Value) {
		if read() != nil {
			return driver.ErrSkip
		}
		arg.Value = v.Go()
		return nil
	}
	var err error
	if broke := callback.Isolate(fmt.Sprintf("argument %d", arg.Ordinal), func() error { err = read(); return nil }); broke != nil {
		return driverapi.BadArgument("Args", broke)
	}
	if _, isValuer := arg.Value.(driver.Valuer); err != nil && isValuer {
		return driverapi.BadArgument("Args", fmt.Errorf("argument %d: %w", arg.Ordinal, err)) // database/sql would call it again
	}
	if err != nil {
		return driver.ErrSkip
	}
	arg.Value = v.Go()
	return nil
}

// hasNoMethods knows the values that most calls have.
func hasNoMethods(v any) bool {
	switch v.(type) {
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64, string, []byte, time.Time, time.Duration:
		return true
	}
	return false
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
	s.conn.toClose = append(s.conn.toClose, s.q)
	return nil
}
