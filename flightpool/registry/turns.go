package registry

import (
	"context"
	"sync"
)

// turns give the right to change a server to one caller at a time. A Kind that
// hangs, or a caller who waits, holds up who changes the server of that name, and
// nobody else.
type turns struct {
	mu     sync.Mutex
	busy   map[string]chan struct{} // closed when the right is given back
	closed bool
	all    tasks
}

// take takes the right to change a server, and waits for it until ctx ends; also
// when ctx has ended already: to close what can be closed at once.
func (t *turns) take(ctx context.Context, name string) (give func(), err error) {
	for {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return nil, ErrClosed
		}
		other := t.busy[name]
		if other == nil {
			mine := make(chan struct{})
			if t.busy == nil {
				t.busy = map[string]chan struct{}{}
			}
			t.busy[name] = mine
			t.all.add() // INVARIANT: only before closed, after which Close waits
			t.mu.Unlock()
			return func() { t.give(name, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) give(name string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.busy, name)
	t.mu.Unlock()
	close(mine)
	t.all.done()
}

// close gives the right to nobody any more; false: it was closed before.
func (t *turns) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.closed
	t.closed = true
	return !was
}
