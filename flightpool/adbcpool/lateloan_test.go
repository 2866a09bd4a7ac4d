package adbcpool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// TestAnUnansweredRollbackBehindItsCallerKeepsTheLoanForItsTimeOnly: database/sql rolls
// back when the context of a transaction ends. Where the server never answers, neither
// Rollback nor DB.Close waits, and the connection is back when the time of the rollback
// is over.
func TestAnUnansweredRollbackBehindItsCallerKeepsTheLoanForItsTimeOnly(t *testing.T) {
	t.Parallel()
	for _, profile := range []testserver.Profile{testserver.Strict(), testserver.SwanLake()} {
		for _, kind := range []string{"native", "open"} {
			for _, effect := range []string{"freeze", "hang"} {
				t.Run(profile.Name+" "+kind+" "+effect, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { unansweredRollback(t, profile, kind, effect) })
				})
			}
		}
	}
}

func unansweredRollback(t *testing.T, profile testserver.Profile, kind, effect string) {
	s, err := testserver.Start(testserver.Options{Profile: profile, Listen: testserver.InMemory})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	r := rig{t, s}
	pool, err := r.tryPool(kind)
	require.NoError(t, err)
	db := OpenDB(pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	set := s.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 2, Do: sqlEffects[effect]})
	began := time.Now()
	cancel()
	synctest.Wait()
	_ = tx.Rollback() // database/sql has called the driver's already
	require.NoError(t, db.Close())
	require.Zero(t, time.Since(began), "nobody waits")
	require.Equal(t, 1, pool.Stats().InUse, "the rollback goes on")
	for pool.Stats().InUse > 0 && time.Since(began) < time.Hour {
		time.Sleep(100 * time.Millisecond)
	}
	require.LessOrEqual(t, time.Since(began), loanBackWithin)
	require.Positive(t, set.Fired())
	require.NoError(t, pool.Close(t.Context()))
	set.Clear()
	s.Faults().ThawConns()
	time.Sleep(31 * time.Minute) // SwanLake's sessions end after 15 minutes, in a round of its janitor
}
