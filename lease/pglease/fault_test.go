package pglease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease/fleet"
	"github.com/flightpool/flightpool/lease/fleet/fleettest"
	"github.com/flightpool/flightpool/lease/pglease"
)

// take is a change of the kind that a process makes: leases for an owner that
// must not be there, as long as there is room.
func take(key, id string) fleet.Change {
	return fleet.Change{
		Key: key, NoOwner: id, AtMost: map[string]int64{"used": 1}, Add: map[string]int64{"used": 2},
		Put: map[string]fleet.Owner{id: {Leases: 2, Seq: 1, Round: 1}},
	}
}

func create(key string) fleet.Change {
	return fleet.Change{Key: key, Absent: true, Set: map[string]int64{"used": 0}}
}

// Two writers of one record, in every order of their messages: who replaces
// first gets its two leases, the other learns that there is no room. So it is
// with a record that both make.
func TestTwoWritersInEveryOrder(t *testing.T) {
	h, w, tag := newHistory(t), newWire(t), int64(0)
	store := map[string]*pglease.Store{}
	for _, id := range []string{"a", "b"} {
		store[id] = newStore(t, connect(t, w.dsn()), h.table)
		_, err := store[id].Write(t.Context(), fleet.Change{Key: "none", Equal: map[string]int64{"x": 1}}) // the table was looked at
		require.NoError(t, err)
	}
	for _, order := range []string{"aabb", "abab", "abba", "baab", "baba", "bbaa"} {
		for _, there := range []bool{true, false} {
			key := fmt.Sprint(order, there)
			change := func(id string) fleet.Change { return take(key, id) }
			if there {
				tag++
				h.write(t.Context(), store["a"], tag, create(key))
			} else {
				change = func(string) fleet.Change { return create(key) }
			}
			inOrder := sequence(w, order)
			var writers sync.WaitGroup
			for i, id := range []string{"a", "b"} {
				writers.Go(func() { h.write(t.Context(), store[id], tag+1+int64(i), change(id)) })
			}
			writers.Wait()
			w.set(nil)
			tag += 2
			if got := inOrder(); order[1] == order[0] {
				require.Equal(t, order[:3], got, "who reads last finds that it is taken")
			} else {
				require.Equal(t, order+order[3:], got, "who writes last reads again")
			}
			require.NotEqual(t, h.changes[tag].answer.Done, h.changes[tag-1].answer.Done)
		}
	}
	_, unknown := h.check(t)
	require.Zero(t, unknown)
}

// sequence lets the first messages of the first two connections pass in an
// order, each when the one before was answered, and all that follow at once.
func sequence(w *wire, order string) (passed func() string) {
	var mu sync.Mutex
	turn, got, under := sync.NewCond(&mu), "", false
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onReady = func(int) {
		mu.Lock()
		defer mu.Unlock()
		under = false
		turn.Broadcast()
	}
	w.onQuery = func(q *query) {
		mu.Lock()
		defer mu.Unlock()
		name := string(rune('a' + q.conn))
		for len(got) < len(order) && (under || order[len(got):len(got)+1] != name) {
			turn.Wait()
		}
		got, under = got+name, true
	}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// A write whose connection breaks at any byte, of the request or its answer,
// or whose backend is ended at any message, is known only if it was answered,
// and takes effect once at most. It can be sent again.
func TestAWriteThatIsCutAnywhereIsKnownOrUnknownButNeverWrong(t *testing.T) {
	step := 16
	if more() > 1 {
		step = 1
	}
	h, w := newHistory(t), newWire(t)
	store := newStore(t, connect(t, w.dsn()), h.table)
	tag := int64(0)
	write := func(c fleet.Change) *attempt {
		tag++
		h.write(t.Context(), store, tag, c)
		return h.changes[tag]
	}
	for _, made := range []bool{false, true} {
		lost := 0
		for cut := -2; ; cut += step { // beyond its last byte nothing is cut
			key := fmt.Sprint(made, cut)
			change := create(key)
			if made {
				require.NoError(t, write(change).err)
				change = take(key, "a")
			}
			w.set(func(q *query) {
				switch {
				case !q.writes():
				case cut == -2:
					q.drop = true
				case cut < step-1:
					terminate(t, q.pid)
				default:
					q.reply = cut
				}
			})
			first := write(change)
			w.set(nil)
			again := write(change)
			require.NoError(t, again.err)
			require.NotNil(t, again.answer.Record, "it is there now, whoever made it")
			if cut < step-1 {
				require.True(t, again.answer.Done, "nothing had arrived")
			}
			if first.err == nil {
				require.True(t, first.answer.Done)
				break
			}
			lost++
		}
		require.Greater(t, lost, 100/step)
	}
	h.check(t)
}

// terminate ends a backend and waits for that. It is called by a wire, whose client hears of the
// end first: the test may be over then but for its cleanups, which wait for the wire.
func terminate(t *testing.T, pid uint32) {
	var ended bool
	require.NoError(t, admin.QueryRow(context.WithoutCancel(t.Context()), "select pg_terminate_backend($1, 5000)", int64(pid)).Scan(&ended))
	require.True(t, ended)
}

// settled waits until no backend has work left of clients that are gone.
func settled(t *testing.T) {
	t.Helper()
	for ask[int](t, "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid() and backend_type = 'client backend'") > 0 {
		require.NoError(t, t.Context().Err())
	}
}

// Random changes by several writers while connections break, answers are lost,
// backends are ended and calls run out of time.
func TestUnderFaultsTheHistoryIsStillOne(t *testing.T) {
	h, w := newHistory(t), newWire(t)
	w.set(func(q *query) {
		switch rand.IntN(14) {
		case 0:
			q.drop = true
		case 1:
			q.reply = rand.IntN(300)
		case 2:
			if rand.IntN(4) == 0 {
				terminate(t, q.pid)
			}
		}
	})
	var writers sync.WaitGroup
	for n := range int64(4) {
		store := newStore(t, connect(t, w.dsn()), h.table)
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 3))
			for i := range int64(50 * more()) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(20))*time.Millisecond)
				if rng.IntN(3) > 0 {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
				}
				h.write(ctx, store, n*1_000_000+i+1, fleettest.RandomChange(rng, i))
				cancel()
			}
		})
	}
	writers.Wait()
	w.close()
	settled(t)
	made, unknown := h.check(t)
	t.Logf("%d made, %d unknown, of %d", made, unknown, len(h.changes))
	require.Positive(t, made)
	require.Positive(t, unknown)
}

