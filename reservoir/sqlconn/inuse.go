package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/internal/badconn"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// refusedByBusyDriver reports whether a call made beside open rows may have failed for
// those alone. A driver that takes one call at a time answers driver.ErrBadConn then, or
// says that it is not valid. Some keep the connection; go-sql-driver/mysql closes it. The
// rows or the reset find out, and the server is not blamed.
func refusedByBusyDriver(c *Conn, err error) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return true
	}
	return !Broken(err) && !c.valid()
}

// endOf is how ctx has ended, or nil. Its cause may be what a call on another database has failed with, as in an errgroup:
// driver.ErrBadConn of that is not this connection's.
func endOf(ctx context.Context) error { return badconn.Hide(ctxerr.Of(ctx)) }

// hideBadConn hides driver.ErrBadConn while rows or a transaction of the loan are open.
// Broken finds it.
func (l *borrowedConn) hideBadConn(err error) error {
	if l.openRows.Load()+l.openTx.Load() > 0 {
		return badconn.Hide(err)
	}
	return err
}

// record is told whether rows are open beside what has failed.
func (l *borrowedConn) record(ctx context.Context, err error, besideRows bool) {
	switch {
	case err == nil || errors.Is(err, driver.ErrSkip):
	case besideRows && refusedByBusyDriver(l.conn, err):
		l.conn.refused.Store(true)
	default:
		l.conn.recordFailure(ctx, err)
	}
}
