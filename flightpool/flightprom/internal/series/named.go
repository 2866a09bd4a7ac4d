package series

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

// Named are the sources of one kind by name. The zero value has none. Its methods may be
// called from any goroutine.
type Named[T any] struct {
	mu     sync.Mutex
	byName map[string]T
}

// Set gives a name to a source, in the place of the one that had it.
func (n *Named[T]) Set(name string, source T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byName == nil {
		n.byName = map[string]T{}
	}
	n.byName[name] = source
}

// Remove forgets a source.
func (n *Named[T]) Remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byName, name)
}

// Len is how many there are now.
func (n *Named[T]) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.byName)
}

// All are those of now, in the order of their names: the client library sorts what is
// sorted in less time. What is done with them is done without a lock.
func (n *Named[T]) All() iter.Seq2[string, T] {
	n.mu.Lock()
	all := maps.Clone(n.byName)
	n.mu.Unlock()
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}