// A lock that another session has on the table, or on the row, holds a call up
// for its time at most, here and at the server.
func TestALockOfAnotherSessionHoldsACallUpForItsTimeAtMost(t *testing.T) {
	table := newTable(t)
	pool := connect(t, server.DSN()+"&application_name="+table)
	store := newStore(t, pool, table)
	_, err := store.Write(t.Context(), create("k"))
	require.NoError(t, err)
	for _, lock := range []string{"lock table " + table + " in access exclusive mode", "select * from " + table + " for update"} {
		tx, err := admin.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), lock)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err = store.Write(ctx, take("k", "a"))
		require.Error(t, err)
		cancel()
		var wrong *fleet.ConfigError
		require.False(t, errors.As(err, &wrong), "it passes")
		for ask[int](t, "select count(*) from pg_locks join pg_stat_activity using (pid) where not granted and application_name = '"+table+"'") > 0 {
			require.NoError(t, t.Context().Err())
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
	answer, err := store.Write(t.Context(), take("k", "a"))
	require.NoError(t, err)
	require.True(t, answer.Done, "what was given up came to nothing")
}

// Defaults of the role, the database or the server are not the store's.
func TestSettingsOfTheRoleAreNotTheStores(t *testing.T) {
	table := newTable(t)
	sql(t, fmt.Sprintf(`create table %[1]s_saw (what text);
		create function %[1]s_saw() returns trigger language plpgsql as $$ begin
			insert into %[1]s_saw select concat_ws(' ', current_setting('transaction_isolation'), current_setting('synchronous_commit'),
				(current_setting('statement_timeout')::interval between '1 s' and '18 s')::text);
			return null; end $$;
		create trigger saw after insert or update on %[1]s for each row execute function %[1]s_saw()`, table))
	pool := connect(t, server.DSN()+"&options=-c%20statement_timeout%3D1h%20-c%20synchronous_commit%3Doff%20-c%20default_transaction_isolation%3Dserializable")
	store := newStore(t, pool, table)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []fleet.Change{create("k"), take("k", "a")} {
		answer, err := store.Write(ctx, c)
		require.NoError(t, err)
		require.True(t, answer.Done)
	}
	require.Equal(t, "read committed on true", ask[string](t, "select distinct what from "+table+"_saw"))
	var left string
	require.NoError(t, pool.QueryRow(t.Context(), "select concat_ws(' ', current_setting('statement_timeout'), "+
		"current_setting('synchronous_commit'), current_setting('transaction_isolation'))").Scan(&left))
	require.Equal(t, "1h off serializable", left, "nothing is left in the session")
}

