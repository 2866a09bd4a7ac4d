package fleet

import (
	"context"
	"sort"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// updateLevel tells the fleet what this process would like, and finds out whether all
// together want more than the limit. Then it writes the level: the most that one
// process may have. Everybody reads that with the next heartbeat, takes no more than
// it, gives back what it has above it and does not use, and asks holders for the
// connections above it. Who finds a level that was written within a heartbeat leaves
// it at that. Of several that write at once one succeeds, by the condition on the
// version. A level of zero ends the shortage, and is written only if there was another.
// What fails here is tried after the next heartbeat.
func (l *Leases) updateLevel(ctx context.Context) {
	st, w := &l.state, &l.work
	if !l.upToDate(ctx) {
		return
	}
	now := l.clock()
	every := st.terms.heartbeatEvery()
	w.shareAt = w.heartbeatAt.add(time.Millisecond) // after the next heartbeat
	s := l.checkInStep(st.home)
	if has := int64(st.held()); !st.shards[st.home].joined || worthWriting(s.from.Want, s.to.Want) || s.from.Want <= has && s.to.Want > has {
		if l.send(ctx, *s) == unknown {
			return
		}
	}
	if _, most := now.since(st.levelSeen); st.terms.levelVersion > 0 && most < every*4/5 && st.levelConfirmed {
		return
	}
	records, err := l.readShards(ctx, allShards(st.terms.shards))
	if err != nil {
		return
	}
	l.countOwners()
	// Every record has to be there: a share of a part of the fleet would be too large.
	next := fairLevel(records, st.terms.limit)
	if next == 0 && st.terms.level == 0 {
		return
	}
	answer, err := l.store.write(ctx, Change{
		Key:   budgetKey(l.cfg.Budget),
		Equal: map[string]int64{"levels": st.terms.levelVersion},
		Set:   map[string]int64{"level": int64(next), "levels": st.terms.levelVersion + 1},
	})
	if err != nil || answer.Record == nil {
		return
	}
	t := decodeTerms(answer.Record)
	if t.round < st.terms.round || t.check(l.cfg.Budget) != nil {
		return // made anew, or by something else: the next heartbeat sees to that
	}
	now = l.clock()
	l.updateState(func() { l.state.applyTerms(t, now) })
}

// upToDate reports whether the budget's record was read a moment ago, and reads it if
// it was not: whoever goes by an older one does what others have done. A level that is
// renewed by an old record is denied, and an attempt costs a read of all shards.
func (l *Leases) upToDate(ctx context.Context) bool {
	if _, age := l.clock().since(l.state.readAt); age < time.Second {
		return true
	}
	w := &l.work
	l.heartbeat(ctx)
	if w.heartbeatBackoff > 0 {
		w.shareAt = w.heartbeatAt
	}
	return w.heartbeatBackoff == 0 && len(w.pending) == 0 && !w.surveyDue
}

// worthWriting reports whether a new want is worth a write. Less than a tenth moves the
// level by little.
func worthWriting(told, want int64) bool {
	return max(told, want)-min(told, want) > max(told, want)/10
}

// ownerDemand is what one owner has, would like, and cannot give back.
type ownerDemand struct{ has, want, kept int64 }

// cutTo is what the owner has at a level. Neither more than it wants, nor less than it
// cannot give back.
func (p *ownerDemand) cutTo(level int64) int64 { return min(p.want, max(level, p.kept)) }

// demandsOf adds up what owners have in all shards. Whatever an entry says, an owner
// keeps no more than it has. Numbers are those of records that something else may have
// written, so they are cut to the limit: a sum of them must not overflow.
func demandsOf(records map[int]*Record, limit int) []ownerDemand {
	all := map[string]ownerDemand{}
	for _, r := range records {
		if r == nil {
			continue
		}
		for id, o := range r.Owners {
			p := all[id]
			p.has += min(max(o.Leases, 0), int64(limit))
			p.want, p.kept = max(p.want, min(o.Want, int64(limit))), max(p.kept, o.Kept)
			all[id] = p
		}
	}
	parts := make([]ownerDemand, 0, len(all))
	for _, p := range all {
		parts = append(parts, ownerDemand{has: p.has, want: max(p.want, p.has), kept: min(p.kept, p.has)})
	}
	return parts
}

// fairLevel is the max-min share of what others do not use: the most that one owner may
// have, unless it cannot give back what it has above, so that all wants cut down to it
// fit into the limit. It is 0 when all wants fit as they are. What the division leaves
// over goes to whoever comes first once nobody is below the level. The sum of what all
// have at a level rises with the level, so that the highest that fits is found by
// halving. It is at least 1, since 0 says that nothing is short.
func fairLevel(records map[int]*Record, limit int) int {
	parts := demandsOf(records, limit)
	sum := func(level int) (sum int64) {
		for i := range parts {
			sum += parts[i].cutTo(int64(level))
		}
		return sum
	}
	if sum(limit) <= int64(limit) {
		return 0
	}
	level := max(sort.Search(limit, func(level int) bool { return sum(level) > int64(limit) })-1, 1)
	if sum(level) >= int64(limit) {
		return level
	}
	for i := range parts {
		if parts[i].has < parts[i].cutTo(int64(level)) {
			return level
		}
	}
	return level + 1
}

// reclaim asks holders for the connections above this process's share, and, while callers wait
// in vain, for those above a holder's share of what the process has. Who has not answered
// within a heartbeat is taken to keep all.
func (l *Leases) reclaim() {
	l.mu.Lock()
	l.holders.NewRound()
	l.mu.Unlock()
	l.askHolders(l.work.blocked) // then this process has all that it can get
}

// askHolders asks holders for what they have above their shares: for others of the fleet, and
// for those of this process if within.
func (l *Leases) askHolders(within bool) {
	l.holders.AskWanted(&l.mu, (*lease.Holder).Wanted)
	now := l.clock()
	l.mu.Lock()
	beyond := l.aboveLevel(now)
	var above map[*lease.Holder]int
	if beyond > 0 || within {
		above = l.holders.Above(beyond)
	}
	if len(above) == 0 {
		above = l.holders.Excess(beyond)
	}
	l.noteKept(now)
	l.mu.Unlock()
	for holder, n := range above {
		l.callbacks.Go(func() {
			holder.Ask(n, func(closing int, err error) {
				l.mu.Lock()
				l.holders.Answered(holder, closing)
				if closing >= n {
					l.noteKept(l.clock())
				}
				l.mu.Unlock()
				if closing < n { // others may have what is lacking
					l.askHolders(within)
				}
				wake(l.wakeup)
				if err != nil {
					l.cfg.Logger.Error("a holder failed to give up connections", "budget", l.cfg.Budget, "error", err)
				}
			})
		})
	}
}

// aboveLevel is how many connections this process has above its share. mu is held.
func (l *Leases) aboveLevel(now instant) int {
	if !l.state.isShort(now) {
		return 0
	}
	return max(0, l.holders.InUse()-l.state.terms.level)
}

// noteKept takes note of what holders need, once all have answered. mu is held.
func (l *Leases) noteKept(now instant) {
	if l.aboveLevel(now) == 0 {
		l.keptConns = 0
	} else if !l.holders.Asking() {
		l.keptConns = l.holders.Kept()
	}
}

// keptAboveLevel is how many connections above its share this process cannot give back,
// and those below; 0 when there are none above. mu is held.
func (l *Leases) keptAboveLevel(now instant) int64 {
	if kept := min(l.keptConns, l.holders.InUse()); l.state.isShort(now) && kept > l.state.terms.level {
		return int64(kept)
	}
	return 0
}

// keptStep writes what this process keeps into its entry when the level should be
// another one for it, at most once in half a heartbeat.
func (l *Leases) keptStep(now instant) *step {
	w, st := &l.work, &l.state
	l.mu.Lock()
	defer l.mu.Unlock()
	if !st.isShort(now) || now.until(w.keptCheckAt) > 0 {
		return nil
	}
	level := int64(st.terms.level)
	told := max(min(st.shards[st.home].entry.Kept, int64(l.holders.InUse())), level)
	if !worthWriting(told, max(l.keptAboveLevel(now), level)) {
		return nil
	}
	w.keptCheckAt = now.add(st.terms.heartbeatEvery() / 2)
	return l.newStep(st.home, 0)
}
