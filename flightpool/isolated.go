package flightpool

import (
	"errors"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/reservoir"
)

var errEndedGoroutine = errors.New("a callback ended its goroutine (runtime.Goexit)")

// callIsolated calls code of the user's on a goroutine of its own and waits for it. A
// panic or runtime.Goexit there is an error: the goroutine that calls has more to
// do, and one of the pool's would take the program with it.
func callIsolated(f func() error) error {
	a := callback.RunInGoroutine(func() (struct{}, error) { return struct{}{}, f() })
	switch {
	case a.Returned:
		return a.Err
	case a.Panicked != nil:
		return &reservoir.PanicError{Value: a.Panicked, Stack: a.Stack}
	default:
		return errEndedGoroutine
	}
}