// A process that stands still between its messages holds nobody up.
func TestAProcessThatStandsStillHoldsNobodyUp(t *testing.T) {
	table := newTable(t)
	w := newWire(t)
	still, other := newStore(t, connect(t, w.dsn()), table), newStore(t, connect(t, server.DSN()), table)
	_, err := other.Write(t.Context(), create("k"))
	require.NoError(t, err)
	standing, on := make(chan struct{}), make(chan struct{})
	w.set(func(q *query) {
		if q.writes() {
			close(standing)
			<-on
			w.set(nil)
		}
	})
	written := make(chan fleet.Answer, 1)
	go func() {
		answer, err := still.Write(context.WithoutCancel(t.Context()), take("k", "a"))
		if err != nil {
			panic(err)
		}
		written <- answer
	}()
	<-standing
	for i := range 3 {
		answer, err := other.Write(t.Context(), fleet.Change{Key: "k", Set: map[string]int64{"x": int64(i)}})
		require.NoError(t, err)
		require.True(t, answer.Done)
	}
	close(on)
	require.EqualValues(t, 2, (<-written).Record.Numbers["x"], "it saw what the others had written")
}

// Whoever changes a row by hand is a writer like any other; what is no record
// is refused by name.
func TestARowThatIsChangedByHand(t *testing.T) {
	table := newTable(t)
	w := newWire(t)
	store := newStore(t, connect(t, w.dsn()), table)
	_, err := store.Write(t.Context(), create("k"))
	require.NoError(t, err)
	by := sync.OnceFunc(func() {
		sql(t, "update "+table+` set record = ' { "numbers" : {"used": 1, "limit": 7} } '`)
	})
	w.set(func(q *query) {
		if q.writes() {
			by() // after the row was read
		}
	})
	answer, err := store.Write(t.Context(), take("k", "a"))
	require.NoError(t, err)
	require.True(t, answer.Done)
	require.Equal(t, map[string]int64{"used": 3, "limit": 7}, answer.Record.Numbers)

	w.set(nil)
	for _, text := range []string{`{"numbers":{"used":1.5}}`, `{"owners":{"a":7}}`, `[]`, `{"numbers":{"used":99999999999999999999}}`} {
		sql(t, "update "+table+" set record = $1", text)
		_, err = store.Write(t.Context(), take("k", "a"))
		var wrong *fleet.ConfigError
		require.ErrorAs(t, err, &wrong, text)
		require.ErrorContains(t, err, `the row "k" of table `)
	}
	sql(t, "delete from "+table)
	answer, err = store.Write(t.Context(), create("k"))
	require.NoError(t, err)
	require.True(t, answer.Done)
	sql(t, fmt.Sprintf("create function %[1]s_no() returns trigger language plpgsql as $$ begin return null; end $$;"+
		"create trigger no before update on %[1]s for each row execute function %[1]s_no()", table))
	_, err = store.Write(t.Context(), take("k", "a"))
	require.ErrorContains(t, err, "a trigger or rule of table")
}

// What a synchronous standby does not have is not answered, nor is it when the
// write is sent again and its row is found as it should be: the end of a
// caller's context ends the wait for the standby, not the write. That the role's
// other commits wait for nothing does not matter.
func TestWhatASynchronousStandbyLacksCountsForNobody(t *testing.T) {
	table := newTable(t)
	store := newStore(t, connect(t, server.DSN()+"&options=-c%20synchronous_commit%3Doff"), table)
	write := func(within time.Duration, c fleet.Change) (fleet.Answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return store.Write(ctx, c)
	}
	_, err := write(time.Minute, create("k"))
	require.NoError(t, err)
	set := func(what string) {
		sql(t, "alter system "+what)
		sql(t, "select pg_reload_conf()")
	}
	set("set synchronous_standby_names = 'absent'")
	defer set("reset synchronous_standby_names")
	for err == nil { // until the server knows
		_, err = write(200*time.Millisecond, fleet.Change{Key: "other", Set: map[string]int64{"n": 1}})
	}
	refused := 0
	for refused < 2 { // after its row can be seen
		there := ask[int](t, "select count(*) from "+table+" where record::text like '%\"a\"%'")
		answer, err := write(200*time.Millisecond, take("k", "a"))
		require.Error(t, err, "%+v", answer)
		refused += there
	}
	set("reset synchronous_standby_names")
	answer, err := write(time.Minute, take("k", "a"))
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.Record.Owners["a"].Seq, "it was done once")
	require.EqualValues(t, 2, answer.Record.Numbers["used"])
}

// A Store may be shared by Leases and Limiters that come and go.
func TestOneStoreForAllOfAProcess(t *testing.T) {
	store := newStore(t, connect(t, server.DSN()), newTable(t))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			leases, err := fleet.New(t.Context(), store, fleet.Config{Budget: "b", Limit: 10, Logger: quiet})
			if err != nil {
				t.Error(err)
				return
			}
			limiter, err := fleet.NewLimiter(t.Context(), store, fleet.LimiterConfig{Budget: "b", Logger: quiet})
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(limiter.Close(t.Context()), leases.Close(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
