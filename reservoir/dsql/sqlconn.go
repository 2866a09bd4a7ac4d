package dsql

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// SQLConn is a loan as database/sql sees it. The embedded connection brings
// every optional interface of pgx's driver, and Conn, which gives the *pgx.Conn.
type SQLConn struct {
	*inner
	loan    *loan
	bounded func(func(context.Context) error) error // for calls without a context
}

// inner is pgx's connection by another name, since its own is that of its
// method.
type inner = stdlib.Conn

var _ interface {
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
} = (*SQLConn)(nil)

// Close gives the connection back to the reservoir, which closes it unless it
// is open, idle and outside a transaction.
func (c *SQLConn) Close() error {
	c.loan.end(nil)
	return nil
}

// IsValid is false: whatever database/sql has no use for right now goes back to
// the reservoir, the only idle store.
func (c *SQLConn) IsValid() bool { return false }

// ResetSession would be called before a connection is used again. Since none is
// kept, it has only to refuse one that must not be.
func (c *SQLConn) ResetSession(context.Context) error {
	if c.loan.ended.Load() || c.loan.Value().fit() != nil {
		return driver.ErrBadConn // nothing was sent: the right use of it
	}
	return nil
}

// Begin is for callers without a context; database/sql uses BeginTx.
func (c *SQLConn) Begin() (driver.Tx, error) {
	return nil, errors.New("dsql: use BeginTx")
}

// BeginTx begins a transaction. Its Commit fails with ErrCommitUnknown when the
// outcome cannot be known.
func (c *SQLConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.inner.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return sqlTx{tx, c.Conn()}, nil
}

// ExecContext runs a statement. One that may have been sent when the connection
// was lost fails with ErrLost, so that database/sql does not run it again.
func (c *SQLConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return exec(c.Conn(), func() (driver.Result, error) { return c.inner.ExecContext(ctx, query, args) })
}

// QueryContext runs a query, with ErrLost as ExecContext.
func (c *SQLConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return exec(c.Conn(), func() (driver.Rows, error) { return c.inner.QueryContext(ctx, query, args) })
}

type sqlTx struct {
	driver.Tx
	conn *pgx.Conn
}

// Commit has no context: database/sql has looked at it before.
func (t sqlTx) Commit() error { return commit(t.conn, false, t.Tx.Commit) }
