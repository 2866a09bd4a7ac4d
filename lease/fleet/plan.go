package fleet

import (
	"context"
	"math/rand/v2"
	"time"
)

// waitReason is why a waiting caller gets nothing.
type waitReason uint8

const (
	notBlocked waitReason = iota
	noRoom                // in no shard that is known
	atLevel               // this process has its share of a limit that is short
)

// nextStep decides on the next step. Without one it tells how long nothing is to be
// done, and why callers wait if some do who are wanted: what is free is taken for the others,
// too, and not looked for. In this order: connections that no lease
// covers are added to an entry first, so that the store's sum is honest. Then what is
// wanted is cut to the level, if the fleet is short, and to the Fallback's share while
// others may have connections by theirs. Then leases are taken, or given back.
func (l *Leases) nextStep(now instant) (*step, time.Duration, waitReason) {
	st := &l.state
	if st.terms.shards == 0 {
		return nil, l.lease(), notBlocked
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	inUse, waiting := l.holders.InUse(), l.holders.Waiting()
	held := st.held()
	// As after an outage or a loss: nothing else matters before the store knows of them.
	if inUse > held {
		return l.coverUnbacked(inUse - held), 0, notBlocked
	}
	l.work.entryLost = false
	wanted, short := inUse+waiting, st.isShort(now)
	if short {
		wanted = max(min(wanted, st.terms.level), inUse)
	}
	hold := l.holdLeft(now)
	if share, _ := l.fallbackShare(); hold > 0 {
		wanted = min(wanted, max(held, share))
	}
	isWanted, lacking := l.holders.Wanted() > 0, notBlocked
	if usable := held - st.overLimit(); wanted > usable {
		if s := l.takeStep(wanted-usable, short || hold > 0); s != nil {
			return s, 0, notBlocked
		}
		wanted, lacking = max(usable, inUse), noRoom
	}
	s, wait := l.surplusStep(now, held, wanted, short)
	if s == nil && lacking == notBlocked && held <= inUse {
		lacking = atLevel
	}
	if !isWanted {
		lacking = notBlocked
	}
	if hold > 0 {
		wait = min(wait, hold)
	}
	return s, wait, lacking
}

// coverUnbacked takes leases for connections that exist and that the store does not
// know, of a Fallback or of an entry that was lost: where there is room, else over the
// limit. mu is held.
func (l *Leases) coverUnbacked(missing int) *step {
	for i := range l.state.shards {
		if room := l.state.room(l.shardFromHome(i)); room > 0 {
			return l.newStep(l.shardFromHome(i), min(room, missing))
		}
	}
	s := l.newStep(l.state.home, missing)
	s.ignoreLimit = true
	return s
}

// takeStep takes leases from the first shard that is known to have room, its own first.
// What is known may be old: the write has the room as its condition.
func (l *Leases) takeStep(need int, short bool) *step {
	for i := range l.state.shards {
		if room := l.state.room(l.shardFromHome(i)); room > 0 {
			return l.newStep(l.shardFromHome(i), l.takeSize(need, room, short))
		}
	}
	return nil
}

// shardFromHome is the i-th shard, counted from home.
func (l *Leases) shardFromHome(i int) int { return (l.state.home + i) % len(l.state.shards) }

// takeSize takes some in advance while there is plenty. Plenty is four times as much:
// the rest is for others, whose own advance it would be.
func (l *Leases) takeSize(need, room int, short bool) int {
	ahead := max(need, l.batchSize(), l.cfg.Want-l.state.held())
	if !short && room/4 >= ahead {
		return ahead
	}
	if !short && l.cfg.Want > need {
		return min(max(need, l.cfg.Want-l.state.held()), room)
	}
	return min(need, room)
}

// batchSize is how many leases to have in advance. A sixteenth of an equal part, so
// that what all have in advance stays small beside the limit.
func (l *Leases) batchSize() int {
	if l.cfg.Batch > 0 {
		return l.cfg.Batch
	}
	return min(max(l.state.terms.limit/max(l.state.owners, 1)/16, 1), 10)
}

// surplusStep gives back what is not needed: at once from a shard that is over its part
// of the limit, and from any when all together are over it. When the fleet is short,
// what is above the level at once, and the rest when no connection has taken the place
// of one that was closed; else what is more than two batches above Want for a while.
// The duration is how long nothing is to be given back, if nothing changes. Waiting
// before a return saves the two writes of a connection that is replaced at once.
func (l *Leases) surplusStep(now instant, held, wanted int, short bool) (*step, time.Duration) {
	st, w := &l.state, &l.work
	spare := held - wanted
	for i := range st.shards {
		h := &st.shards[i]
		over := max(h.used-st.terms.capacity(i), int64(st.overrun()))
		if give := min(int64(spare), h.entry.Leases, over); give > 0 {
			return l.returnStep(i, int(give)), 0
		}
	}
	keep := max(l.cfg.Want-wanted, 0)
	give, after := spare-keep-l.batchSize(), l.cfg.Settle
	switch over := min(spare, held-st.terms.level); {
	// Others wait for these.
	case short && over > 0:
		give, after = over, 0
	// A connection that is replaced has a quarter of a heartbeat to take its lease
	// again.
	case short:
		give, after = spare, st.terms.heartbeatEvery()/4
	// So little moves to and fro with the load; it stays.
	case spare-keep <= 2*l.batchSize():
		give = 0
	}
	if give <= 0 {
		w.surplus = false
		return nil, time.Hour
	}
	if !w.surplus {
		w.surplus, w.surplusSince = true, now
	}
	if left := now.until(w.surplusSince.add(after)); left > 0 {
		return nil, left
	}
	for i := range st.shards { // its own last
		shard := l.shardFromHome(i + 1)
		if n := int(st.shards[shard].entry.Leases); n > 0 {
			return l.returnStep(shard, min(give, n)), 0
		}
	}
	return nil, time.Hour
}

// returnStep returns leases, and with the last one the entry. Until the answer comes
// they are granted to nobody: the write may have been done. An entry that says what is
// wanted or kept stays.
func (l *Leases) returnStep(shard, give int) *step {
	s := l.newStep(shard, -give)
	s.removeEntry = s.to.Leases == 0 && s.to.Want == 0 && s.to.Kept == 0
	l.state.shards[shard].giving = int64(give)
	return s
}

// searchWidth bounds the shards that are read in search of room.
const searchWidth = 4

// searchRoom reads this process's shard and some others. It is cheaper than a
// write that is denied.
func (l *Leases) searchRoom(ctx context.Context) {
	w := &l.work
	shards := []int{l.state.home}
	for _, i := range rand.Perm(len(l.state.shards)) {
		if i != l.state.home && len(shards) <= searchWidth {
			shards = append(shards, i)
		}
	}
	_, _ = l.readShards(ctx, shards) // what it fails to read is not searched
	w.searchAt = l.clock().add(w.searchBackoff.next(200*time.Millisecond, l.lease()/20))
}

// readShards reads shards and notes what they look like. An error says that some did not
// answer; those that did are returned all the same.
func (l *Leases) readShards(ctx context.Context, shards []int) (map[int]*Record, error) {
	records := make(map[int]*Record, len(shards))
	err := l.readInto(ctx, records, shards...)
	if err == nil || len(shards) == 1 {
		return records, err
	}
	failures := 0 // one shard that does not answer keeps from reading no other
	for _, i := range rand.Perm(len(shards)) {
		if failed := l.readInto(ctx, records, shards[i]); failed != nil {
			err = failed
			failures++
		}
		if failures == 2 {
			break // few or none answer, as it seems
		}
	}
	if len(records) == len(shards) {
		err = nil
	}
	return records, err
}

func (l *Leases) readInto(ctx context.Context, records map[int]*Record, shards ...int) error {
	keys := make([]string, len(shards))
	for i, shard := range shards {
		keys[i] = shardKey(l.cfg.Budget, shard)
	}
	snapshot, err := l.store.read(ctx, keys...)
	l.updateState(func() {
		if err != nil {
			l.state.cause = err
			return
		}
		for i, shard := range shards {
			records[shard] = snapshot.Records[keys[i]]
			l.state.noteShard(shard, records[shard])
		}
	})
	return err
}
