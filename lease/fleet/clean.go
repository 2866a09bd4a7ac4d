package fleet

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// survey reads every shard. The first time it chooses this process's own: of
// four at random the one with the fewest owners, so that they are spread evenly
// and few have to go to other shards for what is missing in their own.
func (l *Leases) survey(ctx context.Context) error {
	st := &l.state
	if _, err := l.readShards(ctx, allShards(st.terms.shards)); err != nil {
		return err
	}
	l.work.survey = false
	if st.held() == 0 {
		l.change(func() {
			if st.shards[st.home].joined {
				return
			}
			few := rand.Perm(st.terms.shards)
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

// countOwners estimates the fleet's size after every shard was read.
func (l *Leases) countOwners() {
	sum := 0
	for i := range l.state.shards {
		sum += l.state.shards[i].owners
	}
	l.change(func() { l.state.owners = max(sum, 1) })
}

// clean looks for the dead: in this process's shard and another one, or in all
// of them. When some are found, all shards are looked through next: who dies
// together is everywhere. What fails is done again.
func (l *Leases) clean(ctx context.Context, all bool) {
	st, w := &l.state, &l.work
	due := max(st.overdue(), w.cleaned)
	shards := []int{st.home}
	if other := rand.IntN(st.terms.shards); other != st.home {
		shards = append(shards, other)
	}
	if all {
		shards = allShards(st.terms.shards)
	}
	records, err := l.readShards(ctx, shards)
	if err != nil {
		return
	}
	if all {
		w.survey = false
		l.countOwners()
	}
	if l.removeDead(ctx, records, due) > 0 && !all {
		w.survey = true
	}
	w.cleaned = max(w.cleaned, due)
	l.change(func() {
		for len(st.rounds) > 1 && st.rounds[0].round <= w.cleaned {
			st.rounds = st.rounds[1:]
		}
	})
}

// removeDead frees the leases of every owner that has not checked in to round
// due, and tells how many there were.
func (l *Leases) removeDead(ctx context.Context, records map[int]*Record, due int64) int {
	dead, freed, fresh := map[string]bool{}, int64(0), 0
	for shard, r := range records {
		freed += l.removeFrom(ctx, shard, r, due, dead)
	}
	if due != l.work.reapedFor {
		l.work.reaped, l.work.reapedFor = map[string]bool{}, due
	}
	for id := range dead { // who has leases in several shards is one
		if !l.work.reaped[id] {
			l.work.reaped[id] = true
			fresh++
		}
	}
	if len(dead) > 0 {
		l.change(func() { l.counts.Reaped += uint64(fresh) })
		l.cfg.Logger.Info("freed the leases of dead processes", "budget", l.cfg.Budget, "processes", fresh, "leases", freed)
	}
	return len(dead)
}

// removeAtOnce bounds the owners that one write removes: each is a condition.
const removeAtOnce = 20

// removeFrom removes the dead of one shard.
//
// INVARIANT: an owner is removed only by a write whose condition is that its
// entry is the one that was seen, without a check-in to a round that was
// waited for. From then on no write of the owner succeeds; and each proof of
// its validity was sent before that round began.
func (l *Leases) removeFrom(ctx context.Context, shard int, r *Record, due int64, dead map[string]bool) (freed int64) {
	for tries := 0; r != nil && tries < 50 && ctx.Err() == nil; tries++ {
		c := Change{Key: shardKey(l.cfg.Budget, shard), OwnerAt: map[string]int64{}}
		sum := int64(0)
		for id, o := range r.Owners {
			if o.Round < due && id != l.id && len(c.Remove) < removeAtOnce {
				c.OwnerAt[id] = o.Seq
				c.Remove = append(c.Remove, id)
				sum += o.Leases
			}
		}
		if len(c.Remove) == 0 {
			return freed
		}
		c.Add = map[string]int64{"used": -sum}
		answer, err := l.store.write(ctx, c)
		if err != nil {
			l.work.survey = true // to look again
			return freed
		}
		if r = answer.Record; !answer.Done {
			continue
		}
		freed += sum
		for _, id := range c.Remove {
			dead[id] = true
		}
		l.change(func() { l.state.see(shard, r) })
	}
	return freed
}
