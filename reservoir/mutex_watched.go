//go:build invariants

package reservoir

import "sync"

// A mutex lets a test look at every section under the lock.
type mutex struct {
	sync.Mutex
	observer   lockObserver // set under Mutex
	beforeLock func()       // called before Lock, where it may hold the goroutine up; set while nobody else uses the lock
}

// A lockObserver is told of each section under the lock, by the goroutine that has
// it: at once after Lock, and immediately before Unlock.
type lockObserver interface {
	locked()
	unlocking()
}

func (m *mutex) Lock() {
	if m.beforeLock != nil {
		m.beforeLock()
	}
	m.Mutex.Lock()
	if m.observer != nil {
		m.observer.locked()
	}
}

func (m *mutex) TryLock() bool {
	if !m.Mutex.TryLock() {
		return false
	}
	if m.observer != nil {
		m.observer.locked()
	}
	return true
}

func (m *mutex) Unlock() {
	if m.observer != nil {
		m.observer.unlocking()
	}
	m.Mutex.Unlock()
}
