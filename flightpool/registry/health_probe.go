package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
)

// onHealthTransition acts on a server that turned healthy or unhealthy. Health calls it
// for one turn after the other. The order matters: first nothing new is opened, then
// what is open is replaced, then those who wait are failed.
func (s *server) onHealthTransition(down *UnhealthyError) {
	s.allocator.Gate(func() bool { return s.health.down.Load() != nil })
	s.probes.forget()
	if down != nil {
		for _, u := range *s.users.Load() {
			u.version.Load().Reset() // what was open before tells nothing of the server any more
		}
		s.failWaiters(down)
	}
	s.notices.Add(down)
	go s.notices.Tell(s.isolateOwner) // the source does not wait
	s.registry.wakeMaintenance()
}

// isolateOwner runs notifyOwner unless the server is closed. It is code of the user's:
// a panic in it is logged, and keeps no later notice.
func (s *server) isolateOwner(down *UnhealthyError) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	var panicked *callback.PanicError
	err := callback.Isolate("Config.Health", func() error { s.notifyOwner(down); return nil })
	if log := s.registry.cfg.Logger; log != nil && errors.As(err, &panicked) {
		log.Error("registry: Config.Health panicked", "panic", fmt.Sprint(panicked.Value))
	}
}

// notifyOwner calls Config.Health for the transition. It may call the registry, and
// wait for its end.
func (s *server) notifyOwner(down *UnhealthyError) {
	cfg := s.registry.cfg
	if log := cfg.Logger; log != nil {
		if down != nil {
			log.Error("registry: a server is unhealthy", "server", s.name, "reason", down.Reason)
		} else {
			log.Info("registry: a server is healthy again", "server", s.name)
		}
	}
	if f := cfg.Health; f != nil {
		f(s.name, down)
	}
}

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
	down := s.health.down.Load() != nil // nobody could call then
	for _, u := range *s.users.Load() {
		if n := u.callCount(); down || n != u.lastCallCount || u.hasDoCalls() {
			u.lastCallCount, u.lastActive = n, now
			continue
		}
		st := u.version.Load().Stats()
		if now.Sub(u.lastActive) >= unused && st.InUse == 0 && st.Waiting == 0 {
			s.detach(u, true)
		}
	}
}

// probe is one check of a server, started by maintain or by CheckNow. A server has one
// at a time. It runs on the server's own context: the end of a caller's context must
// not count as a fault of the server. Several calls of CheckNow may wait for one.
type probe struct {
	done chan struct{}
	err  error // before done
}

// beginProbe starts a probe, or returns the one under way.
func (h *health) beginProbe() (p *probe, begun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.probe != nil {
		return h.mu.probe, false
	}
	h.mu.probe, h.mu.probeMayBeQueued = &probe{done: make(chan struct{})}, true
	return h.mu.probe, true
}

// probeLeftQueue says that the probe under way is in no queue any more. Until then a
// caller who waits may be the probe itself, and is not failed.
func (h *health) probeLeftQueue() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.probeMayBeQueued = false
}

func (h *health) endProbe(p *probe, err error) {
	h.mu.Lock()
	h.mu.probe = nil
	h.mu.Unlock()
	p.err = err
	close(p.done)
}

func (h *health) probeQueued() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.probeMayBeQueued
}

// probe runs a probe that has begun, and ends it.
//
// INVARIANT: no caller waits for a connection to an unhealthy server while no probe is
// under way. Callers that queued during a probe, and could not be told from it, are
// failed between probeLeftQueue and endProbe.
func (s *server) probe(life context.Context, p *probe) {
	ctx, cancel := context.WithTimeout(life, s.probeTimeout())
	defer cancel()
	err := s.probeUntilConclusive(ctx)
	s.health.probeLeftQueue()
	if down := s.health.down.Load(); down != nil {
		s.failWaiters(down)
	}
	s.health.endProbe(p, err)
	s.registry.wakeMaintenance() // while a probe is under way it knows of no next one
}

// probeTimeout is how long a probe may take.
func (s *server) probeTimeout() time.Duration {
	d := s.def.Load()
	if sum := d.OpenTimeout + d.HealthCheck.Timeout; sum > 0 {
		return sum
	}
	return math.MaxInt64 // both are said to be endless
}

// probeUntilConclusive checks the server on a connection of one of its users and
// reports the result to health. On a healthy server the hooks of the pool have told
// health already what it has shown.
func (s *server) probeUntilConclusive(ctx context.Context) error {
	var tried []string
	var last error
	for {
		u, err := s.pickProbeUser(ctx, tried)
		if err != nil {
			s.health.recordInconclusiveProbe()
			return cmp.Or(last, err)
		}
		g := u.version.Load()
		down := s.health.down.Load() != nil
		if err = s.checkOneAs(ctx, u, g); err != nil && ctx.Err() == nil && probeInconclusive(err, u, g) {
			continue
		}
		switch {
		case !down: // the hooks have told
		case showsNothing(err), errors.Is(err, ErrClosed), errors.Is(err, ErrUnhealthy):
			s.probes.recordVain(u.name)
			if tried, last = append(tried, u.name), err; len(tried) < maxProbedUsers && ctx.Err() == nil {
				continue
			}
			s.health.recordInconclusiveProbe()
		case err != nil && isServerFault(err):
			s.health.recordProbe(err)
		default: // the server answered, whatever it said
			s.health.recordProbe(nil)
		}
		return err
	}
}

// checkOneAs checks one connection of a user. It lets the one open that this needs pass
// on an unhealthy server, which the server may become at any moment until then.
func (s *server) checkOneAs(ctx context.Context, u *userPool, g *currentVersion) error {
	s.allocator.AllowOne(u.member)
	defer s.allocator.AllowOne(nil)
	return u.checkOne(ctx, g)
}

// probeInconclusive says that a probe has met a pool that was just closed, or was
// failed like a waiting caller: it has shown nothing.
func probeInconclusive(err error, u *userPool, g *currentVersion) bool {
	return closedBeforeSend(err) && (u.removed.Load() || u.version.Load() != g) || errors.Is(err, ErrUnhealthy)
}

// failWaiters fails all callers that wait for a connection. Those who come to wait
// after that see that the server is unhealthy by themselves.
func (s *server) failWaiters(err error) {
	for _, u := range *s.users.Load() {
		u.failWaiters(err)
	}
}
