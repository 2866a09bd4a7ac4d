package dynamolease

import (
	"context"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// storms is how many random runs each property gets: few by default, STORMS=n
// for more.
func storms(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("STORMS")
	if text == "" {
		return 2
	}
	n, err := strconv.ParseUint(text, 10, 32)
	require.NoError(t, err, "STORMS")
	return n
}

// everything is the worst that a fleet is promised to stand.
func everything() story {
	return story{
		limit: 30, members: 5, want: 14, shards: 1,
		faults: faults{
			lostRequest: 0.05, lostReply: 0.06, throttle: 0.02, duplicate: 0.25,
			delay: 40 * time.Millisecond, duplicateDelay: 6 * time.Second,
		},
		kills: 90 * time.Second, pauses: 90 * time.Second, outages: 300 * time.Second, cutOffs: true,
		strict: true, lasts: 1500 * time.Second,
	}
}

func TestConnectionsNeverExceedTheLimitWhateverHappens(t *testing.T) {
	for _, variant := range []struct {
		name string
		edit func(*story)
	}{
		{"one shard", func(*story) {}},
		{"three shards", func(s *story) { s.shards = 3 }},
		{"no old item in a refusal", func(s *story) { s.oldish = true }},
		{"outages of the whole table", func(s *story) { s.cutOffs = false }},
		{"without strictness, while nobody alive is taken for dead", func(s *story) {
			s.strict, s.pauses, s.cutOffs = false, 0, false
		}},
	} {
		t.Run(variant.name, func(t *testing.T) {
			for seed := range storms(t) {
				s := everything()
				variant.edit(&s)
				f := s.run(t, seed)
				require.LessOrEqual(t, f.most, s.limit, "seed %d", seed)
				require.Greater(t, f.most, s.limit/2, "seed %d: hardly anything happened", seed)
				require.Empty(t, f.sumBad, "seed %d", seed)
				if !s.strict {
					require.Zero(t, f.losses, "seed %d: the premise", seed)
				}
			}
		})
	}
}

// Each rule is needed: without it some run exceeds the limit, or counts wrongly,
// under the same faults that the whole stands.
func TestConnectionsExceedTheLimitWithoutEachRule(t *testing.T) {
	for name, breakIt := range map[string]func(*story){
		"the sequence number alone is taken for the answer": func(s *story) { s.knobs.trustSequence = true },
		"leases are freed without a tombstone":              func(s *story) { s.knobs.noTombstone = true },
		"validity counts from the reply, without grace": func(s *story) {
			s.knobs.fromReply, s.knobs.noGrace = true, true
		},
		"late duplicates are not adopted": func(s *story) { s.knobs.noAdopt = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := everything()
			breakIt(&s)
			for seed := range uint64(150) {
				f := s.run(t, seed)
				if f.most > s.limit || f.sumBad != "" {
					t.Logf("seed %d: %d connections at a limit of %d. %s", seed, f.most, s.limit, f.sumBad)
					return
				}
			}
			t.Fatal("nothing broke")
		})
	}
}

// A heartbeat must fail once its session was fenced, or the owner believes in
// leases that others have got.
func TestAFencedProcessDoesNotBelieveInItsSpareLeases(t *testing.T) {
	granted := func(k knobs) (atOnce bool) {
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB()
			cutOff, c := join(t, db, Config{Limit: 100, Strict: true, knobs: k})
			take(t, cutOff, 1)[0]() // ten are held, none in use
			other, _ := join(t, db, Config{Limit: 100, Strict: true})
			c.set(func(c *fakeClient) { c.outage = time.Now().Add(3 * time.Minute) })
			time.Sleep(2 * time.Minute)
			take(t, other, 100)
			for cutOff.Stats().Degraded || time.Now().Before(c.outage) {
				pause(t.Context(), 10*time.Millisecond, nil)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := cutOff.Acquire(ctx)
			atOnce = err == nil
			cutOff.halt()
			other.halt()
		})
		return atOnce
	}
	require.False(t, granted(knobs{}))
	require.True(t, granted(knobs{blindHeartbeat: true}), "101 leases of 100")
}
