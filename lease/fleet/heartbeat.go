package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// join reads the budget's record and its shards for the first time: in New, and in the
// loop as long as that has failed.
func (l *Leases) join(ctx context.Context) error {
	sent := l.clock()
	t, storeNow, err := readTerms(ctx, l.store, l.cfg.Budget, l.cfg.terms())
	if err != nil {
		return err
	}
	if err := l.checkConfig(t); err != nil {
		return err
	}
	now := l.clock()
	l.updateState(func() { l.state.applyTerms(t, now) })
	l.work.roundBeganAt = now.add(-t.age(storeNow))
	if storeNow.IsZero() { // nothing tells how old the round is, and if nobody lives it would be the last
		l.work.roundBeganAt = now.add(-t.roundEvery(0, true) / 2)
	}
	l.work.heartbeatAt = sent.add(t.heartbeatEvery())
	l.work.surveyDue = true
	err = l.surveyShards(ctx)
	l.work.blind = err != nil
	l.extendValidity(sent)
	l.noteHeartbeat(sent, now)
	return err
}

// checkConfig holds the configuration against the budget's record, which wins.
func (l *Leases) checkConfig(t terms) error {
	if err := t.check(l.cfg.Budget); err != nil {
		return err
	}
	if l.cfg.OpenTimeout > t.lease/4 || l.cfg.OpenTimeout > t.grace {
		return &ConfigError{
			Setting: "Config.OpenTimeout", Hint: "must be at most a quarter of the budget's Lease, and its Grace",
			Err: fmt.Errorf("%v here; lease %v and grace %v in the store", l.cfg.OpenTimeout, t.lease, t.grace),
		}
	}
	tell := func(setting string, here, there any) {
		if here != there {
			l.cfg.Logger.Warn("the budget in the store has another setting, which is used",
				"budget", l.cfg.Budget, "setting", setting, "here", here, "store", there)
		}
	}
	tell("Limit", l.cfg.Limit, t.limit)
	tell("Lease", l.cfg.Lease, t.lease)
	tell("Grace", l.cfg.Grace, t.grace)
	if l.cfg.Want == 0 && l.cfg.Shards > 1 {
		tell("Shards", l.cfg.Shards, t.shards)
	}
	return nil
}

// check refuses what this package never writes.
func (t terms) check(budget string) error {
	if t.shards != t.madeShards {
		return &ConfigError{
			Setting: "Config.Shards", Hint: "cannot be changed in a budget that exists: put back what it was, or delete the budget's records while no process runs",
			Err: fmt.Errorf("budget %q: %w: made with %d shards, and has %d", budget, ErrRecord, t.madeShards, t.shards),
		}
	}
	if t.limit > 0 && t.limit <= limitBound && t.shards > 0 && t.shards <= min(t.limit, shardsBound) &&
		t.lease >= time.Second && t.lease <= durationBound && t.roundTimeout() > 0 && t.grace <= durationBound {
		return nil
	}
	return &ConfigError{
		Setting: "Config.Budget", Hint: "the record of this budget was written by something else",
		Err: fmt.Errorf("budget %q: %w: limit %d, shards %d, lease %v, grace %v", budget, ErrRecord, t.limit, t.shards, t.lease, t.grace),
	}
}

// age is how old the round was at storeNow; 0 when the store has no clock.
func (t terms) age(storeNow time.Time) time.Duration {
	if storeNow.IsZero() || t.roundBegan == 0 {
		return 0
	}
	return max(time.Duration(storeNow.UnixMilli()-t.roundBegan)*time.Millisecond, 0)
}

