package callback

import "sync"

// Notices are told one after the other, in the order in which they were added.
type Notices[T any] struct {
	mu      sync.Mutex
	pending []T
	telling bool
}

// Add adds a notice. It calls nothing, and so may be called under the lock that puts
// the notices in order.
func (n *Notices[T]) Add(v T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(n.pending, v)
}

// Tell calls f for each notice that there is, also for those that are added meanwhile,
// unless another call of Tell is about it. f may end the goroutine.
func (n *Notices[T]) Tell(f func(T)) {
	for n.tellNext(f) {
	}
}

func (n *Notices[T]) tellNext(f func(T)) bool {
	n.mu.Lock()
	if n.telling || len(n.pending) == 0 {
		n.mu.Unlock()
		return false
	}
	n.telling = true
	v := n.pending[0]
	n.pending = n.pending[1:]
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.telling = false
	}()
	f(v)
	return true
}
