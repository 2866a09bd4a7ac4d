package registry

import (
	"maps"
	"slices"
	"sync"
)

// removedStats keeps the counters of users whose pools are removed, so that a
// server's counters never go back.
type removedStats struct {
	mu       sync.Mutex
	sum      PoolStats
	draining map[*userPool]struct{} // removed, and not closed yet
}

func (p *removedStats) addDraining(u *userPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining == nil {
		p.draining = map[*userPool]struct{}{}
	}
	p.draining[u] = struct{}{}
}

func (p *removedStats) foldIn(u *userPool) {
	done := u.poolStats()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.draining[u]; ok {
		delete(p.draining, u)
		p.sum = p.sum.add(done)
	}
}

// drainingPools are the removed users who are not closed yet.
func (p *removedStats) drainingPools() []*userPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.draining))
}

func (p *removedStats) poolStats() PoolStats {
	p.mu.Lock()
	sum, last := p.sum, slices.Collect(maps.Keys(p.draining))
	p.mu.Unlock()
	for _, u := range last {
		sum = sum.add(u.poolStats())
	}
	return sum
}
