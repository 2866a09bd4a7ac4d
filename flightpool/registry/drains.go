package registry

import (
	"slices"
	"sync"
)

// drainingServers are the servers that were unregistered and whose connections are not all
// closed yet, by name: they count against the bound of a server that is registered
// by the same name meanwhile.
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

// prune forgets those of a name that have no connections any more.
func (d *drainingServers) prune(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := slices.DeleteFunc(d.byName[name], func(s *server) bool {
		return s.allocator.Connections() == 0
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
