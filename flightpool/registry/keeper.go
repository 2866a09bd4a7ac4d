package registry

import (
	"context"
	"errors"
	"fmt"
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
		} else if s.health.begin() {
			s.background(func(life context.Context) {
				ctx, cancel := context.WithTimeout(life, s.patience())
				defer cancel()
				_ = s.probe(ctx) // health has it
			})
		}
	}
	if unused := s.def.Load().UserIdleTimeout; unused > 0 {
		if !now.Before(s.sweepAt) {
			s.sweep(now, unused)
			s.sweepAt = now.Add(unused / 4)
		}
		if s.sweepAt.Before(next) {
			next = s.sweepAt
		}
	}
	return next
}

// patience is how long a probe may take.
func (s *server) patience() time.Duration {
	d := s.def.Load()
	return d.ConnectTimeout + d.HealthCheck.Timeout
}

// probe checks the server on a connection of the user who called last. The caller
// has begun the probe; this ends it. An unhealthy server lets this one open pass.
func (s *server) probe(ctx context.Context) error {
	defer s.registry.wakeKeeper() // while a probe is under way it knows of no next one
	defer s.health.end()
	u, err := s.anybody()
	if err != nil {
		return err
	}
	down := s.health.down.Load() != nil
	if down {
		s.share.allow(1)
		defer s.share.allow(0)
	}
	err = u.gen.Load().prove(ctx)
	if !down {
		return err // the hooks have told
	}
	verdict := err
	if err != nil && !faulty(err) && !errors.Is(err, ErrExhausted) && ctx.Err() == nil {
		verdict = nil // the server answered, whatever it said
	}
	s.health.probed(verdict)
	if down := s.health.down.Load(); down != nil {
		u.gen.Load().failWaiters(down) // who came in the meantime
	}
	return err
}

// anybody finds a user to probe as: the one who called last, else any who is
// mapped.
func (s *server) anybody() (best *userPool, err error) {
	for _, u := range *s.users.Load() {
		if best == nil || u.calls() > best.calls() {
			best = u
		}
	}
	if best != nil {
		return best, nil
	}
	for name := range s.def.Load().Users {
		return s.user(name)
	}
	return nil, fmt.Errorf("%w on server %q", ErrNoMapping, s.name)
}

// sweep removes the pools of users who made no call for a while.
func (s *server) sweep(now time.Time, unused time.Duration) {
	for _, u := range *s.users.Load() {
		if n := u.calls(); n != u.seen {
			u.seen, u.active = n, now
			continue
		}
		st := u.gen.Load().stats()
		if now.Sub(u.active) >= unused && st.InUse == 0 && st.Waiting == 0 {
			s.retire(u)
		}
	}
}
