// Package taskgroup counts what goes on for an owner that waits for its end.
package taskgroup

import (
	"context"
	"sync"
)

// Group counts tasks. Unlike a sync.WaitGroup it may grow from zero beside a wait,
// can be closed for new tasks, and is waited for no longer than a context allows.
// The zero value is ready for use.
type Group struct {
	mu      sync.Mutex
	running int
	closed  bool
	allDone chan struct{} // closed when running is 0; nil: nobody waits
}

// Add counts a task, which calls Done at its end; false: the group is closed.
func (g *Group) Add() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running++
	}
	return !g.closed
}

// Done is the end of a task.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running == 0 && g.allDone != nil {
		close(g.allDone)
		g.allDone = nil
	}
}

// Go runs f in a goroutine as a task, which may panic or end its goroutine; false: the
// group is closed.
func (g *Group) Go(f func()) bool {
	if !g.Add() {
		return false
	}
	go func() {
		defer g.Done()
		f()
	}()
	return true
}

// Close lets no more tasks begin.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// Running is how many tasks there are.
func (g *Group) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}

// AllDone is closed when there are none, now or later.
func (g *Group) AllDone() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running == 0 {
		return none
	}
	if g.allDone == nil {
		g.allDone = make(chan struct{})
	}
	return g.allDone
}

var none = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wait returns 0 as soon as there are no tasks, or how many there are when ctx ends.
func (g *Group) Wait(ctx context.Context) int {
	select {
	case <-g.AllDone():
		return 0
	case <-ctx.Done():
		return g.Running()
	}
}
