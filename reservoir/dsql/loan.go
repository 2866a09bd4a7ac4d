package dsql

import (
	"sync/atomic"

	"github.com/flightpool/flightpool/reservoir"
)

// A loan is one connection in the hands of a borrower. end is called exactly
// once to some effect, and only after the last use.
type loan struct {
	reservoir.Loan[*physical]
	member *member
	ended  atomic.Bool
}

// end gives the connection back; fault says that it is not fine. Whether it is
// open, idle and outside a transaction is looked at in any case.
//
//nolint:contextcheck,nolintlint // a loan ends whatever became of the borrower's context; contextcheck reads this itself, so that nolintlint finds it unused
func (l *loan) end(fault error) {
	if l.ended.Swap(true) {
		return
	}
	p := l.Value()
	if fault == nil {
		fault = p.fit()
	}
	p.user.CompareAndSwap(borrower, nobody)
	// An error says that Close has taken the connection back by force.
	if fault != nil {
		_ = l.Discard(fault)
	} else {
		_ = l.Release()
	}
	l.member.give()
}
