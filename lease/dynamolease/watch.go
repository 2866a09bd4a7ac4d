package dynamolease

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// neighbours is how many sessions each process watches. Each one is watched by
// as many others, whatever the size of the fleet.
const neighbours = 2

// sighting is what a watcher remembers of a session: no clock but the
// watcher's own is compared.
type sighting struct {
	seen  heartbeat
	since time.Time // after the first read that showed seen
	last  time.Time // the latest read
}

// watch looks after the other sessions of the fleet and frees the leases of
// those that have stopped. The sessions of a shard form a ring in which each
// watches its successors; when leases are short every process watches all.
func (l *Leases) watch(ctx context.Context) {
	sightings := map[string]sighting{}
	interval := l.cfg.Lease / 8
	for turn := 0; pause(ctx, interval-rand.N(interval/8), nil); turn++ {
		session, home, pressed := l.post()
		if session == "" {
			continue
		}
		targets := map[string]bool{}
		for i := range l.cfg.Shards {
			// Its own shard, and the others in turn: somebody must look at those
			// in which no living session is at home.
			if i == home || pressed || i == turn%l.cfg.Shards {
				for _, target := range l.ring(ctx, i, session, pressed) {
					targets[target] = true
				}
			}
		}
		for target := range targets {
			l.inspect(ctx, target, sightings, 2*interval)
		}
		if turn%l.cfg.Shards == 0 {
			maps.DeleteFunc(sightings, func(_ string, s sighting) bool { return time.Since(s.last) > l.cfg.Lease })
		}
	}
}

func (l *Leases) post() (session string, home int, pressed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.session, l.home(), l.waiting.Len() > 0 && l.book.room() == 0
}

// ring reads a shard and names the sessions to watch there.
func (l *Leases) ring(ctx context.Context, shard int, session string, all bool) []string {
	it, err := l.table.read(ctx, allocKey(l.cfg.Budget, shard))
	if err != nil {
		return nil
	}
	a := decodeAlloc(it)
	l.change(func() { l.book.see(shard, a) })
	wake(l.growth) // the fleet may have become short of leases that are spare here
	delete(a.owners, session)
	others := slices.Sorted(maps.Keys(a.owners))
	if all || len(others) <= neighbours {
		return others
	}
	start, _ := slices.BinarySearch(others, session)
	var successors []string
	for i := range neighbours {
		successors = append(successors, others[(start+i)%len(others)])
	}
	return successors
}

// inspect reads a session's heartbeat. It is dead when it has been the same
// for as long as its owner may have used it, as seen by reads of which none
// failed: during an outage of the table nobody can make heartbeats, and
// afterwards everybody gets the full time again.
func (l *Leases) inspect(ctx context.Context, session string, sightings map[string]sighting, gap time.Duration) {
	asked := time.Now()
	it, err := l.table.read(ctx, sessionKey(l.cfg.Budget, session))
	if err != nil {
		delete(sightings, session)
		return
	}
	now := time.Now()
	seen := decodeHeartbeat(it)
	before, known := sightings[session]
	if !known || before.seen != seen || asked.Sub(before.last) > gap {
		before = sighting{seen: seen, since: now}
	}
	before.last = now
	sightings[session] = before

	patience := seen.validity // which includes the owner's grace
	if !seen.exists {
		patience = l.validity + l.cfg.Grace
	}
	if !seen.dead {
		if asked.Sub(before.since) < patience+patience/100 {
			return
		}
		if !l.fence(ctx, session, seen) {
			return
		}
	}
	freed, clean := l.free(ctx, session)
	if clean {
		delete(sightings, session)
	}
	if freed > 0 {
		l.change(func() { l.counts.Reaped++ })
		l.cfg.Logger.Info("freed the leases of a dead process", "budget", l.cfg.Budget, "session", session, "leases", freed)
		wake(l.growth)
	}
}

// fence writes the tombstone, unless the session has moved since it was seen.
//
// INVARIANT: no lease of another session is freed before its tombstone is
// known to be stored. From then on no heartbeat of it succeeds, so its
// validity ended by its own clock before the watcher's patience did.
func (l *Leases) fence(ctx context.Context, session string, seen heartbeat) bool {
	if l.cfg.knobs.noTombstone {
		return true
	}
	u := update{
		key:       sessionKey(l.cfg.Budget, session),
		set:       "SET dead = :true, #ttl = :ttl",
		condition: "rvn = :rvn AND attribute_not_exists(dead)",
		names:     map[string]string{"#ttl": "ttl"},
		values:    item{":true": truth(), ":rvn": number(seen.rvn), ":ttl": garbageTime()},
	}
	if !seen.exists {
		u.condition = "attribute_not_exists(pk)"
		delete(u.values, ":rvn")
	}
	it, result, _ := l.table.write(ctx, u)
	return result != unknown && decodeHeartbeat(it).dead
}

// free removes a session that has ended from every shard, tells how many
// leases it had there, and whether nothing of it is left. Interrupted, it is
// finished by whoever looks next.
func (l *Leases) free(ctx context.Context, session string) (freed int64, clean bool) {
	for shard := range l.cfg.Shards {
		it, err := l.table.read(ctx, allocKey(l.cfg.Budget, shard))
		if err != nil {
			return freed, false
		}
		e, present := decodeAlloc(it).owners[session]
		if !present {
			continue
		}
		a, result, _ := l.strike(ctx, shard, session, e)
		if result != done {
			return freed, false
		}
		freed += e.n
		l.change(func() { l.book.see(shard, a) })
	}
	return freed, true
}
