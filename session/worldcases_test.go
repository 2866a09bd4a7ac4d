package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

var everyReset = []SessionReset{ResetAuto, ResetSQL("RESET ALL"), ResetDiscard, ResetNone}

// tripOf is the number of the first round trip of a log that has the text.
func tripOf(t *testing.T, log []string, text string) int {
	t.Helper()
	at := slices.IndexFunc(log, func(trip string) bool { return strings.Contains(trip, text) })
	require.GreaterOrEqual(t, at, 0, "%q in %q", text, log)
	return at + 1
}

// playOut performs a program with faults from a round trip on, by its text, and
// fails if anything that was said is not so.
func playOut(t *testing.T, sc scene, steps []step, from string, faults ...worldFault) *play {
	t.Helper()
	sc.program = "a case: " + t.Name()
	programs[sc.program] = steps
	defer delete(programs, sc.program)
	whole, _ := sc.perform(t)
	report(t, sc, whole)
	if len(faults) == 0 {
		return whole
	}
	sc.faults = make(map[int]worldFault)
	at := tripOf(t, whole.w.log, from)
	for i, f := range faults {
		sc.faults[at+i] = f
	}
	p, _ := sc.perform(t)
	report(t, sc, p)
	return p
}

// The caller has not asked for the move, whatever is done for the next borrower:
// its own statements go where it believes to be.
func TestABulkLoadMovesTheSessionUnderNoMode(t *testing.T) {
	unheard := worldFault{"limit", true}
	for _, reset := range everyReset {
		for _, server := range []string{"moving", "moving, pathless"} {
			sc := scene{server: server, reset: reset}
			playOut(t, sc, []step{bulk, insertOne}, "INSERT INTO bulk", unheard)
			playOut(t, sc, []step{begins, bulk, insertOne, commits, insertOne}, "")
			if reset.mode != resetNone { // which leaves the caller's own move
				playOut(t, sc, []step{move("USE other", "other.main"), bulk, insertOne}, "INSERT INTO bulk", unheard)
			}
			// A later move of the caller's own is not taken back.
			playOut(t, sc, []step{bulk, setOption("catalog", "far"), insertOne}, "INSERT INTO bulk", unheard)
			playOut(t, sc, []step{bulk}, "INSERT INTO bulk", unheard)
			if sc.single = reset.mode != resetSQL; sc.single { // whose statements put the place back here
				playOut(t, sc, []step{bulk}, "INSERT INTO bulk", unheard)
			}
		}
	}
}

// A server that has told where its sessions are can do so, though it refuses to.
func TestAServerThatTellsPlacesIsNotTakenForOneThatCannot(t *testing.T) {
	no := worldFault{"refused", false}
	for _, server := range []string{"moving", "moving, pathless"} {
		sc := scene{server: server, warm: true}
		p := playOut(t, sc, []step{bulk, insertOne}, "current_schema", no, no)
		require.Error(t, p.loose[0].err)
		require.True(t, backend.SafeToRetry(p.loose[0].err), "it was not sent: %v", p.loose[0].err)
		require.NoError(t, p.loose[1].err)
		playOut(t, sc, []step{setOption("catalog", "far"), bulk, insertOne}, "INSERT INTO bulk", worldFault{"limit", true}, no, no, no)
	}
}

func TestTypesOfPivotsAreLookedForWhereTheyCanBe(t *testing.T) {
	no := worldFault{"refused", false}
	p := playOut(t, scene{server: "plain", warm: true}, []step{query("PIVOT t ON a USING sum(b)", 1)}, "duckdb_types", no, no)
	require.Error(t, p.returned[0])
}

// A status that speaks of a state does not say which.
func TestARollbackIsNotDoneBecauseOfTheStatusOfItsRefusal(t *testing.T) {
	no := worldFault{"aborted", false}
	for server := range servers {
		sc := scene{server: server}
		p := playOut(t, sc, []step{begins, insertOne, rollsBack, insertOne}, "Rollback", no, no)
		require.Error(t, p.returned[0], server)
		playOut(t, sc, []step{begins, insertOne}, "Rollback", no, no)
	}
}

