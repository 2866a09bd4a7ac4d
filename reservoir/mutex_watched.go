//go:build invariants

package reservoir

import "sync"

// A mutex lets a test look at every section under the lock.
type mutex struct {
	sync.Mutex
	watch   lockWatch // set under Mutex
	locking func()    // called before Lock, where it may hold the goroutine up; set while nobody else uses the lock
}

// A lockWatch is told of each section under the lock, by the goroutine that has
// it: at once after Lock, and immediately before Unlock.
type lockWatch interface {
	locked()
	unlocking()
}

func (m *mutex) Lock() {
	if m.locking != nil {
		m.locking()
	}
	m.Mutex.Lock()
	if m.watch != nil {
		m.watch.locked()
	}
}

func (m *mutex) Unlock() {
	if m.watch != nil {
		m.watch.unlocking()
	}
	m.Mutex.Unlock()
}
