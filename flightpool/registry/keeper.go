package registry

import (
	"context"
	"time"
)

// maintain is the registry's only goroutine: it starts the probes of unhealthy servers
// and removes unused user pools. Reservoirs have timers of their own. It starts with
// the first server, ends with the registry, and never waits for a server: what takes
// time runs on goroutines of its own.
func (r *Registry) maintain() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.life.Done():
			return
		}
		now := time.Now()
		next := now.Add(time.Hour)
		for _, s := range r.view.Load().servers {
			if at := s.maintain(now); at.Before(next) {
				next = at
			}
		}
		timer.Reset(max(0, next.Sub(now)))
	}
}

// wakeMaintenance makes maintain look at all servers now.
func (r *Registry) wakeMaintenance() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// maintain does what is due for one server, and returns when something is next. An hour
// is as good as never: every change wakes it.
func (s *server) maintain(now time.Time) time.Time {
	next := now.Add(time.Hour)
	if due := s.health.nextProbeAt(); !due.IsZero() {
		if now.Before(due) {
			next = due
		} else if p, begun := s.health.beginProbe(); begun {
			s.background(func(life context.Context) { s.probe(life, p) })
		}
	}
	if unused := s.def.Load().UserIdleTimeout; unused > 0 {
		if soon := now.Add(unused / 4); s.sweepAt.After(soon) {
			s.sweepAt = soon // the time was shortened
		}
		if !now.Before(s.sweepAt) {
			s.removeUnusedPools(now, unused)
			s.sweepAt = now.Add(max(unused/4, time.Millisecond))
		}
		if s.sweepAt.Before(next) {
			next = s.sweepAt
		}
	}
	return next
}

// removeUnusedPools removes the pools of users who made no call for a while. What
// counts is a change of the number of calls between two looks, a quarter of the time
// apart: so a call costs no clock reading.
func (s *server) removeUnusedPools(now time.Time, unused time.Duration) {
	for _, u := range *s.users.Load() {
		if n := u.callCount(); n != u.lastCallCount || u.hasDoCalls() {
			u.lastCallCount, u.lastActive = n, now
			continue
		}
		st := u.version.Load().stats()
		if now.Sub(u.lastActive) >= unused && st.InUse == 0 && st.Waiting == 0 {
			s.removeUnlessInUse(u)
		}
	}
}
