package dynamolease

import (
	"time"
)

// book is what this process knows of its own leases. The mutex of Leases
// guards it.
type book struct {
	session    string    // random per registration; empty before the first
	rvn        int64     // of the last heartbeat known to be stored
	tried      time.Time // when the next one was first sent, or zero
	lost       bool      // the session was fenced: a new one is needed
	validUntil time.Time

	// INVARIANT: a holding is what the table is known to have for this
	// session. It rises only after the write that raised it is known to be
	// applied, and what is being given back (ebbing) is not granted.
	shards []holding
	ebbing int

	revoked  bool      // the lapse of validUntil was told
	surplus  time.Time // since when there has been something to give back, or zero
	degraded bool      // the Fallback decides
	told     bool      // and that was logged
	cause    error     // the last failure of a request since the last heartbeat
}

// holding is one shard's part.
type holding struct {
	entry       // as the table has it for this session
	joined bool // the table has an entry for this session

	limit, used int64 // of the whole shard, as last seen
}

func (h *holding) room() int { return int(max(h.limit-h.used, 0)) }

func (b *book) held() int {
	sum := 0
	for i := range b.shards {
		sum += int(b.shards[i].n)
	}
	return sum
}

func (b *book) room() int {
	sum := 0
	for i := range b.shards {
		sum += b.shards[i].room()
	}
	return sum
}

// restart is a new session, which holds nothing yet.
func (b *book) restart(session string, validUntil time.Time, shards []alloc) {
	b.session, b.rvn, b.lost, b.validUntil, b.tried = session, 1, false, validUntil, time.Time{}
	b.ebbing, b.surplus = 0, time.Time{}
	for i := range b.shards {
		b.shards[i] = holding{limit: shards[i].limit, used: shards[i].used}
	}
}

// forfeit is the end of a session that was fenced.
func (b *book) forfeit() {
	b.lost, b.validUntil, b.ebbing, b.cause = true, time.Time{}, 0, errOverrun
	for i := range b.shards {
		b.shards[i].entry = entry{}
	}
}

// see notes what a shard looks like now.
func (b *book) see(shard int, a alloc) {
	b.shards[shard].limit, b.shards[shard].used = a.limit, a.used
}
