package fleet

import (
	"context"

	"github.com/flightpool/flightpool/internal/ctxerr"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/internal/fifo"
)

// Close is as lease.Leases says. The leases are given back when none is in
// use, also after the end of ctx. Otherwise nothing is given back, check-ins
// stop, and the fleet frees the leases as it does after a crash. What it has
// to tell the store may take up to four RequestTimeouts after the end of ctx.
func (l *Leases) Close(ctx context.Context) error {
	var waiting []*fifo.Ticket
	first := false
	l.updateState(func() {
		if first = !l.closed; !first {
			return
		}
		l.closed = true
		waiting = l.holders.All()
		l.counts.Denied += uint64(len(waiting))
		if l.holders.InUse() == 0 {
			close(l.allReleased)
		}
	})
	for _, ticket := range waiting {
		ticket.Answer(&lease.Error{Budget: l.cfg.Budget, Reason: lease.ErrClosed, Limit: l.cfg.Limit})
	}
	select {
	case <-l.allReleased:
	case <-ctx.Done():
	}
	var inUse error
	select {
	case <-l.allReleased: // also when ctx had ended before
	default:
		inUse = &lease.Error{Budget: l.cfg.Budget, Reason: lease.ErrInUse, Limit: l.cfg.Limit, Err: ctxerr.Of(ctx)}
	}
	// One call ends the goroutines and gives the leases back. Another waits for the same
	// connections, and tells of them.
	if first {
		l.stopGoroutines()
		if inUse == nil {
			l.removeEntries(context.WithoutCancel(ctx))
		}
		l.callbacks.Wait(ctx) // they are the user's code, which may take any time
	}
	return inUse
}

// stopGoroutines ends the goroutines. Those that run a subscriber's function end with
// it. The loop has ended when it returns, so that Close may use what belongs to it.
func (l *Leases) stopGoroutines() {
	l.stop()
	l.mu.Lock()
	revokes := l.revokes
	l.revokes = nil
	l.mu.Unlock()
	revokes.close()
	l.running.Wait()
}

// removeEntries removes this process's entries. What fails here is done by others once
// a round was waited for. Nothing is granted any more when it begins: every lease of
// the process is spare.
func (l *Leases) removeEntries(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 4*l.cfg.RequestTimeout)
	defer cancel()
	l.updateState(func() { l.state.validUntil = instant{} })
	for shard := range l.state.shards { // those first that have answered lately
		if l.work.pending[shard] == nil {
			_ = l.leaveShard(ctx, shard)
		}
	}
	// The outcome of these has to be known before anything else is written to their
	// shards.
	for shard, p := range l.work.pending {
		if l.send(ctx, p.step) != unknown {
			_ = l.leaveShard(ctx, shard)
		}
	}
}
