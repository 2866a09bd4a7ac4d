package sqlconn

import (
	"database/sql/driver"
	"errors"
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

// badConnError is a driver.ErrBadConn that errors.Is does not find. Broken does.
type badConnError struct{ err error }

// hideBadConn hides driver.ErrBadConn while rows or a transaction of the loan are open. At
// that error database/sql closes the *sql.Conn before its call returns, and waits there,
// past any context, for what the goroutine that it keeps waiting would have to end. There
// is nothing to retry on a *sql.Conn.
func (l *borrowedConn) hideBadConn(err error) error {
	if l.openRows.Load()+l.openTx.Load() > 0 && errors.Is(err, driver.ErrBadConn) {
		return &badConnError{err}
	}
	return err
}

func (e *badConnError) Error() string { return e.err.Error() }

// Is finds what errors.Is finds, but driver.ErrBadConn.
func (e *badConnError) Is(target error) bool {
	return target != driver.ErrBadConn && errors.Is(e.err, target)
}

// As finds what errors.As finds.
func (e *badConnError) As(target any) bool { return errors.As(e.err, target) }
