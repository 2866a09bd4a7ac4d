package registry

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/internal/taskgroup"
	"github.com/flightpool/flightpool/session"
)

// drainingServers are the servers that were unregistered and whose connections are not all
// closed yet, by name: they count against the bound of a server that is registered
// by the same name meanwhile, and what their sessions have set is known to its own.
type drainingServers struct {
	mu     sync.Mutex
	byName map[string][]*server
}

func (d *drainingServers) add(s *server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byName == nil {
		d.byName = map[string][]*server{}
	}
	d.byName[s.name] = append(d.byName[s.name], s)
}

// with are servers and those that drain, each once.
func (d *drainingServers) with(servers map[string]*server) []*server {
	all := slices.Collect(maps.Values(servers))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, old := range d.byName {
		for _, s := range old {
			if servers[s.name] != s { // else its Unregister came too late
				all = append(all, s)
			}
		}
	}
	return all
}

// prune forgets those of a name that are closed and have no connections any more. One that is
// about to be closed may have none yet: callers who found it before open theirs.
func (d *drainingServers) prune(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := slices.DeleteFunc(d.byName[name], func(s *server) bool {
		return s.allocator.Ended()
	})
	if len(left) == 0 {
		delete(d.byName, name)
		return
	}
	d.byName[name] = left
}

// countAgainst lets what drains of the name of s count against its bound. It is called
// before s has a pool, so that s grants nothing without them.
func (d *drainingServers) countAgainst(s *server) {
	d.prune(s.name)
	d.mu.Lock()
	old := slices.Clone(d.byName[s.name])
	d.mu.Unlock()
	for _, o := range old {
		s.allocator.Succeed(o.allocator)
	}
}

// settingsFor is the context in which sessions of a server of that name know what others have
// set: that of what drains of the name, whose sessions may not have put it back yet, or a new one.
func (d *drainingServers) settingsFor(life context.Context, name string) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.byName[name]; len(old) > 0 {
		return old[0].settings
	}
	return session.ShareSettings(life)
}

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
			return nil, ctxerr.Of(ctx)
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