// heartbeat reads the budget's record, and does what it asks for. The read is the proof
// that this process's leases are valid: no round after the one it shows had begun when
// it was sent, so that nobody who waits for one can have taken this process for dead
// before the validity has passed. It is proof only once every entry is checked in to
// the round that was read: who owes an answer may be taken for dead.
func (l *Leases) heartbeat(ctx context.Context) {
	w, sent := &l.work, l.clock()
	if l.state.terms.shards == 0 {
		l.scheduleHeartbeat(l.join(ctx), sent)
		return
	}
	t, storeNow, err := readTerms(ctx, l.store, l.cfg.Budget, l.state.terms)
	if err == nil {
		err = t.check(l.cfg.Budget)
	}
	if err != nil {
		l.scheduleHeartbeat(err, sent)
		return
	}
	now := l.clock()
	if t.round != l.state.terms.round {
		w.roundBeganAt = now.add(-t.age(storeNow))
	}
	limit := l.state.terms.limit
	if t.shards != l.state.terms.shards || t.round < l.state.terms.round {
		l.cfg.Logger.Warn("the budget's record was made anew: leases lost", "budget", l.cfg.Budget)
		w.surveyDue, w.cleanedRound, w.due = true, 0, 0
		clear(w.pending)
		clear(w.suspects)
	}
	l.updateState(func() { l.state.applyTerms(t, now) })
	if limit != t.limit {
		l.cfg.Logger.Info("the budget's limit was changed", "budget", l.cfg.Budget, "from", limit, "to", t.limit)
	}
	l.checkIn(ctx)
	if home := &l.state.shards[l.state.home]; l.state.outage.roundFailed && home.joined && len(w.pending) == 0 && l.unproven(now) {
		l.send(ctx, *l.checkInStep(l.state.home)) // no round asks for it
	}
	if len(w.pending) == 0 && l.state.terms.round == t.round && l.state.allCheckedIn() {
		l.extendValidity(sent)
	}
	if w.blind {
		l.requestFailed(l.state.cause, now)
	}
	l.scheduleHeartbeat(nil, sent)
	l.fleetDuties(ctx, now)
}

// extendValidity notes that the leases were valid when a request was sent, and that
// more could be taken, unless the shards do not answer. Two times end: that of what is
// held, and that until which more can be taken. A process whose shards do not answer
// has the first alone, and the Fallback decides what it may have beyond.
func (l *Leases) extendValidity(sent instant) {
	recovered, blind := false, l.work.blind
	l.updateState(func() {
		l.state.validUntil, l.state.revocationSent = sent.add(l.state.terms.validity()), false
		if blind {
			return
		}
		recovered = l.state.degraded
		l.state.usableUntil = l.state.validUntil
		l.state.degraded, l.state.cause = false, nil
	})
	if recovered {
		l.cfg.Logger.Info("leases are renewed again", "budget", l.cfg.Budget)
	}
}

// scheduleHeartbeat sets the time of the next heartbeat. It comes early for whatever
// falls due before: a round to begin, a shard to ask for a write, suspects to remove.
// What has failed a moment ago does not pull it forward: every process would read each
// 10 ms, and keep a throttled record throttled.
func (l *Leases) scheduleHeartbeat(err error, sent instant) {
	w, now := &l.work, l.clock()
	if err == nil && !w.blind && len(w.pending) == 0 {
		l.noteHeartbeat(sent, now)
	} else {
		l.noteFailure(sent)
	}
	if err != nil {
		w.heartbeatAt = now.add(w.heartbeatBackoff.next(50*time.Millisecond, l.lease()/40))
		l.requestFailed(err, now)
		return
	}
	w.heartbeatBackoff = 0
	every := l.state.terms.heartbeatEvery()
	w.heartbeatAt = sent.add(every - rand.N(every/10))
	_, passed := now.since(w.roundBeganAt)
	due := l.roundEvery(now) - passed
	for _, r := range l.state.rounds {
		if r.round > w.cleanedRound {
			since, _ := now.since(l.state.readAt)
			due = min(due, l.state.terms.roundTimeout()-l.answerTime()-(l.state.watchedFor-r.seenAt)-since)
		}
	}
	if w.unasked {
		due = 0
	}
	if len(w.suspects) > 0 {
		due = min(due, l.reapIn(now))
	}
	left := min(now.until(w.heartbeatAt), max(due, now.until(w.dutiesAt)))
	w.heartbeatAt = now.add(max(left, 10*time.Millisecond))
}

