package fleet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// surveyShards reads every shard, and fails if none answers. The first time it chooses
// this process's own: of four at random the one with the fewest owners, so that they
// are spread evenly and few have to go to other shards for what is missing in their
// own.
func (l *Leases) surveyShards(ctx context.Context) error {
	st := &l.state
	if records, err := l.readShards(ctx, allShards(st.terms.shards)); len(records) == 0 {
		return err
	}
	l.work.surveyDue = false
	if st.held() == 0 {
		l.updateState(func() {
			if st.shards[st.home].joined {
				return
			}
			// A shard that was not read may be full, or have many owners.
			few := slices.DeleteFunc(rand.Perm(st.terms.shards), func(i int) bool { return !st.shards[i].seen })
			st.home = slices.MinFunc(few[:min(4, len(few))], func(a, b int) int {
				return cmp.Compare(st.shards[a].owners, st.shards[b].owners)
			})
		})
	}
	l.countOwners()
	return nil
}

func allShards(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// countOwners estimates the fleet's size after every shard was read. One that has
// leases in several shards counts in each, so that it is rather too large: then rounds
// come more seldom, never too often.
func (l *Leases) countOwners() {
	n := max(l.state.sum(func(h *shardPart) int64 { return int64(h.owners) }), 1)
	l.updateState(func() { l.state.owners, l.state.sampled = n, n })
}

// sampleOwners estimates it after some were read.
func (l *Leases) sampleOwners(records map[int]*Record) {
	sum := 0
	for _, r := range records {
		if r != nil {
			sum += len(r.Owners)
		}
	}
	l.updateState(func() { l.state.sampled = max(sum*l.state.terms.shards/len(records), 1) })
}
