package dsql

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxPrepared bounds the statements that a connection keeps prepared for
// database/sql. pgx keeps those of plain queries, by a bound of its own.
const maxPrepared = 256

// preparedText makes the text of a statement that is prepared for database/sql. pgx keeps
// prepared statements by their texts and takes one that the user has prepared for
// every query of that text, even one that is stale: with a text of its own, plain
// queries are not touched by it.
func preparedText(query string) string { return query + "\n-- prepared" }

// A stmt is a prepared statement of database/sql. The connection goes back to
// the reservoir after every use, and database/sql closes the statement then; so
// Close leaves it prepared, and to prepare it again costs nothing.
type stmt struct {
	conn     *SQLConn
	query    string // made by preparedText
	inputs   int
	hadError bool // an error may mean that the statement has gone stale: prepare it anew
}

var _ interface {
	driver.StmtExecContext
	driver.StmtQueryContext
} = (*stmt)(nil)

// PrepareContext prepares a statement, unless its connection has it already.
func (c *SQLConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.Conn().IsClosed() {
		return nil, driver.ErrBadConn // nothing was sent
	}
	query = preparedText(query)
	description, err := runOnLoan(ctx, c.loan, func() (*pgconn.StatementDescription, error) {
		return c.Conn().Prepare(ctx, query, query)
	})
	if err != nil {
		return nil, err
	}
	return &stmt{conn: c, query: query, inputs: len(description.ParamOIDs)}, nil
}

// Prepare is for callers without a context; database/sql uses PrepareContext.
func (c *SQLConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("dsql: use PrepareContext")
}

func (s *stmt) NumInput() int { return s.inputs }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.conn.ExecContext(ctx, s.query, args)
	s.hadError = s.hadError || err != nil
	return result, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.conn.QueryContext(ctx, s.query, args)
	s.hadError = s.hadError || err != nil
	return rows, err
}

func (s *stmt) Exec([]driver.Value) (driver.Result, error) {
	return nil, errors.New("dsql: use ExecContext")
}

func (s *stmt) Query([]driver.Value) (driver.Rows, error) {
	return nil, errors.New("dsql: use QueryContext")
}

// Close leaves the statement prepared, unless it failed or there are many.
func (s *stmt) Close() error {
	if s.conn.loan.ended.Load() {
		return nil // it is the next borrower's
	}
	p := s.conn.loan.Value()
	kept := p.prepared
	switch _, known := kept[s.query]; {
	case s.conn.Conn().IsClosed():
		return nil
	case !s.hadError && (known || len(kept) < maxPrepared):
		kept[s.query] = struct{}{}
		return nil
	}
	delete(kept, s.query)
	return s.conn.loan.cluster.withCloseTimeout(func(ctx context.Context) error {
		if err := p.absorbCancel(ctx); err != nil {
			return err
		}
		return s.conn.Conn().Deallocate(ctx, s.query)
	})
}
