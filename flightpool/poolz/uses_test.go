package poolz

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
	"github.com/flightpool/flightpool/testserver"
)

func TestWhatIsOpenedWhileOthersAreForgottenStays(t *testing.T) {
	l := latestUses{byID: map[uint64]*borrowing{}}
	use := func(id uint64, by string) { l.set(id, func(b *borrowing) { b.borrower = by }) }
	for id := range uint64(70) {
		use(id, "one")
	}
	l.forgetClosed(3, func() map[uint64]bool { panic("there are few") })
	l.forgetClosed(2, func() map[uint64]bool {
		use(100, "late") // opened after the others were looked at
		return map[uint64]bool{7: true}
	})
	require.Equal(t, "late", l.of(100).borrower)
	require.Equal(t, "one", l.of(7).borrower)
	require.Empty(t, l.of(8).borrower)
	require.Len(t, l.byID, 2)
}

func TestAStatementThatComesAgainIsNotReadAgain(t *testing.T) {
	s := newSummaries()
	told := func(sql string) string { return s.of(flightpool.QueryStartData{SQL: sql}) }
	require.Equal(t, "SELECT t", told("SELECT * FROM t"))
	require.Equal(t, "SELECT u", told("SELECT * FROM u"))
	require.Equal(t, "SELECT t", told("SELECT * FROM t"))
	again := testing.AllocsPerRun(100, func() { told("SELECT * FROM t") })
	require.Zero(t, again)
	require.Equal(t, "INSERT t", told("INSERT INTO t VALUES ('"+strings.Repeat("x", maxText)+"')"))
	require.Len(t, s.byHash, 2, "long ones are not kept")
	for i := range 3 * maxSummaries {
		told("SELECT " + strconv.Itoa(i))
	}
	require.LessOrEqual(t, len(s.byHash), maxSummaries)
}

// registryOf is a registry with a server of that name, which is in memory.
func registryOf(t *testing.T, srv *testserver.Server, tracer func(server, user string) any) *registry.Registry {
	reg, err := registry.NewWith(registry.Config{Tracer: tracer, Kinds: []registry.Kind{{Name: "memory", Flight: func(ctx context.Context, r registry.ConnectParams) (*flightpool.FlightSQLPool, error) {
		r.Config.Dialer = srv.Dial
		return flightpool.New(ctx, "grpc://server:1", r.Config)
	}}}})
	require.NoError(t, err)
	require.NoError(t, reg.Register(t.Context(), registry.ServerDefinition{
		Name: "warehouse", Kind: "memory", MaxSize: 8, MinIdle: -1, WarmupConnections: -1, HealthCheck: registry.HealthCheck{Disabled: true},
		Users: map[string]registry.UserMapping{"ana": {}, "bo": {}},
	}))
	return reg
}

func TestCallsOfARegistryAreSeenByServerAndUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := testserver.Start(testserver.Options{Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, srv.Close()) }()
		page := New(Config{})
		defer page.Close()
		reg := registryOf(t, srv, page.RegistryTracer("all"))
		defer func() { require.NoError(t, reg.Close(t.Context())) }()
		page.AddRegistry("all", reg)
		r := &rig{T: t, page: page, srv: srv}
		after(2 * time.Second)

		old, err := reg.AcquireSession(t.Context(), "warehouse", "bo")
		require.NoError(t, err)
		defer func() { _ = old.Close() }() // also after a failure
		_, err = old.Update(t.Context(), "CREATE TABLE t (a VARCHAR)")
		require.NoError(t, err)
		def, err := reg.Definition("warehouse")
		require.NoError(t, err)
		def.QueryTimeout = time.Hour // new connections take the place of the old
		require.NoError(t, reg.Update(t.Context(), def))
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(3 * time.Second)})
		require.NoError(t, reg.QueryRow(t.Context(), "warehouse", "bo", "SELECT 'm4rker'").Scan(new(any)))
		srv.Faults().Set(testserver.Fault{On: testserver.OnBatch, Times: 1, Do: testserver.Delay(2 * time.Hour)})
		require.Error(t, reg.QueryRow(t.Context(), "warehouse", "ana", "SELECT 1").Scan(new(any)))

		st := r.told("?source=all/warehouse")
		require.True(t, st.Details.Traced)
		require.Equal(t, "all/warehouse", st.Slow[1].Source)
		require.Equal(t, "bo", st.Slow[1].User)
		require.Equal(t, "SELECT", st.Slow[1].Statement)
		require.InDelta(t, 3, float64(st.Slow[1].Took), 1e-3)
		require.Equal(t, "ana", st.Slow[0].User)
		rows := st.Details.Connections
		i := slices.IndexFunc(rows, func(c connectionState) bool { return c.State == inUse })
		require.Equal(t, []string{"bo", "AcquireSession", "Update", "CREATE t"}, []string{rows[i].User, rows[i].Borrower, rows[i].Op, rows[i].Statement})
		i = slices.IndexFunc(rows, func(c connectionState) bool { return c.User == "bo" && c.State == isIdle })
		require.Equal(t, []string{"", "Query", "SELECT"}, []string{rows[i].Borrower, rows[i].Op, rows[i].Statement})
		ids := map[uint64]bool{}
		for _, c := range rows {
			ids[c.ID] = true
		}
		require.Len(t, ids, len(rows), "one of the old pool is not one of the new")
	})
}

