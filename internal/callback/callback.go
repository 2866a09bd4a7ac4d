// Package callback runs code of the user's, or what calls such code, beside its
// caller: neither can it hold the caller up, nor end the program by a panic that
// nobody can recover from.
package callback

// Within runs f in a goroutine and waits for it until gone is closed: present is
// false then, and what f returns later without an error is given to late, which
// may be nil. end runs in that goroutine when all is over. A panic or Goexit in f
// goes on in the caller, unless that is gone.
func Within[T any](gone <-chan struct{}, f func() (T, error), late func(T), end func()) (v T, present bool, err error) {
	answered := make(chan Attempt[T])
	left := make(chan struct{})
	go func() {
		defer end()
		var a Attempt[T]
		defer func() { // also when Goexit ends the goroutine
			select {
			case answered <- a:
			case <-left:
				if a.Returned && a.Err == nil && late != nil {
					late(a.Value)
				}
			}
		}()
		a.Run(f)
	}()
	select {
	case a := <-answered:
		a.Resume()
		return a.Value, true, a.Err
	case <-gone:
		close(left)
		return v, false, nil
	}
}
