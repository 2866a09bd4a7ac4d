// Package callback runs code of the user's, or what calls such code: neither a panic
// nor runtime.Goexit in it ends what the caller has yet to do, and where it does not
// return, the caller need not wait for it.
package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// ErrExited says that a function has ended its goroutine.
var ErrExited = errors.New("ended its goroutine (runtime.Goexit)")

// PanicError is a panic, caught.
type PanicError struct {
	// Value is what the function panicked with.
	Value any
	// Stack is where, as runtime/debug.Stack prints it. It is not part of the
	// error's text.
	Stack []byte

	who string // panicked, for the text
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%s panicked: %v", cmp.Or(e.who, "a callback"), e.Value)
}

// Unwrap gives Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

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

// Failure is the error that f returned, a *PanicError or one that wraps ErrExited. who
// names f in the text of the latter two.
func (a *Attempt[T]) Failure(who string) error {
	switch {
	case a.Returned:
		return a.Err
	case a.Panicked != nil:
		return &PanicError{Value: a.Panicked, Stack: a.Stack, who: who}
	default:
		return fmt.Errorf("%s %w", who, ErrExited)
	}
}

// NoValue is f as a function with a value, which says nothing.
func NoValue(f func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, f() }
}

// Guard calls f, and in every case done with its Failure. f can end the goroutine:
// nothing may be done after Guard.
func Guard(who string, f func() error, done func(error)) {
	var a Attempt[struct{}]
	defer func() { done(a.Failure(who)) }()
	a.Run(NoValue(f))
}

// Isolate calls f on a goroutine of its own, waits for it and returns its Failure.
func Isolate(who string, f func() error) error {
	c := Go(NoValue(f))
	<-c.Done
	return c.Failure(who)
}

// A Call is a call of a function on a goroutine of its own.
type Call[T any] struct {
	Attempt[T]               // INVARIANT: set before Done is closed
	Done       chan struct{} // closed when the function has ended
}

// Go calls f on a goroutine of its own.
func Go[T any](f func() (T, error)) *Call[T] {
	c := &Call[T]{Done: make(chan struct{})}
	go func() {
		defer close(c.Done)
		c.Run(f)
	}()
	return c
}

// Wait waits for the end of f, once ctx has ended no longer than grace. It reports
// whether f has ended.
func (c *Call[T]) Wait(ctx context.Context, grace time.Duration) bool {
	select {
	case <-c.Done:
		return true
	case <-ctx.Done():
		return EndsWithin(c.Done, grace)
	}
}

// EndsWithin waits until done is closed, but no longer than limit. It reports whether
// it was.
func EndsWithin(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Within calls f on a goroutine of its own and waits for it, once ctx has ended no
// longer than grace. When inTime is false, f goes on; what it then returns without an
// error is given to late. end is called after all that. late and end may be nil. A panic or
// Goexit in them when the caller has gone is nobody's, and goes no further.
func Within[T any](ctx context.Context, grace time.Duration, f func() (T, error), late func(T), end func()) (a Attempt[T], inTime bool) {
	if end == nil {
		end = func() {}
	}
	c := Go(f)
	if c.Wait(ctx, grace) {
		end()
		return c.Attempt, true
	}
	go func() {
		defer contain(end)
		<-c.Done
		if c.Returned && c.Err == nil && late != nil {
			contain(func() { late(c.Value) })
		}
	}()
	return a, false
}

// contain calls f where nobody can be told of a panic in it.
func contain(f func()) {
	var a Attempt[struct{}]
	a.Run(NoValue(func() error { f(); return nil }))
}
