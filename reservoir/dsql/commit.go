package dsql

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A watch knows whether a connection was open when something was begun on it.
//
// When a connection is lost while the answer to a simple query, or to a batch, is
// awaited, pgx forgets what happened and says "conn closed", safe to retry:
// whoever believes it, as database/sql does, runs the statement twice.
type watch struct {
	conn *pgx.Conn
	open bool
}

func watching(conn *pgx.Conn) watch { return watch{conn, !conn.IsClosed()} }

// judge returns err, or ErrLost when err claims that nothing was sent by a
// connection that was open before and is not any more.
func (w watch) judge(err error) error {
	if err != nil && w.open && w.conn.IsClosed() && unsent(err) {
		return ErrLost
	}
	return err
}

// exec runs what may change something.
func exec[T any](conn *pgx.Conn, do func() (T, error)) (T, error) {
	w := watching(conn)
	result, err := do()
	return result, w.judge(err)
}

// commit adds ErrCommitUnknown to the error of a COMMIT that may have been
// carried out. ended says that its context was over before.
func commit(conn *pgx.Conn, ended bool, do func() error) error {
	open := !ended && !conn.IsClosed()
	err := do()
	if err == nil || !open || refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

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
	return !fatal && pg.Code != "40003" && !strings.HasPrefix(pg.Code, "08")
}

// unsent says whether pgx, or its driver for database/sql, claims that nothing
// was sent.
func unsent(err error) bool { return errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) }
