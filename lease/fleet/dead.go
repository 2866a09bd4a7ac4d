package fleet

import (
	"context"
	"math/rand/v2"
	"time"
)

// The dead are found in two steps. First a shard's owners that have not answered
// a round for nearly as long as it is waited for are suspected, and a write to
// the shard shows that it takes writes. Whoever lives then writes too, within
// answerTime: it has been trying to. Those whose entries are the same after that
// are dead. A shard that took no writes for a while, though the budget's record
// did, for example a partition that is too busy, thus makes nobody dead.

// suspicion is the owners of one shard that are taken for dead unless they write. A
// process that lives clears itself by any write: its sequence number is another then.
type suspicion struct {
	round int64            // that they have not answered
	at    instant          // the shard has taken writes since, as far as is known
	seqs  map[string]int64 // of their entries
}

// answerTime is how long a process may take to write to a shard that takes
// writes again: a request that still hangs, the pause after it, another thing
// that its loop does, and the write.
func (l *Leases) answerTime() time.Duration {
	return l.state.terms.lease/20 + 3*l.cfg.RequestTimeout
}

// late is the latest round that was waited for nearly long enough. It is early by
// answerTime, so that who is not heard of is removed when the round is over and not
// later.
func (l *Leases) late() int64 {
	return l.state.waitedFor(l.state.terms.roundTimeout() - l.answerTime())
}

// lookForDead suspects and removes whom it is time for, and reports whether it
// could.
func (l *Leases) lookForDead(ctx context.Context, now instant) bool {
	w, done := &l.work, true
	w.due = max(w.due, l.state.waitedFor(l.state.terms.roundTimeout()))
	if late := l.late(); late > w.cleanedRound || w.unasked {
		l.findDead(ctx, w.unasked)
		done = w.cleanedRound >= late && !w.unasked
	}
	if len(w.suspects) > 0 && l.reapIn(now) <= 0 {
		done = l.reap(ctx) && done
	}
	return done
}

// reapIn is how long the suspicions are of no use: there is still time to answer,
// or the round is not over. An outage of the budget's record makes that longer.
func (l *Leases) reapIn(now instant) (left time.Duration) {
	st := &l.state
	since, _ := now.since(st.readAt)
	for _, s := range l.work.suspects {
		left = max(left, l.answerTime()-(now.mono-s.at.mono)) // which never runs ahead, nor is set
		for _, r := range st.rounds {
			if r.round == s.round {
				left = max(left, st.terms.roundTimeout()-(st.watchedFor-r.seenAt)-since)
			}
		}
	}
	return left
}

// looksPerShard is how many processes look for the dead in each shard in each round,
// on average: one is missed by all of them in a round of 3,000.
const looksPerShard = 8

// shardsToCheck are this process's own shard and others at random, so many that the
// fleet looks at each, however few processes there are.
func (l *Leases) shardsToCheck() []int {
	st := &l.state
	n := max(2, (looksPerShard*st.terms.shards+st.sampled-1)/max(st.sampled, 1))
	shards := []int{st.home}
	for _, i := range rand.Perm(st.terms.shards) {
		if i != st.home && len(shards) < n {
			shards = append(shards, i)
		}
	}
	return shards
}

// findDead looks for owners to suspect: in some shards, or in all of them. When some
// are found, all shards are looked through next: who dies together is everywhere.
// What fails is done again.
func (l *Leases) findDead(ctx context.Context, all bool) {
	st, w := &l.state, &l.work
	late := max(l.late(), w.cleanedRound)
	shards := allShards(st.terms.shards)
	if !all {
		shards = l.shardsToCheck()
	}
	sent := l.clock()
	records, err := l.readShards(ctx, shards)
	if len(records) == 0 {
		return
	}
	if all {
		w.surveyDue = false
		l.noteSurvey(sent)
		l.countOwners()
	} else {
		l.sampleOwners(records)
	}
	found, failed := false, err != nil
	for shard, r := range records {
		had := w.suspects[shard] != nil
		err := l.suspect(ctx, shard, r, late)
		failed = failed || err != nil
		found = found || !had && w.suspects[shard] != nil
	}
	w.surveyDue = w.surveyDue || found && !all
	if w.unasked = failed && all; failed {
		return
	}
	w.cleanedRound = max(w.cleanedRound, late)
	l.updateState(func() {
		for len(st.rounds) > 1 && st.rounds[0].round <= min(w.cleanedRound, w.due) {
			st.rounds = st.rounds[1:]
		}
	})
}

// unanswered are the owners that have not checked in to a round, and the sequence
// numbers of their entries.
func (l *Leases) unanswered(r *Record, round int64) map[string]int64 {
	seqs := map[string]int64{}
	if r == nil {
		return seqs
	}
	for id, o := range r.Owners {
		if o.Round < round && id != l.id {
			seqs[id] = o.Seq
		}
	}
	return seqs
}

