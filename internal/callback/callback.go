// Package callback runs code of the user's, or what calls such code, beside its
// caller: neither can it hold the caller up, nor end the program by a panic that
// nobody can recover from.
package callback

// AwaitUntil runs f in a goroutine and waits for it until gone is closed: present is
// false then, and what f returns later without an error is given to late, which
// may be nil. end runs in that goroutine when all is over. A panic or Goexit in f
// goes on in the caller, unless that is gone.
func AwaitUntil[T any](abandon <-chan struct{}, f func() (T, error), onLateResult func(T), onExit func()) (v T, inTime bool, err error) {
	results := make(chan Attempt[T])
	abandoned := make(chan struct{})
	go func() {
		defer onExit()
		var a Attempt[T]
		defer func() { // also when Goexit ends the goroutine
			select {
			case results <- a:
			case <-abandoned:
				if a.Returned && a.Err == nil && onLateResult != nil {
					onLateResult(a.Value)
				}
			}
		}()
		a.Run(f)
	}()
	select {
	case a := <-results:
		a.Resume()
		return a.Value, true, a.Err
	case <-abandon:
		close(abandoned)
		return v, false, nil
	}
}
