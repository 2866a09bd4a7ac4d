package adbcpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// A prepared statement that cannot be closed, of those by which a transaction of a
// foreign driver is watched, leaves no transaction on a server that keeps the
// sessions of closed connections, and nothing that a later borrower stores is in it.
func TestAWitnessThatCannotBeClosedLeavesNoTransaction(t *testing.T) {
	for _, effect := range slices.Sorted(maps.Keys(sqlEffects)) {
		if effect == "kill" || effect == "freeze" || effect == "hang" || effect == "goaway" || effect == "evict" || effect == "unavailable" {
			continue // there is no connection to roll back on, as far as can be known
		}
		for skip := range 4 {
			for _, commit := range []bool{true, false} {
				inBubble(t, testserver.SwanLake(), func(r rig) {
					what := fmt.Sprintf("%s, skip %d, commit %t", effect, skip, commit)
					table := tableOf(testserver.SwanLake())
					judge := r.pool("native")
					r.update(judge, "CREATE TABLE "+table+" (v BIGINT)")
					pool, err := r.tryPool("new", func(c *flightpool.Config) { c.MaxSize = 1 })
					require.NoError(r, err)
					set := r.server.Faults().Set(testserver.Fault{On: "ClosePreparedStatement", Skip: skip, Times: 1, Do: sqlEffects[effect]})
					s, err := pool.AcquireSession(r.Context())
					require.NoError(r, err)
					var errs []error
					errs = append(errs, s.BeginTransaction(r.Context()))
					_, err = s.Update(r.Context(), "INSERT INTO "+table+" VALUES (1)")
					errs = append(errs, err)
					if commit {
						errs = append(errs, s.Commit(r.Context()))
					} else {
						errs = append(errs, s.Rollback(r.Context()))
					}
					_ = s.Close()
					struck := set.Fired() > 0
					set.Clear()
					ctx, stop := context.WithTimeout(r.Context(), time.Minute)
					defer stop()
					_, err = pool.Update(ctx, "INSERT INTO "+table+" VALUES (2)")
					require.NoError(r, err, what)
					synctest.Wait()
					open := r.server.Ledger().Snapshot().Transactions
					rows, err := judge.Query(r.Context(), "SELECT * FROM "+table)
					require.NoError(r, err)
					values := r.values(rows)
					rows.Release()
					require.NoError(r, pool.Close(r.Context()))
					told := errors.Join(errs...)
					what += fmt.Sprintf(", told %v", told)
					require.Zero(r, open, what)
					if told != nil && slices.Contains([]string{"cancelled", "deadline", "exhausted", "unauthenticated"}, effect) {
						require.NotContains(r, told.Error(), "another connection", what) // of which they say nothing
					}
					require.Contains(r, values, "2", what)
					switch {
					case !commit || told != nil && !errors.Is(told, flightpool.ErrCommitUnknown):
						require.NotContains(r, values, "1", what)
					case told == nil:
						require.Contains(r, values, "1", what)
					}
					if skip < 3 && !struck {
						t.Error(what, "the fault has not struck")
					}
				})
			}
		}
	}
}