func TestACallThatFailsIsAnEventOfItsServerAndUser(t *testing.T) {
	page := New(Config{})
	defer page.Close()
	w := page.RegistryTracer("all")("warehouse", "ana").(flightpool.QueryTracer) //nolint:forcetypeassert // else the test fails
	ctx := w.TraceQueryStart(t.Context(), flightpool.QueryStartData{Op: "Query"})
	w.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Err: context.DeadlineExceeded}})
	w.TraceQueryEnd(ctx, flightpool.QueryEndData{Outcome: flightpool.Outcome{Err: &flightpool.Error{Fault: flightpool.FaultTransport}}})
	events := page.state("", false, 0).Events
	require.Len(t, events, 1)
	require.Equal(t, "all/warehouse", events[0].Source)
	require.Contains(t, events[0].Text, "a call of ana failed: ")
}

// borrowIt is the function that a stack begins with.
func (r *rig) borrowIt() *flightpool.SessionHandle { return r.session() }

func TestWhereAConnectionWasBorrowedIsShown(t *testing.T) {
	inBubble(t, Config{}, flightpool.Config{MaxSize: 2, MinIdle: 2, LeakAfter: time.Minute}, func(r *rig) {
		require.NoError(r, r.pool.WaitReady(r.Context(), 2))
		s := r.borrowIt()
		rows := r.told("").Details.Connections
		require.Equal(r, inUse, rows[0].State)
		require.Regexp(r, `^github\.com/flightpool/flightpool/flightpool/poolz\.\(\*rig\)\.session rig_test\.go:\d+$`, rows[0].Stack[0])
		require.Regexp(r, `\.borrowIt uses_test\.go:\d+$`, rows[0].Stack[1])
		for _, frame := range rows[0].Stack {
			require.NotRegexp(r, ` .*/`, frame, "no folder of the machine that built it")
		}
		require.Equal(r, isIdle, rows[1].State)
		require.Empty(r, rows[1].Stack)
		require.NoError(r, s.Close())
		require.Empty(r, r.told("").Details.Connections[0].Stack, "the loan is over")
	})
	inBubble(t, Config{}, flightpool.Config{MaxSize: 1}, func(r *rig) {
		s := r.borrowIt()
		require.Empty(r, r.told("").Details.Connections[0].Stack)
		require.NoError(r, s.Close())
	})
}

// setBack is a time as it was read before somebody set the clock back by an hour: its wall
// clock is ahead of what it measures.
func setBack(t time.Time) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += 3600 << 30 //nolint:gosec // the wall seconds of package time
	return t
}

func TestAgesDoNotFollowAClockThatIsSet(t *testing.T) {
	now := time.Now()
	opened := setBack(now.Add(-time.Minute))
	require.Equal(t, 59*time.Minute, opened.Round(0).Sub(now.Round(0)), "the test sets the clock")
	text, err := json.Marshal(connectionState{Opened: onClock(now, opened)})
	require.NoError(t, err)
	var told connectionState
	require.NoError(t, json.Unmarshal(text, &told))
	require.Equal(t, time.Minute, now.Round(0).Sub(told.Opened))
}
