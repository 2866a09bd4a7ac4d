package registry

import (
	"maps"
	"slices"
	"sync"
)

// past keeps what users did whose pools are removed, so that a server's counters
// never go back.
type past struct {
	mu   sync.Mutex
	sum  Pool
	last map[*userPool]struct{} // removed, and not closed yet
}

func (p *past) leaving(u *userPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[*userPool]struct{}{}
	}
	p.last[u] = struct{}{}
}

func (p *past) left(u *userPool) {
	done := u.pool()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.last[u]; ok {
		delete(p.last, u)
		p.sum = p.sum.plus(done)
	}
}

// draining are the removed users who are not closed yet.
func (p *past) draining() []*userPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.last))
}

func (p *past) pool() Pool {
	p.mu.Lock()
	sum, last := p.sum, slices.Collect(maps.Keys(p.last))
	p.mu.Unlock()
	for _, u := range last {
		sum = sum.plus(u.pool())
	}
	return sum
}
