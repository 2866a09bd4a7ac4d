// Package badconn hides driver.ErrBadConn from database/sql where it must not see it.
//
// At that error of a call database/sql closes the *sql.Conn before the call returns, and
// waits there, past any context, for its rows and its transaction: for ever where those are
// the caller's own. While something is open there is nothing that could be tried on another
// connection either.
package badconn

import (
	"database/sql/driver"
	"errors"
)

// Hide is err without a way to driver.ErrBadConn. The rest of its chain, and its text, are
// as they were.
func Hide(err error) error {
	if errors.Is(err, driver.ErrBadConn) {
		return &hidden{err}
	}
	return err
}

// Hidden reports whether driver.ErrBadConn was hidden in err.
func Hidden(err error) bool {
	var h *hidden
	return errors.As(err, &h)
}

type hidden struct{ err error }

func (h *hidden) Error() string { return h.err.Error() }

// Is finds what the chain has, but for driver.ErrBadConn.
func (h *hidden) Is(target error) bool {
	return target != driver.ErrBadConn && errors.Is(h.err, target)
}

// As finds what the chain has.
func (h *hidden) As(target any) bool { return errors.As(h.err, target) }