// suspect notes which owners of a shard have not answered a round. Unless somebody else
// has asked the shard for a write, it does. One process asks for all: the shard's
// record says for which round that was done.
func (l *Leases) suspect(ctx context.Context, shard int, r *Record, round int64) error {
	w := &l.work
	seqs := l.unanswered(r, round)
	if old := w.suspects[shard]; len(seqs) == 0 || old != nil && old.round >= round {
		return nil
	}
	if r.Numbers["asked"] < round {
		var err error
		if seqs, err = l.askShard(ctx, shard, seqs, round); err != nil || len(seqs) == 0 {
			return err
		}
	}
	w.suspects[shard] = &suspicion{round: round, at: l.clock(), seqs: seqs}
	return nil
}

// askShard writes to a shard in which owners have not answered, and returns those
// that still have not.
func (l *Leases) askShard(ctx context.Context, shard int, seqs map[string]int64, round int64) (map[string]int64, error) {
	c := Change{Key: shardKey(l.cfg.Budget, shard), OwnerAt: map[string]int64{}, Set: map[string]int64{"asked": round}}
	for id, seq := range seqs {
		c.OwnerAt[id] = seq
		break // one will do: what is wanted is an answer
	}
	answer, err := l.store.write(ctx, c)
	if err != nil {
		return nil, err
	}
	l.updateState(func() { l.state.noteShard(shard, answer.Record) })
	return l.unanswered(answer.Record, round), nil
}

// reap removes those who are still suspected, in the shards for which it is time. A
// suspicion that is old is asked for again, since it was not looked at for a while, as
// in an outage: the shard may have taken no writes in the meantime.
func (l *Leases) reap(ctx context.Context) bool {
	w, now, done := &l.work, l.clock(), true
	var shards []int
	for shard, s := range w.suspects {
		_, passed := now.since(s.at)
		switch {
		case passed > 3*l.answerTime(): // it may have taken no writes since
			seqs, err := l.askShard(ctx, shard, s.seqs, s.round)
			if err != nil {
				done = false
				continue
			}
			if delete(w.suspects, shard); len(seqs) > 0 {
				w.suspects[shard] = &suspicion{round: s.round, at: l.clock(), seqs: seqs}
			}
		case s.round <= w.due:
			shards = append(shards, shard)
		}
	}
	if len(shards) == 0 {
		return done
	}
	records, err := l.readShards(ctx, shards)
	return l.removeDead(ctx, records) && err == nil && done
}

// removeDead frees the leases of every owner that is still suspected, and reports
// whether it could. What could not be removed stays suspected, and is tried with the
// next duties.
func (l *Leases) removeDead(ctx context.Context, records map[int]*Record) bool {
	w := &l.work
	dead, freed, fresh, done := map[string]bool{}, int64(0), 0, true
	for shard, r := range records {
		s := w.suspects[shard]
		n, err := l.removeDeadFrom(ctx, shard, r, s, dead)
		if freed += n; err != nil {
			done = false
			continue
		}
		delete(w.suspects, shard)
	}
	if w.due != w.deadRound || w.deadCounted == nil {
		w.deadCounted, w.deadRound = map[string]bool{}, w.due
	}
	for id := range dead { // who has leases in several shards is one
		if !w.deadCounted[id] {
			w.deadCounted[id] = true
			fresh++
		}
	}
	if len(dead) > 0 {
		l.updateState(func() { l.counts.Reaped += uint64(fresh) })
		l.cfg.Logger.Info("freed the leases of dead processes", "budget", l.cfg.Budget, "processes", fresh, "leases", freed)
	}
	return done
}

// maxRemovals bounds the owners that one write removes: each is a condition. The others
// follow in the next write.
const maxRemovals = 20

// removeDeadFrom removes the dead of one shard.
//
// INVARIANT: an owner is removed only by a write whose condition is that its
// entry is the one that was suspected, without a check-in to a round that was
// waited for. From then on no write of the owner succeeds; and each proof of
// its validity was sent before that round began.
func (l *Leases) removeDeadFrom(ctx context.Context, shard int, r *Record, s *suspicion, dead map[string]bool) (freed int64, err error) {
	// Each try goes by the record that the last answer has shown. Those whose entries
	// have changed since live.
	for tries := 0; r != nil && tries < 50 && ctx.Err() == nil; tries++ {
		c := Change{Key: shardKey(l.cfg.Budget, shard), OwnerAt: map[string]int64{}}
		sum := int64(0)
		for id, o := range r.Owners {
			if seq, suspected := s.seqs[id]; suspected && seq == o.Seq && len(c.Remove) < maxRemovals {
				c.OwnerAt[id] = o.Seq
				c.Remove = append(c.Remove, id)
				sum += o.Leases
			}
		}
		if len(c.Remove) == 0 {
			return freed, nil
		}
		c.Add = map[string]int64{"used": -sum}
		answer, err := l.store.write(ctx, c)
		if err != nil {
			return freed, err
		}
		if r = answer.Record; !answer.Done {
			continue
		}
		freed += sum
		for _, id := range c.Remove {
			dead[id] = true
		}
		l.updateState(func() { l.state.noteShard(shard, r) })
	}
	return freed, ctx.Err()
}
