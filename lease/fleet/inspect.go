package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flightpool/flightpool/lease"
)

// Fleet is what a store knows of a budget. It is what the records say: leases that are
// held, not connections that exist.
type Fleet struct {
	Budget        string
	Limit, Used   int
	Shards        int
	Lease, Grace  time.Duration
	Round         int64 // who has not checked in to it for about Lease is dead
	Share         int   // the most that one process may have while the fleet is short; 0: it is not
	Members       []Member
	Granted       float64 // permits for opens that were ever granted; 0 without a Limiter
	GrantedUnused float64 // of these, those whose time has not come
}

// Member is one process that has leases.
type Member struct {
	ID      string
	Leases  int
	Want    int   // connections it would like, while it waits in vain for more
	Round   int64 // the latest it has checked in to
	Host    string
	Service string
	PID     int
	Started time.Time // by its own clock; zero when not known
}

// Inspect reads what a store knows of a budget: 1 read, one for each shard, and one for
// each member. It changes nothing. The records are not of one moment: sums may be off
// by what was written meanwhile.
func Inspect(ctx context.Context, store Store, budget string) (Fleet, error) {
	t, granted, err := inspectTerms(ctx, store, budget)
	if err != nil {
		return Fleet{}, err
	}
	f := Fleet{
		Budget: budget, Limit: t.limit, Shards: t.shards, Lease: t.lease, Grace: t.grace, Round: t.round, Share: t.level,
	}
	if granted != nil {
		f.Granted = float64(granted.Numbers["granted"]) / permitUnits
		f.GrantedUnused = f.Granted - float64(granted.Numbers["earned"])/permitUnits
	}
	keys := make([]string, t.shards)
	for shard := range keys {
		keys[shard] = shardKey(budget, shard)
	}
	shards, err := store.Read(ctx, keys...)
	if err != nil {
		return Fleet{}, fmt.Errorf("lease: shards of budget %q: %w", budget, err)
	}
	members := map[string]*Member{}
	for _, r := range shards.Records {
		f.Used += int(r.Numbers["used"])
		for id, o := range r.Owners {
			m := members[id]
			if m == nil {
				m = &Member{ID: id, Round: o.Round}
				members[id] = m
			}
			m.Leases, m.Want, m.Round = m.Leases+int(o.Leases), max(m.Want, int(o.Want)), min(m.Round, o.Round)
		}
	}
	if err := addMemberInfo(ctx, store, budget, members); err != nil {
		return Fleet{}, err
	}
	for _, m := range members {
		f.Members = append(f.Members, *m)
	}
	slices.SortFunc(f.Members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(b.Leases, a.Leases), cmp.Compare(a.ID, b.ID))
	})
	return f, nil
}

// inspectTerms reads the record of a budget, and that of its rate, which is nil without
// a Limiter. A record that something else wrote is an error, since what follows goes by
// its number of shards.
func inspectTerms(ctx context.Context, store Store, budget string) (terms, *Record, error) {
	snapshot, err := store.Read(ctx, budgetKey(budget), rateKey(budget))
	if err != nil {
		return terms{}, nil, fmt.Errorf("lease: budget %q: %w", budget, err)
	}
	r := snapshot.Records[budgetKey(budget)]
	if r == nil {
		return terms{}, nil, fmt.Errorf("lease: budget %q: %w", budget, ErrNoBudget)
	}
	t := decodeTerms(r)
	return t, snapshot.Records[rateKey(budget)], t.check(budget)
}

// addMemberInfo adds who the members are. One that has written no record yet has its id
// alone.
func addMemberInfo(ctx context.Context, store Store, budget string, members map[string]*Member) error {
	if len(members) == 0 {
		return nil
	}
	keys := make([]string, 0, len(members))
	for id := range members {
		keys = append(keys, memberKey(budget, id))
	}
	known, err := store.Read(ctx, keys...)
	if err != nil {
		return fmt.Errorf("lease: members of budget %q: %w", budget, err)
	}
	for id, m := range members {
		r := known.Records[memberKey(budget, id)]
		if r == nil {
			continue
		}
		m.Host, m.Service, m.PID = r.Texts["host"], r.Texts["service"], int(r.Numbers["pid"])
		if started, err := time.Parse(time.RFC3339, r.Texts["started"]); err == nil {
			m.Started = started
		}
	}
	return nil
}

