package dsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// SQLConn is a loan as database/sql sees it. The embedded connection brings
// every optional interface of pgx's driver, and Conn, which gives the *pgx.Conn.
type SQLConn struct {
	*inner
	loan *loan

	openRows, openTx int             // by database/sql, which makes one call at a time
	txCtx            context.Context //nolint:containedctx // of the open transaction
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

// Close gives the connection back to the reservoir, which closes it if it is lost
// or busy, and rolls back what is open.
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
	if c.loan.ended.Load() || c.loan.Value().checkReturned() != nil {
		return driver.ErrBadConn // nothing was sent: the right use of it
	}
	return nil
}

// Ping proves that the connection works. A context that ends does not cost it.
func (c *SQLConn) Ping(ctx context.Context) error {
	_, err := runContained(ctx, c.loan, func() (struct{}, error) { return struct{}{}, c.Conn().Ping(ctx) })
	if err != nil && c.Conn().IsClosed() && ctx.Err() == nil {
		return c.badConn() // another may work
	}
	return err
}

// badConn is driver.ErrBadConn, which database/sql does not see while rows or a
// transaction are open: see package badconn.
func (c *SQLConn) badConn() error { return c.hideBadConn(driver.ErrBadConn) }

func (c *SQLConn) hideBadConn(err error) error {
	if c.openRows+c.openTx > 0 {
		return badconn.Hide(err)
	}
	return err
}

// Begin is for callers without a context; database/sql uses BeginTx.
func (c *SQLConn) Begin() (driver.Tx, error) {
	return nil, errors.New("dsql: use BeginTx")
}

// isolations are those of PostgreSQL. DSQL has one, and refuses others itself.
var isolations = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault: "", sql.LevelReadUncommitted: pgx.ReadUncommitted, sql.LevelReadCommitted: pgx.ReadCommitted,
	sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSnapshot: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
}

// BeginTx begins a transaction. Its Commit fails with ErrCommitUnknown when the
// outcome cannot be known; its Rollback works when ctx has ended, too.
func (c *SQLConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.Conn().IsClosed() {
		return nil, c.badConn() // nothing was sent
	}
	if err := c.checkTx(); err != nil {
		return nil, err
	}
	level, known := isolations[sql.IsolationLevel(opts.Isolation)]
	if !known {
		return nil, fmt.Errorf("dsql: isolation level %v is not one of PostgreSQL's", sql.IsolationLevel(opts.Isolation))
	}
	with := pgx.TxOptions{IsoLevel: level}
	if opts.ReadOnly {
		with.AccessMode = pgx.ReadOnly
	}
	t, err := contain(c.loan, func() (pgx.Tx, error) { return (&Conn{conn: c.Conn(), loan: c.loan}).begin(ctx, with, false) })
	if err != nil {
		return nil, err
	}
	if begun, asked := ctx.Value(begunKey{}).(*atomic.Pointer[tx]); asked {
		begun.Store(t.(*tx)) // what begin makes
	}
	c.openTx, c.txCtx = c.openTx+1, ctx // one at a time
	ended := sync.OnceFunc(func() { c.openTx-- })
	return &sqlTx{
		commit:   func() error { defer ended(); return commitContained(c.loan, func() error { return t.Commit(ctx) }) },
		rollback: func() error { defer ended(); return containError(c.loan, func() error { return t.Rollback(ctx) }) },
	}, nil
}

// ExecContext runs a statement. One that may have been sent when the connection
// was lost fails with ErrLost, so that database/sql does not run it again.
func (c *SQLConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.checkTx(); err != nil {
		return nil, err
	}
	ctx, stop := c.bindContext(ctx)
	defer stop()
	result, err := runContained(ctx, c.loan, func() (driver.Result, error) { return c.inner.ExecContext(ctx, query, args) })
	return result, c.contextErrorIfUnsent(ctx, err)
}

// QueryContext runs a query, with ErrLost as ExecContext.
func (c *SQLConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.checkTx(); err != nil {
		return nil, err
	}
	ctx, stop := c.bindContext(ctx)
	w := newErrorMapper(ctx, c.Conn())
	r, err := runContained(ctx, c.loan, func() (driver.Rows, error) { return c.inner.QueryContext(ctx, query, args) })
	if err != nil {
		stop()
		return nil, c.contextErrorIfUnsent(ctx, err)
	}
	c.openRows++
	return &sqlRows{r.(*stdlib.Rows), w, c, stop}, nil //nolint:forcetypeassert // pgx has no others
}

// contextErrorIfUnsent says that the context was over before, where pgx's driver says
// that the connection is bad.
func (c *SQLConn) contextErrorIfUnsent(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrBadConn) && ctx.Err() != nil && !c.Conn().IsClosed() {
		return badconn.Hide(ctxerr.Of(ctx)) // what it has ended with may be of another connection
	}
	return c.hideBadConn(err)
}

// sqlRows are pgx's rows, with ErrLost, and with the context's error where it
// ended them.
type sqlRows struct {
	*stdlib.Rows
	mapper errorMapper
	conn   *SQLConn // nil once they are closed
	stop   func()   // lets go of the context that they are read with
}

// Close closes pgx's rows.
func (r *sqlRows) Close() error {
	defer r.stop()
	if r.conn != nil {
		r.conn.openRows--
		r.conn = nil
	}
	return r.Rows.Close()
}

// Next reads the next row.
func (r *sqlRows) Next(dest []driver.Value) error { return r.mapper.mapError(r.Rows.Next(dest)) }

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
		return nil, c.badConn() // nothing was sent
	}
	query = preparedText(query)
	ctx, stop := c.bindContext(ctx)
	defer stop()
	description, err := runContained(ctx, c.loan, func() (*pgconn.StatementDescription, error) {
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
