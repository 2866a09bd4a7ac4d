package fleet

import (
	"slices"
	"time"
)

// state is what this process knows of the budget and of its own part. The
// mutex of Leases guards it; the loop alone writes it.
type state struct {
	terms  terms // shards is 0 until the store has answered once
	rounds []seenRound

	// watchedFor is for how long this process has seen what happens, by its own
	// clock. An outage of the store does not count: while it lasts nobody can
	// check in, and afterwards everybody gets the time that was left.
	watchedFor time.Duration
	readAt     instant // the last read of the budget's record

	// What is held is nobody else's until validUntil. Until usableUntil more can
	// be taken, as far as is known; afterwards the Fallback decides, were it only
	// that the shards do not answer.
	validUntil, usableUntil instant

	home   int // the shard from which leases are taken first
	shards []shardPart

	// The level that a process finds when it starts may be of long ago: it
	// stands for it once it was seen to be renewed.
	levelConfirmed bool
	levelSeen      instant // when a level was last seen to be written
	owners         int     // processes that share the budget, as last seen
	sampled        int     // likewise, as the shards tell that were looked at for the dead

	outage outage

	// This process was taken for dead, and others may have what it held: until the
	// store has all that it counts on within the limit, nothing more is opened.
	lost bool

	revocationSent bool  // the lapse of validUntil was told
	degraded       bool  // the Fallback decides
	degradedLogged bool  // and that was logged
	cause          error // the last failure of a request since more could be taken
}

// seenRound is when this process first saw a round, in the time for which it
// has watched the budget's record.
type seenRound struct {
	round  int64
	seenAt time.Duration
}

// shardPart is this process's part of one shard.
//
// INVARIANT: entry is what the store is known to have for this process. It
// rises only after the write that raised it is known to be done.
type shardPart struct {
	joined bool // the store has an entry
	entry  Owner
	giving int64 // of the entry's leases: what is being given back, and is not granted

	exists bool  // the shard's record is there
	seen   bool  // used and owners are known
	used   int64 // of the whole shard, as last seen
	owners int
}

// held is how many leases the process has. They cover connections only while valid: see
// Leases.capacity.
func (s *state) held() int { return s.sum(func(h *shardPart) int64 { return h.entry.Leases }) }

// returning is how many of those are being given back.
func (s *state) returning() int { return s.sum(func(h *shardPart) int64 { return h.giving }) }

// used is what the whole fleet has taken, as last seen; of shards never read it is
// nothing.
func (s *state) used() int { return s.sum(func(h *shardPart) int64 { return h.used }) }

func (s *state) sum(of func(h *shardPart) int64) int {
	sum := int64(0)
	for i := range s.shards {
		sum += of(&s.shards[i])
	}
	return int(sum)
}

// room is what a shard is known to have left. Of a shard that was never read nothing is
// known, and so nothing is taken from it.
func (s *state) room(shard int) int {
	h := &s.shards[shard]
	if !h.seen {
		return 0
	}
	return int(max(s.terms.capacity(shard)-h.used, 0))
}

// overLimit is how many of this process's leases are not passed on from one connection
// to the next: those in shards that have more than their part of the limit, as far as
// that goes beyond it, and as many as all shards together have above it.
func (s *state) overLimit() int {
	sum := int64(0)
	for i := range s.shards {
		if h := &s.shards[i]; h.seen {
			sum += min(max(h.used-s.terms.capacity(i), 0), h.entry.Leases)
		}
	}
	return max(int(sum), min(s.overrun(), s.held()))
}

// overrun is how many leases all shards have above the limit, as last seen.
func (s *state) overrun() int { return max(s.used()-s.terms.limit, 0) }

// noteShard notes what a shard looks like; nil: it does not exist yet. Every answer of
// the store shows the record, also a denial, so that what is known of a shard is mostly
// of the last write. The fleet's size is estimated from the home shard between two
// surveys.
func (s *state) noteShard(shard int, r *Record) {
	h := &s.shards[shard]
	h.seen, h.exists, h.used, h.owners = true, r != nil, 0, 0
	if r != nil {
		h.used, h.owners = r.Numbers["used"], len(r.Owners)
	}
	if shard == s.home {
		s.owners = max(h.owners*s.terms.shards, 1)
	}
}

// isShort reports whether some process lately found the fleet to want more than the
// limit. A level that nobody has renewed for four heartbeats is void, by whichever
// clock says so: an old one would keep a process to a shortage that is over.
func (s *state) isShort(now instant) bool {
	if s.terms.level <= 0 || !s.levelConfirmed {
		return false
	}
	_, most := now.since(s.levelSeen)
	return most < 4*s.terms.heartbeatEvery()
}

// applyTerms notes what the budget's record says, read or written at now. A span of
// more than one and a half heartbeats between two reads counts as so much: in the rest
// of it this process was not watching.
func (s *state) applyTerms(t terms, now instant) {
	if t.shards != s.terms.shards || t.round < s.terms.round {
		// The first answer; or the record was made anew, and nothing is left
		// of what this process had.
		s.shards, s.rounds, s.validUntil, s.home = make([]shardPart, t.shards), nil, instant{}, s.home%t.shards
	}
	passed, _ := now.since(s.readAt)
	s.watchedFor += min(max(passed, 0), t.heartbeatEvery()*3/2)
	s.readAt = now
	if len(s.rounds) == 0 || t.round > s.rounds[len(s.rounds)-1].round {
		s.rounds = append(s.rounds, seenRound{t.round, s.watchedFor})
	}
	if s.terms.shards > 0 && t.levelVersion != s.terms.levelVersion {
		s.levelSeen, s.levelConfirmed = now, true
	}
	if t.round != s.terms.round {
		s.outage.roundFailed = false
	}
	s.terms = t
}

// waitedFor is the latest round that has been waited for so long, 0 if there is
// none.
func (s *state) waitedFor(long time.Duration) int64 {
	due := int64(0)
	for _, r := range s.rounds {
		if s.watchedFor-r.seenAt >= long {
			due = r.round
		}
	}
	return due
}

// allCheckedIn reports whether every entry of this process is checked in to the latest
// round. Without an entry there is nothing to lose, and it is true.
func (s *state) allCheckedIn() bool {
	for i := range s.shards {
		if h := &s.shards[i]; h.joined && h.entry.Round < s.terms.round {
			return false
		}
	}
	return true
}

// joinedShard is a shard in which the process has an entry, -1 if there is none: its
// own first.
func (s *state) joinedShard() int {
	if len(s.shards) > 0 && s.shards[s.home].joined {
		return s.home
	}
	return slices.IndexFunc(s.shards, func(h shardPart) bool { return h.joined })
}

func (s *state) joinedAny() bool { return s.joinedShard() >= 0 }