// SetLimit changes the limit of a budget that exists. Every process follows within a
// sixth of Lease. Nothing is revoked when the new limit is lower, but nothing is
// granted until the fleet is below it, also when connections close. An error that is
// lease.ErrUnavailable leaves it open whether the limit was changed; to set it again
// does no harm.
func SetLimit(ctx context.Context, store Store, budget string, limit int) error {
	if err := errUnless(limit > 0 && limit <= limitBound, "SetLimit: limit is %d, must be positive, and at most %d", limit, limitBound); err != nil {
		return err
	}
	t, _, err := inspectTerms(ctx, store, budget)
	if err != nil {
		return err
	}
	if err := errUnless(limit >= t.shards, "SetLimit: limit is %d, must be at least the %d shards of budget %q", limit, t.shards, budget); err != nil {
		return err
	}
	answer, err := store.Write(ctx, Change{
		Key: budgetKey(budget), Equal: map[string]int64{"shards": int64(t.shards)}, Set: map[string]int64{"limit": int64(limit)},
	})
	return writeError(answer, err, "SetLimit", budget)
}

// Free takes the leases of a member away at once, and begins a round, so that the
// member learns of it within a quarter of Lease if it lives. Its connections then come
// on top of the limit: free only what is known to be gone. It tells how many leases
// were freed. After an error, freed is what is known to be freed; lease.ErrUnavailable
// in its chain says that something has been, or may have been.
func Free(ctx context.Context, store Store, budget, id string) (freed int, err error) {
	t, _, err := inspectTerms(ctx, store, budget)
	if err != nil {
		return 0, err
	}
	changed := false
	for shard := range t.shards {
		key := shardKey(budget, shard)
		snapshot, err := store.Read(ctx, key)
		if err != nil {
			return freed, fmt.Errorf("lease: Free: shard %d of budget %q: %w", shard, budget, halfDone(changed, err))
		}
		r := snapshot.Records[key]
		// The member may write meanwhile. The answer shows its entry as it is then, and
		// the next try goes by that.
		for r != nil {
			o, there := r.Owners[id]
			if !there {
				break
			}
			answer, err := store.Write(ctx, Change{
				Key: key, OwnerAt: map[string]int64{id: o.Seq}, Remove: []string{id}, Add: map[string]int64{"used": -o.Leases},
			})
			if err != nil {
				return freed, writeError(answer, err, "Free", budget)
			}
			if answer.Done {
				freed, changed = freed+int(o.Leases), true
			}
			r = answer.Record
		}
	}
	return freed, halfDone(changed, requestCheckIns(ctx, store, budget))
}

// halfDone marks a failure after which a part of a change has been made.
func halfDone(changed bool, err error) error {
	if err == nil || !changed || errors.Is(err, lease.ErrUnavailable) {
		return err
	}
	return errors.Join(err, lease.ErrUnavailable)
}

// requestCheckIns begins a round that is later than the call. A round that another
// process has begun between may be older than the removal, and the member may have
// checked in to it before: so it tries again.
func requestCheckIns(ctx context.Context, store Store, budget string) error {
	for tries := 0; ; tries++ {
		t, _, err := inspectTerms(ctx, store, budget)
		if err != nil {
			return err
		}
		answer, err := store.Write(ctx, Change{
			Key: budgetKey(budget), Stamp: "began",
			Equal: map[string]int64{"round": t.round}, Set: map[string]int64{"round": t.round + 1},
		})
		if err == nil && !answer.Done && tries < 10 {
			continue // begun by another, perhaps a while ago
		}
		return writeError(answer, err, "Free", budget)
	}
}

// writeError is the error of an operator's write, nil if it was done.
func writeError(answer Answer, err error, what, budget string) error {
	switch {
	case err != nil:
		return fmt.Errorf("lease: %s: budget %q: %w", what, budget, errors.Join(err, lease.ErrUnavailable))
	case !answer.Done:
		return fmt.Errorf("lease: %s: budget %q was changed by somebody else meanwhile", what, budget)
	}
	return nil
}
