package poolz

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/testserver"
)

func TestNumbersAreThoseOfStats(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 2}, func(r *rig) {
		require.NoError(r, r.query("SELECT 1"))
		require.Error(r, r.query("SELECT error('no')"))
		one, two := r.session(), r.session()
		waited := make(chan error)
		go func() { waited <- r.query("SELECT 2") }()
		synctest.Wait()
		is, s := r.told("").Sources[0], r.pool.Stats()
		require.Equal(r, 1, s.Waiting)
		require.Equal(r, map[string]int{"in_use": s.InUse, "on_loan": 2, "idle": 0, "opening": 0, "closing": 0, "total": 2, "waiting": 1, "max": 2, "min_idle": s.MinIdle}, is.Now)
		for name, want := range map[string]uint64{"calls": 3, "failures": 1, "sessions": 2, "acquired": s.Acquired, "opens": s.Opens, "cancels_confirmed": 0} {
			require.Equal(r, want, is.Counts[name], name)
		}
		require.Equal(r, "server:1", is.Target)
		require.True(r, is.Healthy)
		require.NoError(r, one.Close())
		require.NoError(r, <-waited)
		require.NoError(r, two.Close())
		synctest.Wait()
		d, now := r.told("").Details, r.pool.Stats()
		require.Equal(r, now.Times.Call.Count(), d.Times["call"].Count)
		require.InDelta(r, now.Times.Wait.Quantile(.99).Seconds(), float64(d.Times["wait"].P99), 1e-9)
	})
}

func TestHistoryHasWhatHappenedInEachStretch(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 1}, func(r *rig) {
		after(2 * time.Second)
		time.Sleep(time.Second / 2)
		s := r.session()
		time.AfterFunc(1300*time.Millisecond, func() { _ = s.Close() })
		require.NoError(r, r.query("SELECT 1"), "waits for 1.3 s")
		require.NoError(r, r.query("SELECT 1"))
		after(3 * time.Second)
		h := r.told("").Details.History
		last := func(column string, n int) []float32 { return h[column][len(h[column])-n:] }
		require.Equal(r, []float32{1, 0, 0, 0}, last("in_use", 4))
		require.Equal(r, []float32{1, 0, 0, 0}, last("waiting", 4))
		require.Equal(r, []float32{1, 1, 0, 0}, last("calls", 4))
		require.Equal(r, []float32{-1, -1}, last("wait_p99", 2), "nobody got one")
		require.InDelta(r, 1300, last("wait_p99", 4)[1], 1300./4)
		require.Less(r, last("wait_p50", 4)[0], float32(1), "the session has not waited")
		require.Len(r, h["calls"], len(h["idle"]))

		after(10 * time.Second)
		coarse := r.told("?range=1h").Details
		require.Equal(r, 10, coarse.Step)
		require.Equal(r, points{2}, coarse.History["calls"])
		require.Equal(r, points{1}, coarse.History["waiting"], "the highest")
	})
}

func marshal(t *testing.T, p points) string {
	text, err := json.Marshal(p)
	require.NoError(t, err)
	return string(text)
}

// A process that did not run for a while, and what has happened in that time.
func TestHistoryKeepsItsTimesOverAGap(t *testing.T) {
	h := newHistory()
	for _, at := range []struct{ second, inUse, calls int }{{0, 1, 0}, {1, 2, 10}, {5, 3, 18}, {5, 4, 18}, {6, 1, 19}, {2000, 5, 19 + 1994}} {
		h.add(&reading{now: map[string]int{"in_use": at.inUse}, counts: map[string]uint64{"calls": uint64(at.calls)}}, at.second)
		if at.second == 6 {
			require.Equal(t, "[2,null,null,null,3,4]", marshal(t, h.fine.byColumn()["in_use"]))
			require.Equal(t, "[10,2,2,2,2,1]", marshal(t, h.fine.byColumn()["calls"]))
			require.Empty(t, h.coarse.values)
		}
	}
	require.Len(t, h.fine.values, 300)
	require.Equal(t, points{1, 1}, h.fine.byColumn()["calls"][298:])
	require.Equal(t, "[null,5]", marshal(t, h.fine.byColumn()["in_use"][298:]))
	require.Len(t, h.coarse.values, 200)
	require.Equal(t, 2000, h.coarse.at)
}

