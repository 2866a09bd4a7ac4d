package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// begin reads the budget's record and its shards for the first time.
func (l *Leases) begin(ctx context.Context) error {
	sent := l.clock()
	t, storeNow, err := readTerms(ctx, l.store, l.cfg.Budget, l.cfg.terms())
	if err != nil {
		return err
	}
	if err := l.compare(t); err != nil {
		return err
	}
	now := l.clock()
	l.change(func() { l.state.adopt(t, now) })
	l.work.paceFrom = now.add(-t.age(storeNow))
	if storeNow.IsZero() { // nothing tells how old the round is, and if nobody lives it would be the last
		l.work.paceFrom = now.add(-t.roundEvery(0, true) / 2)
	}
	l.work.beatAt = sent.add(t.beatEvery())
	l.work.survey = true
	err = l.survey(ctx)
	l.work.blind = err != nil
	l.prove(sent)
	l.holdBack(sent, now)
	return err
}

// compare holds the configuration against the budget's record, which wins.
func (l *Leases) compare(t terms) error {
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
	if t.shards != t.made {
		return &ConfigError{
			Setting: "Config.Shards", Hint: "cannot be changed in a budget that exists: put back what it was, or delete the budget's records while no process runs",
			Err: fmt.Errorf("budget %q: %w: made with %d shards, and has %d", budget, ErrRecord, t.made, t.shards),
		}
	}
	if t.limit > 0 && t.limit <= mostLeases && t.shards > 0 && t.shards <= min(t.limit, mostShards) &&
		t.lease >= time.Second && t.lease <= longest && t.patience() > 0 && t.grace <= longest {
		return nil
	}
	return &ConfigError{
		Setting: "Config.Budget", Hint: "the record of this budget was written by something else",
		Err: fmt.Errorf("budget %q: %w: limit %d, shards %d, lease %v, grace %v", budget, ErrRecord, t.limit, t.shards, t.lease, t.grace),
	}
}

// age is how old the round was at storeNow; 0 when the store has no clock.
func (t terms) age(storeNow time.Time) time.Duration {
	if storeNow.IsZero() || t.began == 0 {
		return 0
	}
	return max(time.Duration(storeNow.UnixMilli()-t.began)*time.Millisecond, 0)
}

// beat reads the budget's record, and does what it asks for. The read is the
// proof that this process's leases are valid: no round after the one it shows
// had begun when it was sent, so that nobody who waits for one can have taken
// this process for dead before the validity has passed.
func (l *Leases) beat(ctx context.Context) {
	w, sent := &l.work, l.clock()
	if l.state.terms.shards == 0 {
		l.beatDone(l.begin(ctx), sent)
		return
	}
	t, storeNow, err := readTerms(ctx, l.store, l.cfg.Budget, l.state.terms)
	if err == nil {
		err = t.check(l.cfg.Budget)
	}
	if err != nil {
		l.beatDone(err, sent)
		return
	}
	now := l.clock()
	if t.round != l.state.terms.round {
		w.paceFrom = now.add(-t.age(storeNow))
	}
	limit := l.state.terms.limit
	if t.shards != l.state.terms.shards || t.round < l.state.terms.round {
		l.cfg.Logger.Warn("the budget's record was made anew: leases lost", "budget", l.cfg.Budget)
		w.survey, w.cleaned, w.due = true, 0, 0
		clear(w.pending)
		clear(w.suspects)
	}
	l.change(func() { l.state.adopt(t, now) })
	if limit != t.limit {
		l.cfg.Logger.Info("the budget's limit was changed", "budget", l.cfg.Budget, "from", limit, "to", t.limit)
	}
	l.checkIn(ctx)
	if len(w.pending) == 0 && l.state.terms.round == t.round && l.state.current() {
		l.prove(sent)
	}
	if w.blind {
		l.lapse(l.state.cause, now)
	}
	l.beatDone(nil, sent)
	l.duties(ctx, now)
}

