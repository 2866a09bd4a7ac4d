package dynamolease

import (
	"time"

	"github.com/flightpool/flightpool/lease"
)

// subscription delivers revocations to one function, one at a time. While the
// function runs only the latest of those that follow is kept.
type subscription struct {
	pending chan lease.Revocation
	ended   chan struct{}
}

// OnRevoke is as lease.Revoker says.
func (l *Leases) OnRevoke(f func(lease.Revocation)) (stop func()) {
	s := &subscription{pending: make(chan lease.Revocation, 1), ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subs == nil { // closed: nothing will be revoked any more
		return func() {}
	}
	l.subs[s] = struct{}{}
	l.running.Go(func() { s.deliver(f) })
	return func() { l.unsubscribe(s) }
}

func (l *Leases) unsubscribe(s *subscription) {
	l.mu.Lock()
	_, present := l.subs[s]
	delete(l.subs, s)
	l.mu.Unlock()
	if present {
		close(s.ended)
	}
}

func (s *subscription) deliver(f func(lease.Revocation)) {
	for {
		select {
		case r := <-s.pending:
			f(r)
		case <-s.ended:
			return
		}
	}
}

func (l *Leases) revoke(deadline time.Time, cause error) {
	l.cfg.Logger.Warn("leases revoked: connections must close", "budget", l.cfg.Budget, "by", deadline, "cause", cause)
	l.mu.Lock()
	subs := make([]*subscription, 0, len(l.subs))
	for s := range l.subs {
		subs = append(subs, s)
	}
	l.mu.Unlock()
	for _, s := range subs {
		s.offer(lease.Revocation{Deadline: deadline, Cause: cause})
	}
}

func (s *subscription) offer(r lease.Revocation) {
	for {
		select {
		case s.pending <- r:
			return
		default:
		}
		select {
		case <-s.pending:
		default:
		}
	}
}
