package registry

import (
	"context"
	"time"
)

// keep is the one goroutine of a registry: it starts the probes of unhealthy
// servers and removes the pools of users who do not call any more. Everything
// else of time is the reservoirs' own affair, by one timer each.
func (r *Registry) keep() {
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
			if at := s.round(now); at.Before(next) {
				next = at
			}
		}
		timer.Reset(max(0, next.Sub(now)))
	}
}

// wakeKeeper makes the keeper look now.
func (r *Registry) wakeKeeper() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// round does what is due for one server, and returns when something is next.
func (s *server) round(now time.Time) time.Time {
	next := now.Add(time.Hour)
	if due := s.health.due(); !due.IsZero() {
		if now.Before(due) {
			next = due
		} else if p, begun := s.health.begin(); begun {
			s.background(func(life context.Context) { s.probe(life, p) })
		}
	}
	if unused := s.def.Load().UserIdleTimeout; unused > 0 {
		if soon := now.Add(unused / 4); s.sweepAt.After(soon) {
			s.sweepAt = soon // the time was shortened
		}
		if !now.Before(s.sweepAt) {
			s.sweep(now, unused)
			s.sweepAt = now.Add(max(unused/4, time.Millisecond))
		}
		if s.sweepAt.Before(next) {
			next = s.sweepAt
		}
	}
	return next
}

// sweep removes the pools of users who made no call for a while.
func (s *server) sweep(now time.Time, unused time.Duration) {
	for _, u := range *s.users.Load() {
		if n := u.calls(); n != u.seen || u.inDo() {
			u.seen, u.active = n, now
			continue
		}
		st := u.gen.Load().stats()
		if now.Sub(u.active) >= unused && st.InUse == 0 && st.Waiting == 0 {
			s.retireUnless(u)
		}
	}
}