// roundEvery is that of the terms. While somebody waits here in vain the fleet counts as
// short, since the leases of the dead may be what is missing.
func (l *Leases) roundEvery(now instant) time.Duration {
	return l.state.terms.roundEvery(l.state.owners, l.work.blocked || l.state.isShort(now))
}

// checkIn answers the current round in every shard in which the process has an
// entry. One shard that does not answer keeps it from no other; of several each
// call tries two.
func (l *Leases) checkIn(ctx context.Context) {
	failed := 0
	for shard := range l.state.shards {
		h := &l.state.shards[shard]
		if failed == 2 || ctx.Err() != nil {
			return
		}
		if h.joined && h.entry.Round < l.state.terms.round && l.work.pending[shard] == nil && l.send(ctx, *l.checkInStep(shard)) == unknown {
			failed++
		}
	}
}

// fleetDuties are what every process does for the fleet: begin the next round when
// it is time, look for the dead when a round was waited for, and ask for
// connections that are above this process's share.
func (l *Leases) fleetDuties(ctx context.Context, now instant) {
	w := &l.work
	if now.until(w.dutiesAt) <= 0 {
		l.advanceRounds(ctx, now)
	}
	l.reclaim()
	if !w.memberWritten || now.until(w.memberWriteAt) <= 0 {
		if _, err := l.store.write(ctx, memberChange(&l.cfg, l.id, l.started)); err == nil {
			w.memberWritten, w.memberWriteAt = true, now.add(memberTTL/2)
		}
	}
}

// advanceRounds begins the next round when it is time, and looks for the dead when a
// round was waited for. What fails is tried again, with pauses: every process
// tries.
func (l *Leases) advanceRounds(ctx context.Context, now instant) {
	w, done := &l.work, true
	if _, passed := now.since(w.roundBeganAt); passed >= l.roundEvery(now) {
		done = l.beginRound(ctx)
	}
	done = l.lookForDead(ctx, now) && done
	if done {
		w.dutyBackoff = 0
		return
	}
	w.dutiesAt = l.clock().add(w.dutyBackoff.next(50*time.Millisecond, l.lease()/20))
}

// beginRound reports whether a round was begun, by whomever. The condition on the round
// lets one process begin it; the others find it begun.
func (l *Leases) beginRound(ctx context.Context) bool {
	round := l.state.terms.round
	answer, err := l.store.write(ctx, Change{
		Key: budgetKey(l.cfg.Budget), Stamp: "began",
		Equal: map[string]int64{"round": round}, Set: map[string]int64{"round": round + 1},
	})
	l.updateState(func() { l.state.outage.roundFailed = err != nil })
	if err != nil || answer.Record == nil {
		return false
	}
	t, now := decodeTerms(answer.Record), l.clock()
	if t.round < round || t.check(l.cfg.Budget) != nil {
		return false // made anew, or by something else: the next heartbeat sees to that
	}
	l.work.roundBeganAt = now
	l.updateState(func() { l.state.applyTerms(t, now) })
	l.work.heartbeatAt = now // to check in
	return true
}

// requestFailed notices that requests have failed for too long. The lapse of the
// validity is told once, with what is left of Grace to close in.
func (l *Leases) requestFailed(err error, now instant) {
	revoke, until := false, instant{}
	l.updateState(func() {
		l.state.cause = err
		until = l.state.validUntil
		revoke = l.cfg.Strict && !now.before(until) && l.holders.InUse() > 0 && !l.state.revocationSent
		l.state.revocationSent = l.state.revocationSent || revoke
		l.state.degraded = l.state.degraded || !l.usable(now)
	})
	if revoke {
		l.revoke(now.until(until.add(l.state.terms.grace)), err)
	}
}
