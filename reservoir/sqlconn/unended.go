package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

var (
	errUnendedRows = errors.New("sqlconn: the end of a transaction has failed, so that it may be open, and rows are: close them first")
	errUnendedRaw  = errors.New("sqlconn: the end of a transaction has failed, so that it may be open: run a statement before Raw, which rolls it back")
	errUnendedTx   = errors.New("sqlconn: the end of a transaction has failed while another of the same connection was open")
)

// unendedTx is a transaction whose end has failed, so that the server may have it open, while
// database/sql takes it for over.
type unendedTx = uint32

const (
	noUnended    unendedTx = iota
	mayBeUnended           // it is rolled back before the next call
	mixedUnended           // with another one, which is the same to the server: only ROLLBACK is left
)

// recordEnd takes note of the end of a transaction.
//
// INVARIANT: nothing is sent but ROLLBACK while unended is set. It would be a part of what nobody
// commits, or what was told to have failed be a part of it.
func (l *borrowedConn) recordEnd(err error) {
	switch {
	case err == nil:
	case l.openTx.Load() > 0:
		l.unended.Store(mixedUnended)
		lost := errUnendedTx
		l.conn.lost.CompareAndSwap(nil, &lost)
	default:
		l.unended.CompareAndSwap(noUnended, mayBeUnended)
	}
}

// endUnended runs before a call of a borrower's is sent. An error of it says that nothing was.
func (l *borrowedConn) endUnended(ctx context.Context) error {
	switch state := l.unended.Load(); {
	case state == noUnended:
		return nil
	case state == mixedUnended:
		return fmt.Errorf("%w: %w", driver.ErrBadConn, errUnendedTx)
	case l.openRows.Load() > 0:
		return errUnendedRows
	}
	if err := l.conn.lifecycle.rollback(ctx, l.conn); err != nil {
		err = fmt.Errorf("sqlconn: rolling back a transaction whose end has failed: %w", err)
		lost := err
		l.conn.lost.CompareAndSwap(nil, &lost)
		return err
	}
	l.unended.Store(noUnended)
	return nil
}

// afterUnended runs a call of a borrower's once no transaction can be open that is over.
func afterUnended[T any](ctx context.Context, l *borrowedConn, call func() (T, error)) (none T, err error) {
	if err := l.endUnended(ctx); err != nil {
		return none, err
	}
	return call()
}