// There are servers that change a setting before they refuse its value.
func TestARefusedSettingIsPutBack(t *testing.T) {
	changed := worldFault{"refused", true}
	for _, single := range []bool{false, true} {
		sc := scene{server: "plain", single: single}
		p := playOut(t, sc, []step{update("SET threads = 1")}, "SET threads", changed)
		require.NoError(t, p.returned[0])
		p = playOut(t, sc, []step{update("SET threads = 1")}, "SET threads", worldFault{"refused", false})
		require.NoError(t, p.returned[0])
		require.NotContains(t, p.w.log, "|SET threads = '3'", "it was as it had been")
	}
	// One that nobody could read is none: a mistake in writing costs nothing.
	p := playOut(t, scene{server: "blind"}, []step{update("SET thread = 1")}, "SET thread", worldFault{"refused", false})
	require.NoError(t, p.returned[0])
	p = playOut(t, scene{server: "plain"}, []step{update("SET enable_profiling = 1")}, "SET enable", worldFault{"refused", false})
	require.Error(t, p.returned[0], "it has changed others")
}

// One refusal of RESET SESSION is not taken for the word of a server without it.
func TestAFailedResetLeavesNoValueOfTheSessionsOwn(t *testing.T) {
	for _, sql := range []string{"SET SESSION threads = 1", "SET threads = 1; SET SESSION threads = 3", "RESET SESSION threads"} {
		p := playOut(t, scene{server: "plain"}, []step{update(sql), update("SET SESSION threads = 3")}, "RESET SESSION threads", worldFault{"refused", false})
		if sql != "RESET SESSION threads" { // which is the caller's own there
			require.NoError(t, p.returned[0])
		}
	}
}

func TestCloseTakesItsTimeoutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		defer stop()
		w := newWorld()
		var reason error
		s := New(w, &Policy{OwnerContext: life}, func(err error) { reason = err })
		must(t, s.BeginTransaction(t.Context()))
		_, err := s.Update(t.Context(), "SET threads = 1")
		must(t, err)
		w.slow = func() (time.Duration, bool) { return 3 * time.Second, true }
		start := time.Now()
		require.Error(t, s.Close())
		require.Equal(t, 5*time.Second, time.Since(start))
		require.ErrorContains(t, reason, "could not be made clean")
		synctest.Wait()
	})
}

// The proof behind a rollback may be asked for three times. Whoever waits for it waits no longer for that.
func TestALateProofBehindARollbackIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(ctx context.Context, s *SessionHandle) error
		ends time.Duration // of the caller's context
		took time.Duration // by the caller
		all  time.Duration // until nothing is at work in the background, Close included
	}{
		"Close":              {func(_ context.Context, s *SessionHandle) error { return s.Close() }, time.Hour, 5 * time.Second, 5 * time.Second},
		"Rollback":           {func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) }, time.Second, time.Second, 11 * time.Second},
		"RollbackOpen":       {func(ctx context.Context, s *SessionHandle) error { return s.RollbackOpen(ctx) }, time.Hour, 5 * time.Second, 15 * time.Second},
		"RollbackOpen, left": {func(ctx context.Context, s *SessionHandle) error { return s.RollbackOpen(ctx) }, time.Second, time.Second, 11 * time.Second},
		"CloseWithin":        {func(ctx context.Context, s *SessionHandle) error { s.CloseWithin(ctx); return errors.New("not told") }, time.Second, time.Second, 5 * time.Second},
	} {
		for _, each := range []time.Duration{1700 * ms, maxProofAge - 1, maxProofAge, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				life, stop := context.WithCancel(t.Context())
				defer stop()
				w := newWorld()
				w.forgives = true
				var returned time.Time
				s := New(w, &Policy{OwnerContext: life}, func(error) { returned = time.Now() })
				must(t, s.BeginTransaction(t.Context()))
				_, err := s.Update(t.Context(), "INSERT INTO t VALUES (1)")
				must(t, err)
				w.slow = func() (time.Duration, bool) { return each, true }
				ctx, end := context.WithTimeout(t.Context(), tc.ends)
				defer end()
				start := time.Now()
				err = tc.end(ctx, s)
				took := time.Since(start)
				require.LessOrEqual(t, took, tc.took, "%s, %s each", name, each)
				require.True(t, err != nil || each < maxProofAge-1, "%s, %s each", name, each)
				_ = s.Close()
				time.Sleep(30 * time.Second)
				synctest.Wait()
				require.False(t, returned.IsZero(), "%s, %s each", name, each)
				require.LessOrEqual(t, returned.Sub(start), tc.all, "%s, %s each", name, each)
			})
		}
	}
}
