package pglease_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/fleet/fleettest"
	"github.com/flightpool/flightpool/lease/leasetest"
	"github.com/flightpool/flightpool/lease/pglease"
)

func TestLeasesConform(t *testing.T) {
	table := newTable(t)
	leasetest.Leases(t, func(t *testing.T, limit int) lease.Leases {
		l, err := pglease.New(t.Context(), connect(t, server.DSN()), fleet.Config{
			Table: table, Budget: unique("b"), Limit: limit, Shards: 2, Logger: quiet,
		})
		require.NoError(t, err)
		return l
	})
}

func TestLimiterConforms(t *testing.T) {
	table := newTable(t)
	leasetest.Limiter(t, func(t *testing.T, rate float64, burst int) lease.Limiter {
		l, err := pglease.NewLimiter(t.Context(), connect(t, server.DSN()), fleet.LimiterConfig{
			Table: table, Budget: unique("b"), Rate: rate, Burst: burst, Logger: quiet,
		})
		require.NoError(t, err)
		return l
	})
}

// more is how much longer than in a short run: PGLEASE_MORE, 1 by default.
func more() int {
	n, err := strconv.Atoi(os.Getenv("PGLEASE_MORE"))
	if err != nil {
		return 1
	}
	return n
}

// Random changes have the same answers in a table as in memory, and the clock
// is the server's.
func TestTheTableMeansWhatChangesSay(t *testing.T) {
	pool := connect(t, server.DSN())
	fleettest.Store(t, uint64(2*more()), func(t *testing.T, _ uint64) fleet.Store {
		return newStore(t, pool, newTable(t))
	})
	none, err := newStore(t, pool, newTable(t)).Read(t.Context(), "none")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), none.Now, 10*time.Second)
}

// A history is what really happened to a table's records, as the server tells.
type history struct {
	table, log string

	mu      sync.Mutex
	changes map[int64]*attempt // by their tag
}

// attempt is a change, what its writer was told, and when it was begun.
type attempt struct {
	change  fleet.Change
	answer  fleet.Answer
	err     error
	atLeast int64 // changes that were answered before it was sent
}

// newHistory makes a table whose every change the server itself notes.
func newHistory(t *testing.T) *history {
	table := newTable(t)
	h := &history{table: table, log: table + "_log", changes: map[int64]*attempt{}}
	sql(t, fmt.Sprintf(`create table %[2]s (n bigserial, key text, old json, new json);
		create function %[2]s() returns trigger language plpgsql as $$ begin
			if tg_op = 'UPDATE' then
				insert into %[2]s (key, old, new) select new.key, old.record, new.record where old.record::text <> new.record::text;
			else insert into %[2]s (key, new) values (new.key, new.record); end if;
			return null; end $$;
		create trigger noted after insert or update on %[1]s for each row execute function %[2]s()`, table, h.log))
	return h
}

// write makes a change that the history can tell from all others.
func (h *history) write(ctx context.Context, store fleet.Store, tag int64, c fleet.Change) {
	set := map[string]int64{"tag": tag}
	maps.Copy(set, c.Set)
	c.Set = set
	a := &attempt{change: c}
	h.mu.Lock()
	for _, other := range h.changes {
		if other.change.Key == c.Key && other.answer.Done {
			a.atLeast++
		}
	}
	h.changes[tag] = a
	h.mu.Unlock()
	answer, err := store.Write(ctx, c)
	h.mu.Lock()
	a.answer, a.err = answer, err
	h.mu.Unlock()
}

// check holds what writers were told against what happened: each change that
// was made was made once, to a record for which its conditions held, and
// became what Apply says; each that was answered so was made; none that was
// denied; and a denial showed a record that was there, not before the last
// that was known, for which a condition failed.
func (h *history) check(t *testing.T) (made, unknown int) {
	t.Helper()
	rows, err := admin.Query(t.Context(), "select key, coalesce(old::text, ''), new::text from "+h.log+" order by n")
	require.NoError(t, err)
	defer rows.Close()
	now, states, times := map[string]*fleet.Record{}, map[string][]*fleet.Record{}, map[int64]int{}
	for rows.Next() {
		var key, old, fresh string
		require.NoError(t, rows.Scan(&key, &old, &fresh))
		before, after := record(t, old), record(t, fresh)
		require.Equal(t, now[key], before, "a write was lost")
		tag := after.Numbers["tag"]
		a := h.changes[tag]
		require.NotNil(t, a, "tag %d", tag)
		require.True(t, a.change.Holds(before), "%+v on %+v", a.change, before)
		want := a.change.Apply(before, time.UnixMilli(after.Numbers[a.change.Stamp]))
		require.Equal(t, want, after, "%+v on %+v", a.change, before)
		now[key], states[key] = after, append(states[key], after)
		times[tag]++
		made++
	}
	require.NoError(t, rows.Err())
	for tag, a := range h.changes {
		switch {
		case a.err != nil:
			unknown++
			require.LessOrEqual(t, times[tag], 1)
		case a.answer.Done:
			require.Equal(t, 1, times[tag], "answered done: %+v", a.change)
		default:
			require.Zero(t, times[tag], "answered not done: %+v", a.change)
			require.False(t, a.change.Holds(a.answer.Record), "%+v", a)
			if a.answer.Record == nil {
				require.Zero(t, a.atLeast)
			} else {
				seen := a.answer.Record.Numbers["tag"]
				at := -1
				for i, s := range states[a.change.Key] {
					if s.Numbers["tag"] == seen {
						at = i
						require.Equal(t, s, a.answer.Record)
					}
				}
				require.GreaterOrEqual(t, int64(at+1), a.atLeast, "an old record")
			}
		}
	}
	return made, unknown
}

func record(t *testing.T, text string) *fleet.Record {
	t.Helper()
	if text == "" {
		return nil
	}
	r := &fleet.Record{Numbers: map[string]int64{}, Texts: map[string]string{}, Owners: map[string]fleet.Owner{}}
	require.NoError(t, json.Unmarshal([]byte(text), r))
	return r
}

func TestConcurrentWritersMakeOneHistory(t *testing.T) {
	for _, options := range []string{
		"", "&options=-c%20default_transaction_isolation%3Dserializable%20-c%20statement_timeout%3D2000",
	} {
		h := newHistory(t)
		var writers sync.WaitGroup
		for w := range int64(4) {
			pool := connect(t, server.DSN()+options)
			store := newStore(t, pool, h.table)
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 2))
				for i := range int64(50 * more()) {
					tag := w*1_000_000 + i + 1
					h.write(t.Context(), store, tag, fleettest.RandomChange(rng, i))
				}
			})
		}
		writers.Wait()
		made, unknown := h.check(t)
		require.Zero(t, unknown)
		require.Greater(t, made, 20)
		t.Logf("%d of %d changes made", made, len(h.changes))
	}
}
