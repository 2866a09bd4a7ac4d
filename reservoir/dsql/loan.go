package dsql

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/flightpool/flightpool/reservoir"
)

// A loan is one connection in the hands of a borrower. Only the first call of end has
// an effect; it must follow the last use.
type loan struct {
	reservoir.Loan[*physical]
	quota   *viewQuota
	cluster *Cluster
	ended   atomic.Bool
}

// end gives the connection back; fault says that it is not fine. Whether it is
// open, idle and outside a transaction is looked at in any case. What can be
// repaired is, in the background.
func (l *loan) end(fault error) {
	if l.ended.Swap(true) {
		return
	}
	p := l.Value()
	if fault == nil && p.repairable() && l.cluster.repairs.Go(l.repair) {
		return
	}
	if fault == nil {
		fault = p.checkReturned()
	}
	l.finish(fault)
}

// repair repairs the connection and ends the loan, also when a tracer of the user's
// panics or ends the goroutine, which is not the borrower's.
func (l *loan) repair() {
	fault := errUnrepaired
	defer func() {
		if v := recover(); v != nil {
			l.cluster.log.Error("a function of the user's panicked while a connection was repaired", "panic", v)
		}
		l.finish(fault)
	}()
	fault = l.cluster.withCloseTimeout(l.Value().repair)
}

var errUnrepaired = errors.New("dsql: the repair of the connection broke off")

// beginCall says whether the borrower may run something, makes sure that no request to
// cancel a statement hits it, and watches it.
//
// INVARIANT: nothing is run for a loan that has ended, and its connection is not
// looked at: it may be another borrower's.
func (l *loan) beginCall(ctx context.Context) (errorMapper, error) {
	if l.ended.Load() {
		return errorMapper{}, ErrReleased
	}
	w := newErrorMapper(ctx, l.Value().pgx())
	return w, w.mapError(l.Value().absorbCancel(ctx))
}

// abandon ends the loan of a connection that somebody may still use, who cannot be
// waited for: it is cut.
func (l *loan) abandon(fault error) {
	if l.ended.Swap(true) {
		return
	}
	defer l.quota.release()
	l.Value().abort()
	_ = l.Discard(fault) // it stays ownedByBorrower: a close does not use it
}

// finish ends the loan.
func (l *loan) finish(fault error) {
	defer l.quota.release()
	l.Value().owner.CompareAndSwap(ownedByBorrower, ownedByNone)
	// An error says that Close has taken the connection back by force.
	if fault != nil {
		_ = l.Discard(fault)
	} else {
		_ = l.Release()
	}
}
