package dynamolease

import (
	"context"
	"math/rand/v2"
	"time"
)

// keep fits what this process holds to what it needs. It is the only writer of
// this session's entries.
func (l *Leases) keep(ctx context.Context) {
	var backoff backoff
	for ctx.Err() == nil {
		s, wait := l.plan(time.Now())
		switch {
		case s == nil && wait == 0: // somebody waits and no shard has room
			l.look(ctx)
			pause(ctx, backoff.next(200*time.Millisecond, 2*time.Second), l.growth)
		case s == nil:
			pause(ctx, wait, l.growth)
		case l.settle(ctx, *s) != denied:
			backoff = 0
		}
	}
}

// settle sends a step until its outcome is known, and books that.
func (l *Leases) settle(ctx context.Context, s step) verdict {
	for backoff := backoff(0); ; {
		has, seen, result, err := l.take(ctx, s)
		if l.record(s, has, seen, result, err) {
			return result
		}
		if !pause(ctx, backoff.next(50*time.Millisecond, l.cfg.Lease/20), nil) {
			return undecided
		}
	}
}

// record books the outcome of a step and reports whether it is final. A step
// of a session that is lost meanwhile does not matter any more: whatever it
// did is in the table under that session's name, and is freed with it.
func (l *Leases) record(s step, has entry, seen alloc, result verdict, err error) (final bool) {
	current := false
	l.change(func() {
		current = l.book.session == s.session && !l.book.lost
		switch {
		case !current || result == fenced:
		case result == undecided:
			l.book.cause = err
		default:
			shard := &l.book.shards[s.shard]
			shard.entry, shard.joined = has, shard.joined || result == applied
			l.book.see(s.shard, seen)
			l.book.ebbing, l.book.surplus = 0, time.Time{}
		}
	})
	switch {
	case current && result == fenced:
		l.forfeit()
	case current && s.force && result == applied && seen.used > seen.limit:
		l.revoke(time.Now().Add(l.cfg.Grace), errOverrun)
	}
	return !current || result != undecided
}

// plan decides on the next step. Without one it tells how long nothing is to
// be done, or 0 when somebody waits and no shard is known to have room.
func (l *Leases) plan(now time.Time) (*step, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := l.cfg.Settle
	if l.book.session == "" || l.book.lost {
		return nil, idle
	}
	held := l.book.held()
	switch need := l.inUse + l.waiting.Len() - held; {
	case l.inUse > held: // connections exist that the table does not know
		return l.step(l.home(), l.inUse-held, true), 0
	case need > 0:
		for i := range l.book.shards {
			shard := (l.home() + i) % len(l.book.shards)
			if room := l.book.shards[shard].room(); room > 0 {
				return l.step(shard, l.batch(need, room), false), 0
			}
		}
		return nil, 0
	default:
		return l.ebb(now, -need)
	}
}

// batch takes some in advance while there is plenty.
func (l *Leases) batch(need, room int) int {
	if need < l.cfg.Batch && room >= 4*l.cfg.Batch {
		return l.cfg.Batch
	}
	return min(need, room)
}

// ebb gives back what is spare: all of it at once from a shard that is over
// its limit, all of it soon when the fleet is nearly out of leases, and the
// surplus over one batch when it has stayed above two.
func (l *Leases) ebb(now time.Time, spare int) (*step, time.Duration) {
	idle := l.cfg.Settle
	for i := range l.book.shards {
		shard := &l.book.shards[i]
		if give := min(int64(spare), shard.n, shard.used-shard.limit); give > 0 {
			return l.giveBack(i, int(give)), 0
		}
	}
	give, patience := 0, l.cfg.Settle
	switch {
	case l.book.room() < l.cfg.Batch:
		give, patience = spare, l.cfg.Settle/12
	case spare > 2*l.cfg.Batch:
		give = spare - l.cfg.Batch
	}
	if give == 0 {
		l.book.surplus = time.Time{}
		return nil, idle
	}
	if l.book.surplus.IsZero() {
		l.book.surplus = now
	}
	if left := l.book.surplus.Add(patience).Sub(now); left > 0 {
		return nil, left
	}
	for i := range l.book.shards { // the home shard last: it is what the session needs anyway
		shard := (l.home() + 1 + i) % len(l.book.shards)
		if n := int(l.book.shards[shard].n); n > 0 {
			return l.giveBack(shard, min(give, n)), 0
		}
	}
	return nil, idle
}

func (l *Leases) giveBack(shard, give int) *step {
	l.book.ebbing = give
	return l.step(shard, -give, false)
}

func (l *Leases) step(shard, delta int, force bool) *step {
	h := l.book.shards[shard]
	return &step{
		session: l.book.session, shard: shard, join: !h.joined,
		from: h.entry, to: entry{n: h.n + int64(delta), q: h.q + 1},
		limit: h.limit, force: force,
	}
}

// home spreads the sessions over the shards.
func (l *Leases) home() int {
	sum := 0
	for _, c := range []byte(l.book.session) {
		sum += int(c)
	}
	return sum % len(l.book.shards)
}

// look reads the shards: cheaper than a write that is denied.
func (l *Leases) look(ctx context.Context) {
	for shard := range l.book.shards {
		it, err := l.table.read(ctx, allocKey(l.cfg.Budget, shard))
		l.change(func() {
			if err != nil {
				l.book.cause = err
				return
			}
			l.book.see(shard, decodeAlloc(it))
		})
	}
}

// backoff doubles, with jitter, between two bounds.
type backoff time.Duration

func (b *backoff) next(low, high time.Duration) time.Duration {
	*b = min(max(2*(*b), backoff(low)), backoff(max(low, high)))
	return time.Duration(*b)/2 + rand.N(time.Duration(*b)/2+1)
}
