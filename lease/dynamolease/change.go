package dynamolease

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// step is one change of this session's entry in one shard. It is sent until
// its outcome is known, always with the same condition, so that it takes
// effect at most once however often it was sent, delayed or answered.
type step struct {
	session  string
	shard    int
	join     bool // the session has no entry in the shard yet
	from, to entry
	limit    int64 // the shard's limit as known, for steps that must find room
	force    bool  // add what exists anyway, limit or not
}

// verdict is what became of a step.
type verdict uint8

const (
	undecided verdict = iota // send the same step again
	applied
	denied // no room
	fenced // the entry is gone: the session was taken for dead
)

func (s step) delta() int64 { return s.to.n - s.from.n }

func (s step) update(budget string) update {
	u := update{
		key:       allocKey(budget, s.shard),
		set:       "SET used = used + :delta, o.#session = :entry",
		condition: "o.#session.q = :q",
		names:     map[string]string{"#session": s.session},
		values: item{
			":delta": number(s.delta()),
			":entry": &types.AttributeValueMemberM{Value: item{"n": number(s.to.n), "q": number(s.to.q)}},
		},
	}
	if s.join {
		u.condition = "attribute_exists(o) AND attribute_not_exists(o.#session)"
	} else {
		u.values[":q"] = number(s.from.q)
	}
	if s.delta() > 0 && !s.force {
		u.condition += " AND cap = :cap AND used <= :room"
		u.values[":cap"] = number(s.limit)
		u.values[":room"] = number(s.limit - s.delta())
	}
	return u
}

// take sends a step once and returns the entry that the table is now known to
// have for the session, and the shard as seen.
//
// INVARIANT: the entry in the table is the truth. When its sequence number is
// ahead of the step's origin, this or an earlier try of the same origin was
// applied: an attempt whose reply was lost, or one that had been denied and
// whose late duplicate found room. Either way its n is what the process has,
// which need not be the n this step asked for.
func (l *Leases) take(ctx context.Context, s step) (entry, alloc, verdict, error) {
	it, result, err := l.table.write(ctx, s.update(l.cfg.Budget))
	if result == unknown {
		return s.from, alloc{}, undecided, err
	}
	a := decodeAlloc(it)
	if result == done {
		return s.to, a, applied, nil
	}
	stored, present := a.owners[s.session]
	switch {
	case !present && s.join && it != nil:
		return s.from, a, denied, nil
	case !present || stored.q < s.from.q:
		return entry{}, a, fenced, nil
	case stored.q == s.from.q && !s.join:
		return s.from, a, denied, nil
	case l.cfg.knobs.trustSequence && stored.q == s.to.q:
		return s.to, a, applied, nil
	case l.cfg.knobs.noAdopt && stored != s.to:
		return entry{n: s.from.n, q: stored.q}, a, denied, nil
	default:
		return stored, a, applied, nil
	}
}

// strike removes a session's entry from a shard, as it was seen, and frees its
// leases. A refusal means that the entry has changed or is gone.
func (l *Leases) strike(ctx context.Context, shard int, session string, seen entry) (alloc, outcome, error) {
	it, result, err := l.table.write(ctx, update{
		key:       allocKey(l.cfg.Budget, shard),
		set:       "SET used = used - :n REMOVE o.#session",
		condition: "o.#session.n = :n AND o.#session.q = :q",
		names:     map[string]string{"#session": session},
		values:    item{":n": number(seen.n), ":q": number(seen.q)},
	})
	return decodeAlloc(it), result, err
}
