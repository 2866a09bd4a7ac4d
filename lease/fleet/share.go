package fleet

import (
	"context"
	"math/rand/v2"
	"slices"
)

// share tells the fleet what this process would like, and finds out whether
// all together want more than the limit. Then it writes the level: the most
// that one process may have. Everybody reads that with the next beat, takes
// no more than it, gives back what it has above it and does not use, and asks
// for the connections above it that are idle. Who finds a level that was
// written within a beat leaves it at that.
func (l *Leases) share(ctx context.Context) {
	st, w := &l.state, &l.work
	now := l.clock()
	every := st.terms.beatEvery()
	w.shareAt = now.add(every + rand.N(every/2))
	s := l.checkInStep(st.home)
	if !st.shards[st.home].joined || differs(s.from.Want, s.to.Want) {
		if l.send(ctx, *s) == unknown {
			return
		}
	}
	if least, _ := now.since(st.levelSeen); st.terms.levels > 0 && least < every {
		return
	}
	records, err := l.readShards(ctx, allShards(st.terms.shards))
	if err != nil {
		return
	}
	l.countOwners()
	next := fairLevel(records, st.terms.limit)
	if next == 0 && st.terms.level == 0 {
		return
	}
	answer, err := l.store.write(ctx, Change{
		Key:   budgetKey(l.cfg.Budget),
		Equal: map[string]int64{"levels": st.terms.levels},
		Set:   map[string]int64{"level": int64(next), "levels": st.terms.levels + 1},
	})
	if err != nil || answer.Record == nil {
		return
	}
	t := decodeTerms(answer.Record)
	if t.round < st.terms.round {
		return // made anew: the next beat sees to that
	}
	now = l.clock()
	l.change(func() { l.state.adopt(t, now) })
}

// differs reports whether a new want is worth a write.
func differs(told, want int64) bool {
	return max(told, want)-min(told, want) > max(told, want)/10
}

// fairLevel is the max-min share of a limit: the most that one owner may have,
// so that all wants cut down to it fit. It is 0 when all wants fit as they
// are. What the division leaves over goes to whoever comes first once nobody
// is below the level.
func fairLevel(records map[int]*Record, limit int) int {
	has, wants := map[string]int64{}, map[string]int64{}
	for _, r := range records {
		if r == nil {
			continue
		}
		for id, o := range r.Owners {
			has[id] += o.Leases
			wants[id] = max(wants[id], o.Want)
		}
	}
	sorted := make([]int64, 0, len(wants))
	for id := range wants {
		wants[id] = max(wants[id], has[id])
		sorted = append(sorted, wants[id])
	}
	slices.Sort(sorted)
	left := int64(limit)
	for i, want := range sorted {
		each := left / int64(len(sorted)-i)
		if want > each {
			for id := range has {
				if has[id] < min(wants[id], each) {
					return int(max(each, 1))
				}
			}
			return int(each) + 1
		}
		left -= want
	}
	return 0
}