func TestConnectionsSayWhoHasThemForWhat(t *testing.T) {
	cfg := Config{Borrower: func(ctx context.Context) string { name, _ := ctx.Value("who").(string); return name }}
	inBubble(t, cfg, flightpool.Config{MaxSize: 2, MaxLifetime: time.Hour}, func(r *rig) {
		_, err := r.pool.Update(r.Context(), "CREATE TABLE t (a VARCHAR)")
		require.NoError(r, err)
		_, err = r.pool.Update(r.Context(), "INSERT INTO t VALUES ('m4rker')")
		require.NoError(r, err)
		began := time.Now()
		s := r.session()
		res, err := s.Query(r.Context(), "SELECT * FROM t")
		require.NoError(r, err)
		after(10 * time.Second)
		ctx := context.WithValue(r.Context(), "who", "report 7") //nolint:staticcheck // a test's key
		require.NoError(r, r.pool.Ping(ctx))

		d := r.told("").Details
		require.True(r, d.Traced)
		require.Equal(r, 2, d.Open)
		is := d.Connections[0]
		require.Equal(r, inUse, is.State)
		require.Equal(r, "AcquireSession", is.Borrower)
		require.Equal(r, "Query", is.Op)
		require.Equal(r, "SELECT t", is.Statement)
		require.True(r, is.Running, "%+v", is)
		require.InDelta(r, 10, float64(is.Took), 1e-6)
		require.WithinDuration(r, began, is.Used, 10*time.Millisecond)
		require.NotNil(r, is.Expires)
		idle := d.Connections[1]
		require.Equal(r, isIdle, idle.State)
		require.Empty(r, idle.Borrower)
		require.Equal(r, "Ping", idle.Op)
		require.False(r, idle.Running)

		require.Len(r, r.told("?rows=1").Details.Connections, 1)
		other, err := r.pool.AcquireSession(ctx)
		require.NoError(r, err)
		require.Equal(r, "report 7", r.told("").Details.Connections[1].Borrower)
		require.NoError(r, other.Close())
		res.Release()
		after(time.Second)
		is = r.told("").Details.Connections[0]
		require.False(r, is.Running, "the session has the connection, and runs nothing")
		require.Equal(r, "AcquireSession", is.Borrower)
		require.NoError(r, s.Close())
		require.Equal(r, isIdle, r.told("").Details.Connections[0].State)
	})
}

func TestABorrowerThatPanicsLeavesNobodyElses(t *testing.T) {
	cfg := Config{Borrower: func(ctx context.Context) string { return ctx.Value("who").(string) }} //nolint:forcetypeassert // it is to panic
	inBubble(t, cfg, flightpool.Config{MaxSize: 1}, func(r *rig) {
		s, err := r.pool.AcquireSession(context.WithValue(r.Context(), "who", "ana")) //nolint:staticcheck // a test's key
		require.NoError(r, err)
		require.Equal(r, "ana", r.told("").Details.Connections[0].Borrower)
		require.NoError(r, s.Close())
		s = r.session()
		require.Equal(r, "AcquireSession", r.told("").Details.Connections[0].Borrower)
		require.NoError(r, s.Close())
	})
}

func TestNoTextIsKeptThatIsLong(t *testing.T) {
	page := New(Config{SlowerThan: 1, Texts: true, Borrower: func(context.Context) string { return strings.Repeat("b", 1<<20) }})
	defer page.Close()
	w := page.Tracer("main").(*watcher) //nolint:forcetypeassert // else the test fails
	long := strings.Repeat("x", 1<<20)
	ctx := w.TraceIngestStart(t.Context(), flightpool.IngestStartData{Table: long, ConnectionID: 1})
	w.TraceIngestEnd(ctx, flightpool.IngestEndData{Outcome: flightpool.Outcome{Took: time.Second}})
	ctx = w.TraceQueryStart(t.Context(), flightpool.QueryStartData{SQL: long, ConnectionID: 2})
	w.TraceAcquireEnd(ctx, flightpool.AcquireEndData{ConnectionID: 2})
	w.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Took: time.Second}})
	require.Len(t, page.mu.slow.values, 2)
	for _, c := range page.mu.slow.values {
		require.LessOrEqual(t, len(c.Statement), maxText+3)
	}
	require.LessOrEqual(t, len(page.latest.of(2).borrower), maxText+3)
}

