// Package callback runs code of the user's, or what calls such code, beside its
// caller: neither can it hold the caller up, nor end the program by a panic that
// nobody can recover from.
package callback

import "runtime"

// Within runs f in a goroutine and waits for it until gone is closed: present is
// false then, and what f returns later without an error is given to late, which
// may be nil. end runs in that goroutine when all is over. A panic or Goexit in f
// goes on in the caller, unless that is gone.
func Within[T any](gone <-chan struct{}, f func() (T, error), late func(T), end func()) (v T, present bool, err error) {
	answered := make(chan attempt[T])
	left := make(chan struct{})
	go func() {
		defer end()
		var a attempt[T]
		defer func() { // also when Goexit ends the goroutine
			select {
			case answered <- a:
			case <-left:
				if a.returned && a.err == nil && late != nil {
					late(a.v)
				}
			}
		}()
		a.run(f)
	}()
	select {
	case a := <-answered:
		a.goOn()
		return a.v, true, a.err
	case <-gone:
		close(left)
		return v, false, nil
	}
}

// attempt is what f came to.
type attempt[T any] struct {
	v        T
	err      error
	returned bool // else it panicked, or ended its goroutine
	panicked any
}

// run catches a panic.
func (a *attempt[T]) run(f func() (T, error)) {
	defer func() {
		if !a.returned {
			a.panicked = recover() // nil: runtime.Goexit
		}
	}()
	a.v, a.err = f()
	a.returned = true
}

// goOn ends the caller as f has ended, unless it returned.
func (a *attempt[T]) goOn() {
	switch {
	case a.returned:
	case a.panicked != nil:
		panic(a.panicked)
	default:
		runtime.Goexit()
	}
}
