package fleet

import (
	"context"
	"sort"
	"time"
)

// updateLevel tells the fleet what this process would like, and finds out whether all
// together want more than the limit. Then it writes the level: the most that one
// process may have. Everybody reads that with the next heartbeat, takes no more than
// it, gives back what it has above it and does not use, and asks for the connections
// above it that are idle. Who finds a level that was written within a heartbeat leaves
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

// reclaimRequest asks the holders of this process's leases for n idle connections. The
// mutex of Leases guards what they answer. A new one replaces it at each heartbeat
// while the process is above its share.
type reclaimRequest struct {
	n, inUse   int // inUse: connections when it was asked
	unanswered int // holders that have not answered
	closing    int // connections that the others close
}

// requestReclaim asks for the idle ones of the connections above this process's share, or
// else, while callers wait in vain, for those above a holder's share of what the process has.
// A holder that has not answered within a heartbeat is taken to have none.
func (l *Leases) requestReclaim(now instant) {
	l.mu.Lock()
	// Asked a heartbeat ago: who has not answered counts as having no idle ones.
	if l.lastReclaim != nil && l.lastReclaim.unanswered > 0 {
		l.keptConns = l.lastReclaim.inUse
	}
	r := &reclaimRequest{n: l.holders.InUse() - l.state.terms.level, inUse: l.holders.InUse(), unanswered: len(l.reclaims)}
	if !l.state.isShort(now) || r.n <= 0 {
		l.lastReclaim, l.keptConns = nil, 0
		l.holders.NewRound()
		l.mu.Unlock()
		if l.work.blocked { // this process has all that it can get
			l.askHolders()
		}
		return
	}
	l.lastReclaim = r
	if r.unanswered == 0 {
		l.keptConns = r.inUse
	}
	l.mu.Unlock()
	publish(l, &l.reclaims, r)
}

// askHolders asks holders of this process for what they have above their shares.
func (l *Leases) askHolders() {
	l.mu.Lock()
	above := l.holders.Above()
	l.mu.Unlock()
	for holder, n := range above {
		l.callbacks.Go(func() {
			holder.Ask(n, func(closing int, err error) {
				l.mu.Lock()
				l.holders.Answered(holder, closing)
				l.mu.Unlock()
				if closing < n { // others may have what is lacking
					l.askHolders()
				}
				if err != nil {
					l.cfg.Logger.Error("a holder failed to close idle connections", "budget", l.cfg.Budget, "error", err)
				}
			})
		})
	}
}

// reclaimAnswered books a holder's answer. Whoever closes fewer than it was asked for
// has no idle ones left. An answer to a request that was replaced changes nothing.
func (l *Leases) reclaimAnswered(r *reclaimRequest, closing int) {
	l.mu.Lock()
	r.unanswered, r.closing = r.unanswered-1, r.closing+max(closing, 0)
	if r.unanswered == 0 && l.lastReclaim == r {
		l.keptConns = 0
		if r.closing < r.n {
			l.keptConns = r.inUse - r.closing
		}
	}
	l.mu.Unlock()
	wake(l.wakeup)
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
