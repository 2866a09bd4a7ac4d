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

// An errorMapper maps the errors of one call: whether its connection was open when it
// began, and whether its context has ended.
//
// When a connection is lost while the answer to a simple query, or to a batch, is
// awaited, pgx forgets what happened and says "conn closed", safe to retry:
// whoever believes it, as database/sql does, runs the statement twice. And the
// answer of a statement that was cancelled for its context does not say so.
type errorMapper struct {
	conn            *pgx.Conn
	wasOpen         bool
	addContextError func(error) error // adds the error of a context that has ended
}

func newErrorMapper(ctx context.Context, conn *pgx.Conn) errorMapper {
	return errorMapper{conn, !conn.IsClosed(), func(err error) error { return withContextError(ctx, err) }}
}

// mapError returns err, or ErrLost when err claims that nothing was sent by a
// connection that was open before and is not any more.
func (w errorMapper) mapError(err error) error {
	switch {
	case err == nil:
		return nil
	case w.wasOpen && w.conn.IsClosed() && claimsUnsent(err):
		return ErrLost
	case isQueryCanceled(err):
		return w.addContextError(err)
	}
	return err
}

// runOnLoan runs what may change something.
func runOnLoan[T any](ctx context.Context, l *loan, do func() (T, error)) (T, error) {
	w, err := l.beginCall(ctx)
	if err != nil {
		var none T
		return none, err
	}
	result, err := do()
	return result, w.mapError(err)
}

// commit runs a COMMIT, and adds ErrCommitUnknown to its error when it may have
// been carried out.
func (p *physical) commit(ctx context.Context, do func(context.Context) error) error {
	sent := false
	var answer error // err has the cause of ctx's end too, which may be an answer to somebody else
	err := p.runUncancelled(ctx, func(ctx context.Context) error {
		sent = !p.pgx().IsClosed() && !p.pgx().PgConn().IsBusy() // a result that is not read leaves no room for it
		answer = do(ctx)
		return answer
	})
	if err == nil || !sent || commitRefused(answer) {
		return err
	}
	if claimsUnsent(answer) { // so says pgx when the answer to a simple query is lost, see errorMapper
		err = withContextError(ctx, ErrLost)
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// uncertainClasses are the classes of SQLSTATE that do not say what became of a COMMIT:
// lost connections, want of resources, an operator's intervention, failures of the
// system, and faults of the server. PostgreSQL itself has committed nothing after any
// error, but DSQL commits elsewhere than where it answers.
var uncertainClasses = []string{"08", "53", "57", "58", "XX"}

// commitRefused says whether the error of a COMMIT proves that nothing was committed:
// the server answered with one that ends the transaction and not the session.
func commitRefused(err error) bool {
	if errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	fatal := pg.Severity == "FATAL" || pg.Severity == "PANIC" || pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
	return !fatal && pg.Code != "40003" && !slices.ContainsFunc(uncertainClasses, func(class string) bool { return strings.HasPrefix(pg.Code, class) })
}

// claimsUnsent says whether pgx, or its driver for database/sql, claims that nothing
// was sent.
func claimsUnsent(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err)
}
