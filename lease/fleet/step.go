package fleet

import (
	"context"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// step is one change of this process's entry in one shard. While its outcome is unknown
// it is sent again, always with the same condition, so that it takes effect at most
// once however often it was sent, delayed or answered, as long as the entry stays: see
// outcomeOf. It takes effect at most once since its condition is the sequence number of
// the entry that it replaces, and it leaves another one.
type step struct {
	shard       int
	from, to    Owner // from has no Seq where no entry is expected
	join        bool  // this process knows of no entry of its own
	create      bool  // nor a record of the shard
	removeEntry bool  // remove the entry, which has to.Leases == 0
	ignoreLimit bool  // add what exists anyway, limit or not
	capacity    int64
}

// outcome is what became of a step. Only unknown leaves the step pending; every other
// is definite.
type outcome uint8

const (
	unknown outcome = iota // send the same step again
	applied
	denied  // no room
	lost    // the entry is gone: the process was taken for dead
	revived // an old entry is there again
)

// delta is by how many the leases of the entry change; negative: they go back.
func (s *step) delta() int64 { return s.to.Leases - s.from.Leases }

// newStep is a change of this process's entry by delta leases. Each has a sequence
// number of its own, and checks in to the latest round. mu is held. What others read of
// wants and of what is kept stands in the home shard's entry alone.
func (l *Leases) newStep(shard, delta int) *step {
	h := l.state.shards[shard]
	if !h.joined {
		h.entry = Owner{}
	}
	l.work.seq++
	to := Owner{Leases: h.entry.Leases + int64(delta), Seq: l.work.seq, Round: l.state.terms.round}
	if shard == l.state.home {
		to.Want, to.Kept = l.unmetWant(), l.keptAboveLevel(l.clock())
	}
	return &step{
		shard: shard, from: h.entry, to: to, join: !h.joined, create: !h.exists,
		capacity: l.state.terms.capacity(shard),
	}
}

// replaceRevived is the step that makes a revived entry this process's own again. It
// keeps the number of leases that the entry came back with: they are counted in the
// shard's used.
func (l *Leases) replaceRevived(s *step, stored Owner) *step {
	l.work.seq++
	next := *s
	next.from, next.to, next.create, next.removeEntry, next.ignoreLimit = stored, s.to, false, false, false
	next.to.Leases, next.to.Seq = stored.Leases, l.work.seq
	return &next
}

// unmetWant is what to tell others: nothing unless somebody waits in vain, and then without what
// holders do not want any more. mu is held.
func (l *Leases) unmetWant() int64 {
	if !l.work.blocked {
		return 0
	}
	return int64(l.holders.InUse() + l.holders.Wanted())
}

// checkInStep changes nothing but what others read in the entry.
func (l *Leases) checkInStep(shard int) *step {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newStep(shard, 0)
}

// changeOf is the write that makes a step. used changes together with the entry. Room is the shard's part less what is
// added, so that two processes that write at once cannot both have the last of it.
func (l *Leases) changeOf(s *step) Change {
	c := Change{Key: shardKey(l.cfg.Budget, s.shard)}
	switch {
	case s.create:
		c.Absent, c.Put, c.Set = true, map[string]Owner{l.id: s.to}, map[string]int64{"used": s.to.Leases}
		return c
	case s.from.Seq == 0:
		c.NoOwner = l.id
	default:
		c.OwnerAt = map[string]int64{l.id: s.from.Seq}
	}
	if s.delta() != 0 {
		c.Add = map[string]int64{"used": s.delta()}
	}
	if s.delta() > 0 && !s.ignoreLimit {
		c.AtMost = map[string]int64{"used": s.capacity - s.delta()}
	}
	if s.removeEntry {
		c.Remove = []string{l.id}
	} else {
		c.Put = map[string]Owner{l.id: s.to}
	}
	return c
}

// send sends a step once and books what is known after it. Without an outcome it stays
// pending. Only the loop calls it, and Close once the loop has ended: an entry has one
// writer. An error says nothing of the outcome, also where the store seems not to have
// been reached: a write can be done after its time. The pause between two sendings
// grows to a twentieth of Lease.
//
// Who found no room where it wanted to join searches, after a pause that grows.
func (l *Leases) send(ctx context.Context, s step) outcome {
	w, sent := &l.work, l.clock()
	answer, err := l.store.write(ctx, l.changeOf(&s))
	if err != nil {
		l.noteLostWrite(l.clock())
		p := w.pending[s.shard]
		if p == nil {
			p = &unanswered{}
			w.pending[s.shard] = p
		}
		p.step, p.retryAt = s, l.clock().add(p.retries.next(50*time.Millisecond, l.lease()/20))
		l.requestFailed(err, l.clock())
		return unknown
	}
	delete(w.pending, s.shard)
	l.noteWrite(sent, l.clock())
	entry, result := l.outcomeOf(&s, answer)
	if result == revived {
		w.pending[s.shard] = &unanswered{step: *l.replaceRevived(&s, entry), retryAt: l.clock()}
		return unknown
	}
	l.updateState(func() {
		h := &l.state.shards[s.shard]
		h.giving = 0
		l.state.noteShard(s.shard, answer.Record)
		h.entry, h.joined = entry, result == applied && !s.removeEntry || result == denied && !s.join
	})
	if s.delta() != 0 {
		w.surplus = false
	}
	switch {
	case result == lost:
		l.entryLost(s.shard)
	case result == denied && s.join && answer.Record != nil && !s.create:
		w.searchAt = l.clock().add(w.searchBackoff.next(100*time.Millisecond, l.lease()/20))
	case s.ignoreLimit && result == applied && w.entryLost && l.state.used() > l.state.terms.limit:
		l.revoke(l.state.terms.grace, errOverrun)
	}
	w.entryLost = w.entryLost && (!s.ignoreLimit || result != applied)
	return result
}

// outcomeOf tells what a store's definite answer means.
//
// INVARIANT: the entry in the store is the truth, and leases count only in an
// entry from which no step was sent before. Each step has its own sequence
// number, and they rise. An entry with a higher one than the step's origin is
// an earlier step that was denied, and whose late duplicate was done after all:
// its leases are what this process has. One where none was expected, or with a
// lower number, was removed and then brought back by a late duplicate of the
// step that had made it. Duplicates of the steps that followed may be on their
// way too and would be done as well, so that it is replaced before it counts.
//
// A revived entry meets the condition of the removal again: a duplicate of that would
// take leases that count.
func (l *Leases) outcomeOf(s *step, answer Answer) (Owner, outcome) {
	if answer.Done {
		return s.to, applied
	}
	stored, present := Owner{}, false
	if answer.Record != nil {
		stored, present = answer.Record.Owners[l.id]
	}
	switch {
	// An earlier sending of this step was done, and its answer was lost.
	case present && stored.Seq == s.to.Seq:
		return stored, applied
	// An entry of which this process knows nothing.
	case present && s.join:
		return stored, revived
	// It is as it was: another condition has failed, which is that there is room.
	case present && stored.Seq == s.from.Seq:
		return s.from, denied
	// An earlier step, taken for denied, was done late. What it holds counts, and an
	// entry that is there need not be removed by this step.
	case present && stored.Seq > s.from.Seq:
		s.removeEntry = false
		return stored, applied
	// It is gone, as was wanted, by this step or since it was taken for dead.
	case s.removeEntry:
		return Owner{}, applied
	// No entry, and none was made: there is no room, or the shard's record was there.
	case s.join:
		return Owner{}, denied
	default:
		return Owner{}, lost
	}
}

// entryLost books that this process was taken for dead in a shard. What it held there
// is gone; connections that exist are added again, limit or not, so that the sum stays
// honest. Its connections are in nobody's count until then. Under Strict they must go:
// others may have the leases. Without it they stay, and are revoked only if they
// overrun the limit.
func (l *Leases) entryLost(shard int) {
	revoke, inUse, until := false, 0, instant{}
	l.updateState(func() {
		inUse, until = l.holders.InUse(), l.state.validUntil
		revoke = l.cfg.Strict && inUse > 0 && !l.state.revocationSent
		l.state.revocationSent = l.state.revocationSent || revoke
		l.state.validUntil, l.state.lost = instant{}, true
		l.state.shards[shard].entry, l.state.shards[shard].joined = Owner{}, false
		l.counts.Losses++
	})
	now := l.clock()
	l.work.surveyDue, l.work.heartbeatAt, l.work.entryLost = true, now, inUse > 0
	l.cfg.Logger.Warn("taken for dead: leases lost", "budget", l.cfg.Budget, "in_use", inUse)
	if revoke {
		l.revoke(now.until(until.add(l.state.terms.grace)), errLapsed)
	}
}

// leaveShard removes this process's entry from a shard. A step of unknown outcome is
// replaced by a new one here, since all of them give back; what is left after three
// tries others remove.
func (l *Leases) leaveShard(ctx context.Context, shard int) error {
	for range 3 {
		h := &l.state.shards[shard]
		if !h.joined {
			return nil
		}
		l.mu.Lock()
		s := l.newStep(shard, -int(h.entry.Leases))
		l.mu.Unlock()
		s.removeEntry = true
		if l.send(ctx, *s) == unknown {
			delete(l.work.pending, shard) // it is sent anew
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return lease.ErrUnavailable
}
