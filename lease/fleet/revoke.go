package fleet

import (
	"cmp"
	"time"

	"github.com/flightpool/flightpool/internal/callback"
	"github.com/flightpool/flightpool/lease"
)

// subscribers are functions that want to know of revocations, nil once closed.
type subscribers map[*subscription]struct{}

// subscription delivers revocations to one function, one at a time. While the
// function runs only the latest of those that follow is kept.
type subscription struct {
	pending chan lease.Revocation
	ended   chan struct{}
}

// OnRevoke is as lease.Revoker says. f is called on a goroutine of its own, so that a
// holder that is slow delays neither the loop nor another holder. stop does not wait
// for a call that is under way.
func (l *Leases) OnRevoke(f func(lease.Revocation)) (stop func()) {
	s := &subscription{pending: make(chan lease.Revocation, 1), ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revokes == nil { // closed: nothing will happen any more
		return func() {}
	}
	l.revokes[s] = struct{}{}
	l.callbacks.Go(func() { s.deliver(l, f) })
	return func() {
		l.mu.Lock()
		_, present := l.revokes[s]
		delete(l.revokes, s)
		l.mu.Unlock()
		if present {
			close(s.ended)
		}
	}
}

// deliver calls f with each event until the subscription has ended, also when f panics
// or ends its goroutine.
func (s *subscription) deliver(l *Leases, f func(lease.Revocation)) {
	for {
		select {
		case event := <-s.pending:
			if isClosed(s.ended) { // select picks at random
				return
			}
			if err := callback.Isolate("lease: a callback", func() error { f(event); return nil }); err != nil {
				l.cfg.Logger.Error("a function of OnRevoke failed", "budget", l.cfg.Budget, "error", err)
			}
		case <-s.ended:
			return
		}
	}
}

// replacePending replaces an event that waits. It never blocks: what is asked for last
// holds. The loop alone sends.
func (s *subscription) replacePending(event lease.Revocation) {
	for {
		select {
		case s.pending <- event:
			return
		default:
		}
		select {
		case <-s.pending:
		default:
		}
	}
}

// close ends all subscriptions. They must have been taken out of Leases before, so that
// no stop closes one again.
func (s subscribers) close() {
	for one := range s {
		close(one.ended)
	}
}

// revoke asks for every connection within d. d counts from the call; zero or less means
// at once.
func (l *Leases) revoke(d time.Duration, cause error) {
	deadline := time.Now().Add(d)
	l.cfg.Logger.Warn("leases revoked: connections must close", "budget", l.cfg.Budget, "by", deadline, "cause", cause)
	l.mu.Lock()
	all := make([]*subscription, 0, len(l.revokes))
	for s := range l.revokes {
		all = append(all, s)
	}
	l.mu.Unlock()
	for _, s := range all { // with no lock held
		s.replacePending(lease.Revocation{Deadline: deadline, Cause: cause})
	}
}

// Valid reports, by ErrUnavailable, that a lease granted before must not be
// used for a new connection any more. lease.Admit asks after its wait for a
// permit.
func (l *Leases) Valid() error {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.lost {
		return l.fail(lease.ErrUnavailable, errLost)
	}
	if !l.valid(now) && l.holders.InUse() > l.lapsedCapacity(l.state.held()-l.state.returning(), now) {
		return l.fail(lease.ErrUnavailable, cmp.Or(l.state.cause, errLapsed))
	}
	return nil
}
