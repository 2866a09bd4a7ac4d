package flightpool

import (
	"errors"
	"runtime/debug"

	"github.com/flightpool/flightpool/reservoir"
)

var errEndedGoroutine = errors.New("a callback ended its goroutine (runtime.Goexit)")

// isolated calls code of the user's on a goroutine of its own and waits for it. A
// panic or runtime.Goexit there is an error: the goroutine that calls has more to
// do, and one of the pool's would take the program with it.
func isolated(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errEndedGoroutine
		defer func() {
			if v := recover(); v != nil {
				err = &reservoir.PanicError{Value: v, Stack: debug.Stack()}
			}
			result <- err
		}()
		err = f()
	}()
	return <-result
}
