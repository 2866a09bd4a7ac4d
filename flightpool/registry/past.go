package registry

import (
	"maps"
	"slices"
	"sync"
)

// removedStats keeps the counters of users whose pools are removed, so that a server's
// counters never go back. A pool that drains is counted by its own counters until
// foldIn takes it over.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.draining[u]; ok {
		delete(p.draining, u)
		p.sum = p.sum.add(u.poolStats()) // under the lock: nothing is lost between the two
	}
}

// drainingPools are the removed users who are not closed yet.
func (p *removedStats) drainingPools() []*userPool {
	_, draining := p.parts()
	return draining
}

// parts are what is closed, and the pools that are not.
func (p *removedStats) parts() (sum PoolStats, draining []*userPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sum, slices.Collect(maps.Keys(p.draining))
}

// connections counts those that are left of removed pools.
func (p *removedStats) connections() (n int) {
	for _, u := range p.drainingPools() {
		n += u.stats().Total
	}
	return n
}
