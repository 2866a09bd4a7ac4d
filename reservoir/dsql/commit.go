package dsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A watch judges the errors of one call: whether its connection was open when it
// began, and whether its context has ended.
//
// When a connection is lost while the answer to a simple query, or to a batch, is
// awaited, pgx forgets what happened and says "conn closed", safe to retry:
// whoever believes it, as database/sql does, runs the statement twice. And the
// answer of a statement that was cancelled for its context does not say so.
type watch struct {
	conn  *pgx.Conn
	open  bool
	ended func(error) error // adds the error of a context that has ended
}

func watching(ctx context.Context, conn *pgx.Conn) watch {
	return watch{conn, !conn.IsClosed(), func(err error) error { return endedBy(ctx, err) }}
}

// judge returns err, or ErrLost when err claims that nothing was sent by a
// connection that was open before and is not any more.
func (w watch) judge(err error) error {
	switch {
	case err == nil:
		return nil
	case w.open && w.conn.IsClosed() && unsent(err):
		return ErrLost
	case canceled(err):
		return w.ended(err)
	}
	return err
}

// exec runs what may change something.
func exec[T any](ctx context.Context, l *loan, do func() (T, error)) (T, error) {
	w, err := l.use(ctx)
	if err != nil {
		var none T
		return none, err
	}
	result, err := do()
	return result, w.judge(err)
}

// commit runs a COMMIT, and adds ErrCommitUnknown to its error when it may have
// been carried out.
func (p *physical) commit(ctx context.Context, do func(context.Context) error) error {
	sent := false
	err := p.control(ctx, func(ctx context.Context) error {
		sent = !p.pgx().IsClosed() && !p.pgx().PgConn().IsBusy() // a result that is not read leaves no room for it
		return do(ctx)
	})
	if err == nil || !sent || refused(err) {
		return err
	}
	if unsent(err) { // so says pgx when the answer to a simple query is lost, see watch
		err = endedBy(ctx, ErrLost)
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// uncertain are the classes of SQLSTATE that do not say what became of a COMMIT:
// lost connections, failures of the system, and faults of the server. PostgreSQL
// itself has committed nothing after any error, but DSQL commits elsewhere than where
// it answers.
var uncertain = []string{"08", "58", "XX"}

// refused says whether the error of a COMMIT proves that nothing was committed:
// the server answered with one that ends the transaction and not the session.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	fatal := pg.Severity == "FATAL" || pg.Severity == "PANIC" || pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
	return !fatal && pg.Code != "40003" && !slices.ContainsFunc(uncertain, func(class string) bool { return strings.HasPrefix(pg.Code, class) })
}

// unsent says whether pgx, or its driver for database/sql, claims that nothing
// was sent.
func unsent(err error) bool { return errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) }
