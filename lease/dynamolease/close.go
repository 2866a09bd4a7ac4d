package dynamolease

import (
	"context"
	"time"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// Close is as lease.Leases says. The session ends and its leases are given
// back when none is in use. Otherwise nothing is given back, heartbeats stop,
// and the fleet frees them as it does after a crash. What it has to tell the
// table may take up to four RequestTimeouts after the end of ctx.
func (l *Leases) Close(ctx context.Context) error {
	var waiting []*fifo.Ticket
	first := false
	l.change(func() {
		if first = !l.closed; !first {
			return
		}
		l.closed = true
		waiting = l.waiting.All()
		l.counts.Denied += uint64(len(waiting))
		if l.inUse == 0 {
			close(l.idle)
		}
	})
	for _, ticket := range waiting {
		ticket.Answer(&lease.Error{Budget: l.cfg.Budget, Reason: lease.ErrClosed, Limit: l.cfg.Limit})
	}
	var inUse error
	select {
	case <-l.idle:
	case <-ctx.Done():
		inUse = &lease.Error{Budget: l.cfg.Budget, Reason: lease.ErrInUse, Limit: l.cfg.Limit, Err: context.Cause(ctx)}
	}
	if first {
		l.halt()
		if inUse == nil {
			l.depart(context.WithoutCancel(ctx))
		}
	}
	return inUse
}

// halt ends the goroutines. Those that run a subscriber's function end with it.
func (l *Leases) halt() {
	l.stop()
	l.mu.Lock()
	subs := l.subs
	l.subs = nil
	l.mu.Unlock()
	for s := range subs {
		close(s.ended)
	}
	l.running.Wait()
}

// depart gives everything back and ends the session. The tombstone comes last:
// a watcher that found it first would do the rest and report a death. Without
// it a late duplicate of the session's first step would hold leases for
// nobody. What fails here is done by a watcher.
func (l *Leases) depart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*l.cfg.RequestTimeout)
	defer cancel()
	l.mu.Lock()
	session, rvn, lost := l.book.session, l.book.rvn, l.book.lost
	l.book.validUntil = time.Time{}
	l.mu.Unlock()
	if session == "" || lost {
		return
	}
	l.free(ctx, session)
	for range 2 { // the second time for a last heartbeat whose reply was lost
		if l.fence(ctx, session, heartbeat{exists: true, rvn: rvn}) {
			return
		}
		rvn++
	}
}
