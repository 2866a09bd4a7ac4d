package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// BudgetPrefix begins the key of each record that describes a budget; the rest
// of the key is the budget's name. It is for stores that list their budgets.
const BudgetPrefix = "budget#"

// The records of a budget. doc.go tells who writes what when.
//
//	budget#<name>        limit, shards, made, lease, grace (ms), round, began, level, levels
//	shard#<name>#<n>     used, asked, and what each owner has
//	member#<name>#<id>   for operators: host, service, pid, started
//	rate#<name>          earned, granted: see pace
//
// INVARIANT: in every shard, after every write, used is the sum of the leases
// of its owners.
func budgetKey(budget string) string           { return BudgetPrefix + budget }
func shardKey(budget string, shard int) string { return fmt.Sprintf("shard#%s#%d", budget, shard) }
func memberKey(budget, id string) string       { return "member#" + budget + "#" + id }
func rateKey(budget string) string             { return "rate#" + budget }

// terms are what the store's record of a budget says.
type terms struct {
	limit, shards int
	madeShards    int // shards when the budget was made: they never change
	lease, grace  time.Duration
	round         int64 // raised to ask every process for a sign of life
	roundBegan    int64 // of round, in the store's milliseconds; 0 when the store has no clock
	level         int   // the most that one process may have while the fleet is short; 0: it is not
	levelVersion  int64 // raised with each write of level
}

// decodeTerms reads a record that may be anybody's: check says whether it makes sense.
// One without "made" is of before that was written.
func decodeTerms(r *Record) terms {
	n := r.Numbers
	made, ok := n["made"]
	if !ok {
		made = n["shards"]
	}
	return terms{
		limit: int(n["limit"]), shards: int(n["shards"]), madeShards: int(made),
		lease: milliseconds(n["lease"]), grace: milliseconds(n["grace"]),
		round: n["round"], roundBegan: n["began"], level: int(n["level"]), levelVersion: n["levels"],
	}
}

// milliseconds is a duration of a year at most: more would not fit.
func milliseconds(n int64) time.Duration {
	const year = 366 * 24 * 3600 * 1000
	return time.Duration(min(max(n, -year), year)) * time.Millisecond
}

// What follows from Lease, in its terms. A process that is dead has missed a
// round: it began at most heartbeatEvery and roundEvery after the process checked in
// for the last time, and is waited for as long as a validity and Grace. All
// that is within Lease and Grace:
//
//	heartbeatEvery + roundEvery + validity = 0.97 Lease
func (t terms) heartbeatEvery() time.Duration { return t.lease * 15 / 100 }
func (t terms) validity() time.Duration       { return t.lease * 45 / 100 }
func (t terms) roundTimeout() time.Duration {
	wait := t.validity() + t.grace
	return wait + wait/200 // clocks do not run alike
}

// roundEvery is how often a round begins. In a large fleet that is not short,
// rounds come less often, so that check-ins are about six per second in all.
func (t terms) roundEvery(owners int, short bool) time.Duration {
	often := t.lease * 37 / 100
	if short {
		return often
	}
	return max(often, t.lease*time.Duration(owners)/375)
}

// capacity is a shard's part of the limit. The first shards have the remainder, one
// each.
func (t terms) capacity(shard int) int64 {
	part := t.limit / t.shards
	if shard < t.limit%t.shards {
		part++
	}
	return int64(part)
}

// terms are those of a budget that is made.
func (c *Config) terms() terms {
	return terms{limit: c.Limit, shards: c.Shards, lease: c.Lease, grace: c.Grace}
}

// createBudget makes a budget in its next round. Who knew it makes it as it was.
// Entries of before then owe an answer, so that the dead among them are found.
func createBudget(name string, t terms) Change {
	return Change{
		Key: budgetKey(name), Absent: true, Stamp: "began",
		Set: map[string]int64{
			"limit": int64(t.limit), "shards": int64(t.shards), "made": int64(t.shards),
			"lease": t.lease.Milliseconds(), "grace": t.grace.Milliseconds(),
			"round": t.round + 1, "level": int64(t.level), "levels": t.levelVersion,
		},
	}
}

// memberTTL is when a store may remove the record of a process that ended.
const memberTTL = 48 * time.Hour

// memberChange tells operators who a process is. It has no condition: nothing goes by
// it, and a lost one is written again.
func memberChange(c *Config, id string, started time.Time) Change {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	service := c.Service
	if service == "" {
		service = filepath.Base(os.Args[0])
	}
	return Change{
		Key:  memberKey(c.Budget, id),
		Text: map[string]string{"host": host, "service": service, "started": started.UTC().Format(time.RFC3339)},
		Set:  map[string]int64{"pid": int64(os.Getpid())},

		Expires: time.Now().Add(memberTTL),
	}
}

// readTerms reads the budget's record and makes it from known if it is missing. The
// time is the store's, zero if it has no clock. Of several that make the record at once
// one succeeds, and all get its record.
func readTerms(ctx context.Context, m *meter, budget string, known terms) (terms, time.Time, error) {
	key := budgetKey(budget)
	snapshot, err := m.read(ctx, key)
	if err != nil {
		return terms{}, time.Time{}, err
	}
	if r := snapshot.Records[key]; r != nil {
		return decodeTerms(r), snapshot.Now, nil
	}
	answer, err := m.write(ctx, createBudget(budget, known))
	switch {
	case err != nil:
		return terms{}, time.Time{}, err
	case answer.Record == nil:
		return terms{}, time.Time{}, fmt.Errorf("lease: the record of budget %q comes and goes", budget)
	}
	return decodeTerms(answer.Record), answer.Now, nil
}