func TestServersOfRegistriesAreApart(t *testing.T) {
	one, two := registry.New(), registry.New()
	page := New(Config{})
	defer page.Close()
	for reg, server := range map[*registry.Registry]string{one: "c", two: "b/c"} {
		defer func() { require.NoError(t, reg.Close(context.WithoutCancel(t.Context()))) }()
		require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{Name: server, Kind: "flightsql", Options: map[string]string{"host": "127.0.0.1", "port": "1"}}))
	}
	page.AddRegistry("a/b", one)
	page.AddRegistry("a", two)
	require.Len(t, (&rig{T: t, page: page}).told("").Sources, 2)
}

func TestSlowCallsAndEvents(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 1}, func(r *rig) {
		after(2 * time.Second)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(3 * time.Second)})
		require.NoError(r, r.query("SELECT 1"))
		require.NoError(r, r.query("SELECT 2"), "not slow")
		s := r.session()
		for range 3 {
			ctx, stop := context.WithTimeout(r.Context(), time.Millisecond)
			require.Error(r, r.pool.Ping(ctx))
			stop()
		}
		require.NoError(r, s.Close())
		after(2 * time.Second)
		st := r.told("")
		require.Len(r, st.Slow, 1)
		require.Equal(r, "SELECT", st.Slow[0].Statement)
		require.InDelta(r, 3, float64(st.Slow[0].Took), 1e-6)
		require.EqualValues(r, 1, st.Slow[0].Rows)
		i := slices.IndexFunc(st.Events, func(e event) bool { return e.Text == "a caller got no connection in time" })
		require.GreaterOrEqual(r, i, 0, "%+v", st.Events)
		require.EqualValues(r, 3, st.Events[i].Count)
		require.Equal(r, "main", st.Events[i].Source)
	})
}

func TestRingsKeepTheLatest(t *testing.T) {
	all := ring[int]{size: 3}
	require.Empty(t, all.last())
	for i := range 5 {
		all.add(i)
	}
	require.Equal(t, []int{4, 3, 2}, all.last())
}

func TestServersUsersAndBudgets(t *testing.T) {
	server, err := testserver.Start(testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	address, err := url.Parse(server.URI())
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	reg := registry.New()
	defer func() { require.NoError(t, reg.Close(ctx)) }()
	require.NoError(t, reg.Register(ctx, registry.ServerDefinition{
		Name: "warehouse", Kind: "flightsql", Options: map[string]string{"host": address.Hostname(), "port": address.Port()},
		Users: map[string]registry.UserMapping{"ana": {User: "remote-m4rker", Password: "m4rker"}},
	}))
	page := New(Config{})
	defer page.Close()
	page.AddRegistry("all", reg)
	leases := lease.NewLeases("dsql", 7)
	defer func() { require.NoError(t, leases.Close(ctx)) }()
	release, err := leases.Acquire(ctx)
	require.NoError(t, err)
	defer release()
	page.AddBudget("dsql", leases, nil)
	require.NoError(t, reg.QueryRow(ctx, "warehouse", "ana", "SELECT 7").Scan(new(int64)))

	r := &rig{T: t, page: page}
	st := r.told("?source=all/warehouse")
	require.Len(t, st.Sources, 1)
	require.Equal(t, "all/warehouse", st.Sources[0].Name)
	require.Equal(t, "flightsql", st.Sources[0].Kind)
	require.EqualValues(t, 1, st.Sources[0].Counts["acquired"])
	require.Len(t, st.Details.Users, 1)
	require.Equal(t, "ana", st.Details.Users[0].User)
	require.Positive(t, st.Details.Users[0].Now["total"])
	require.False(t, st.Details.Traced)
	require.Equal(t, "ana", st.Details.Connections[0].User)
	require.Equal(t, "leases", st.Budgets[0].Kind)
	require.Equal(t, 7, st.Budgets[0].Now["limit"])
	require.Equal(t, 1, st.Budgets[0].Now["in_use"])
	require.NotContains(t, get(t, page, "/state.json").Body.String(), "m4rker")
	page.Remove("all")
	page.Remove("dsql")
	require.Empty(t, r.told("").Sources)
	require.Empty(t, r.told("").Budgets)
	require.Nil(t, r.told("").Details)
}
