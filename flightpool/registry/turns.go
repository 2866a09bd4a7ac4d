package registry

import (
	"context"
	"sync"

	"github.com/flightpool/flightpool/internal/taskgroup"
)

// changeLocks is one lock per server name for changes of definitions, so that a Kind
// that hangs blocks changes of its own server only. A lock of package sync would not
// do: a wait for it does not end with a context.
type changeLocks struct {
	mu      sync.Mutex
	held    map[string]chan struct{} // closed when the right is given back
	closed  bool
	changes taskgroup.Group
}

// lock takes the right to change a server, and waits for it until ctx ends; also
// when ctx has ended already: to close what can be closed at once.
func (t *changeLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil, ErrClosed
		}
		other := t.held[name]
		if other == nil {
			mine := make(chan struct{})
			if t.held == nil {
				t.held = map[string]chan struct{}{}
			}
			t.held[name] = mine
			t.changes.Add() // INVARIANT: only before closed, after which Close waits
			t.mu.Unlock()
			return func() { t.unlock(name, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *changeLocks) unlock(name string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.held, name)
	t.mu.Unlock()
	close(mine)
	t.changes.Done()
}

// close gives the right to nobody any more; false: it was closed before.
func (t *changeLocks) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.closed
	t.closed = true
	return !was
}
