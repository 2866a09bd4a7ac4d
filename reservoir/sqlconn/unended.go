package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
)

var (
	errUnendedRows = errors.New("sqlconn: the beginning or end of a transaction has failed, so that it may be open, and rows are: close them first")
	errUnendedRaw  = errors.New("sqlconn: the beginning or end of a transaction has failed, so that it may be open: run a statement before Raw, which rolls it back")
	errEndedTx     = errors.New("sqlconn: the context of a transaction has ended, and it is about to be rolled back")
	errUnendedTx   = errors.New("sqlconn: the end of a transaction has failed while another of the same connection was open")
)

// unendedTx is a transaction whose beginning or end has failed, so that the server may have it open, while
// database/sql takes it for over.
type unendedTx = uint32

const (
	noUnended    unendedTx = iota
	mayBeUnended           // it is rolled back before the next call
	mixedUnended           // with another one, which is the same to the server: only ROLLBACK is left
)

// recordEnd takes note of the end of a transaction.
//
// INVARIANT: nothing is sent but ROLLBACK while unended is set, or the context of an open transaction has
// ended. It would be a part of what nobody commits, or what was told to have failed be a part of it.
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

// recordBegin takes note of the beginning of a transaction that has failed in err. Where another is open it
// is the same one to the server, and ends with that.
func (l *borrowedConn) recordBegin(err error) {
	unsent := errors.Is(err, errNoTxOptions) || errors.Is(err, errUnendedRows) || l.openRows.Load() > 0 && refusedByBusyDriver(l.conn, err)
	if !unsent && l.openTx.Load() == 0 {
		l.unended.CompareAndSwap(noUnended, mayBeUnended)
	}
}

// endableTxs are the open transactions of a loan. One whose context ends is over to its borrower before
// database/sql rolls it back, which it does on a goroutine of its own, to close the *sql.Conn then.
type endableTxs struct {
	mu  sync.Mutex
	all []*borrowedTx // what it has pointed to once is not written again
}

func (e *endableTxs) add(t *borrowedTx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(slices.Clip(e.all), t)
}

func (e *endableTxs) remove(t *borrowedTx) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = slices.DeleteFunc(slices.Clone(e.all), func(other *borrowedTx) bool { return other == t })
}

// anyOver reports whether the context of one of them but own has ended.
func (e *endableTxs) anyOver(own *borrowedTx) bool {
	e.mu.Lock()
	all := e.all
	e.mu.Unlock()
	return slices.ContainsFunc(all, func(t *borrowedTx) bool { return t != own && t.ctx.Err() != nil })
}

// endUnended runs before a call of a borrower's is sent, or before own is committed. An error of it says
// that nothing was.
func (l *borrowedConn) endUnended(ctx context.Context, own *borrowedTx) error {
	if l.openTx.Load() > 0 && l.endable.anyOver(own) {
		return errEndedTx
	}
	switch state := l.unended.Load(); {
	case state == noUnended:
		return nil
	case state == mixedUnended:
		return fmt.Errorf("%w: %w", driver.ErrBadConn, errUnendedTx)
	case l.openRows.Load() > 0:
		return errUnendedRows
	}
	if err := l.conn.lifecycle.rollback(ctx, l.conn); err != nil {
		err = fmt.Errorf("sqlconn: rolling back a transaction whose beginning or end has failed: %w", err)
		lost := err
		if endedByContext(ctx, err) {
			lost = errGivenUp
		}
		l.conn.lost.CompareAndSwap(nil, &lost)
		return err
	}
	l.unended.Store(noUnended)
	return ctx.Err() // the caller may have left meanwhile: nothing of the call is to be begun then
}

// afterUnended runs a call of a borrower's once no transaction can be open that is over.
func afterUnended[T any](ctx context.Context, l *borrowedConn, call func() (T, error)) (none T, err error) {
	if err := l.endUnended(ctx, nil); err != nil {
		return none, err
	}
	return call()
}