// prove notes that the leases were valid when a request was sent, and that more
// could be taken, unless the shards do not answer.
func (l *Leases) prove(sent instant) {
	recovered, blind := false, l.work.blind
	l.change(func() {
		l.state.validUntil, l.state.revoked = sent.add(l.state.terms.validity()), false
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

// beatDone sets the time of the next beat.
func (l *Leases) beatDone(err error, sent instant) {
	w, now := &l.work, l.clock()
	if err == nil && !w.blind && len(w.pending) == 0 {
		l.holdBack(sent, now)
	} else if !w.failing {
		w.failing, w.failingFrom = true, sent
	}
	if err != nil {
		w.beatAt = now.add(w.failures.next(50*time.Millisecond, l.lease()/40))
		l.lapse(err, now)
		return
	}
	w.failures = 0
	every := l.state.terms.beatEvery()
	w.beatAt = sent.add(every - rand.N(every/10))
	_, passed := now.since(w.paceFrom)
	due := l.roundEvery(now) - passed
	for _, r := range l.state.rounds {
		if r.round > w.cleaned {
			since, _ := now.since(l.state.readAt)
			due = min(due, l.state.terms.patience()-l.answerTime()-(l.state.watched-r.at)-since)
		}
	}
	if len(w.suspects) > 0 {
		due = min(due, l.reapIn(now))
	}
	left := min(now.until(w.beatAt), max(due, now.until(w.dutyAt)))
	w.beatAt = now.add(max(left, 10*time.Millisecond))
}

// holdBack sees to it that after an outage, in which others may have opened
// connections by the Fallback that the store does not know, nobody takes more
// than the Fallback would grant it until those others had the time to tell.
// It counts from the first beat that failed, or after which nothing could be
// taken: another may have had its last one a beat earlier. Who has just joined,
// or stood still, cannot know whether there was an outage.
func (l *Leases) holdBack(sent, now instant) {
	w, t := &l.work, l.state.terms
	_, lasted := now.since(w.failingFrom)
	_, apart := now.since(w.beatenAt)
	out := w.failing && lasted >= t.validity()-l.cfg.OpenTimeout-2*t.beatEvery()-l.cfg.RequestTimeout
	if share := l.cfg.Fallback.Allows(); share > 0 && share < t.limit && (out || !w.beaten || apart >= t.validity()) {
		w.survey, w.holdUntil = true, now.add(t.lease/20+3*l.cfg.RequestTimeout)
	}
	w.failing, w.beaten, w.beatenAt = false, true, sent
}

func (l *Leases) roundEvery(now instant) time.Duration {
	return l.state.terms.roundEvery(l.state.owners, l.work.blocked || l.state.short(now))
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

// duties are what every process does for the fleet: begin the next round when
// it is time, look for the dead when a round was waited for, and ask for idle
// connections that are above this process's share.
func (l *Leases) duties(ctx context.Context, now instant) {
	w := &l.work
	if now.until(w.dutyAt) <= 0 {
		l.guard(ctx, now)
	}
	l.reclaim(now)
	if !w.introduced || now.until(w.introduce) <= 0 {
		if _, err := l.store.write(ctx, introduce(&l.cfg, l.id, l.started)); err == nil {
			w.introduced, w.introduce = true, now.add(garbageAfter/2)
		}
	}
}

// guard begins the next round when it is time, and looks for the dead when a
// round was waited for. What fails is tried again, with pauses: every process
// tries.
func (l *Leases) guard(ctx context.Context, now instant) {
	w, done := &l.work, true
	if _, passed := now.since(w.paceFrom); passed >= l.roundEvery(now) {
		done = l.beginRound(ctx)
	}
	done = l.lookForDead(ctx, now) && done
	if done {
		w.duties = 0
		return
	}
	w.dutyAt = l.clock().add(w.duties.next(50*time.Millisecond, l.lease()/20))
}

// beginRound reports whether a round was begun, by whomever.
func (l *Leases) beginRound(ctx context.Context) bool {
	round := l.state.terms.round
	answer, err := l.store.write(ctx, Change{
		Key: budgetKey(l.cfg.Budget), Stamp: "began",
		Equal: map[string]int64{"round": round}, Set: map[string]int64{"round": round + 1},
	})
	if err != nil || answer.Record == nil {
		return false
	}
	t, now := decodeTerms(answer.Record), l.clock()
	if t.round < round || t.check(l.cfg.Budget) != nil {
		return false // made anew, or by something else: the next beat sees to that
	}
	l.work.paceFrom = now
	l.change(func() { l.state.adopt(t, now) })
	l.work.beatAt = now // to check in
	return true
}

// lapse notices that requests have failed for too long.
func (l *Leases) lapse(err error, now instant) {
	revoke, until := false, instant{}
	l.change(func() {
		l.state.cause = err
		until = l.state.validUntil
		revoke = l.cfg.Strict && !now.before(until) && l.inUse > 0 && !l.state.revoked
		l.state.revoked = l.state.revoked || revoke
		l.state.degraded = l.state.degraded || !l.usable(now)
	})
	if revoke {
		l.revoke(now.until(until.add(l.state.terms.grace)), err)
	}
}
