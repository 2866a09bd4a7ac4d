package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/flightpool/flightpool/internal/badconn"
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
