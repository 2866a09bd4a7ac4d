package reservoir

// A Loan is a connection on loan: its borrower alone may use it, until Release
// or Discard. A Loan is a value; copies are the same loan. The borrower must
// end it exactly once.
type Loan[C any] struct {
	r      *Reservoir[C]
	entry  *entry[C]
	number uint64
}

// Value returns the connection. Do not use it after the loan has ended. The
// zero Loan's is the zero C.
func (l Loan[C]) Value() C {
	if l.entry == nil {
		var none C
		return none
	}
	return l.entry.value
}

// Release gives the connection back. With Config.Reset or CheckOnRelease it
// first runs those, for up to CheckTimeout; when they fail the connection is
// closed, which is not the borrower's error. It returns ErrReleased, and does
// nothing, when the loan is not out any more.
func (l Loan[C]) Release() error {
	if l.entry == nil {
		return ErrReleased
	}
	if l.r.resets {
		return l.r.releaseWithReset(l)
	}
	return l.r.release(l)
}

// Discard gives the connection back to be closed: reason says what is wrong
// with it and reaches the hooks. It does not wait for the closing. It returns
// ErrReleased, and does nothing, when the loan is not out any more.
func (l Loan[C]) Discard(reason error) error {
	if l.entry == nil {
		return ErrReleased
	}
	return l.r.discard(l, Discarded, reason)
}
