package callback

import (
	"runtime"
	"runtime/debug"
)

// An Attempt is what a function came to: it returned, it panicked, or it ended its
// goroutine.
type Attempt[T any] struct {
	Value    T
	Err      error
	Returned bool
	Panicked any    // the value of a panic; nil without Returned: runtime.Goexit
	Stack    []byte // of a panic
}

// Run runs f and catches a panic. A runtime.Goexit in f ends the goroutine: what has
// to be done then must be deferred.
func (a *Attempt[T]) Run(f func() (T, error)) {
	defer func() {
		if a.Returned {
			return
		}
		if a.Panicked = recover(); a.Panicked != nil {
			a.Stack = debug.Stack()
		}
	}()
	a.Value, a.Err = f()
	a.Returned = true
}

// Resume ends the caller as f has ended, unless it returned.
func (a *Attempt[T]) Resume() {
	switch {
	case a.Returned:
	case a.Panicked != nil:
		panic(a.Panicked)
	default:
		runtime.Goexit()
	}
}

// RunInGoroutine runs f in a goroutine of its own and waits for it.
func RunInGoroutine[T any](f func() (T, error)) (a Attempt[T]) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(f)
	}()
	<-done
	return a
}
