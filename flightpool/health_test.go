package flightpool

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

func down() error { return &Error{Fault: FaultTransport, Err: errors.New("connection refused")} }

func TestHealthTurnsAfterItsThresholdsAndLetsOneTrialThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []error
		h := health{failures: 3, recoveries: 2, onUnhealthy: func() {}, onChange: func(err error) { changes = append(changes, err) }}
		fails := func() {
			time.Sleep(ms)
			h.failed(down(), ms/2)
		}
		fails()
		h.failed(&Error{Fault: FaultAuth, Err: errors.New("no")}, 0) // the server is well
		fails()
		h.succeeded() // the row is broken
		start := time.Now().Add(ms)
		fails()
		fails()
		for range 10 {
			h.failed(down(), time.Second) // began before the last one ended
		}
		require.NoError(t, h.admits())
		fails()
		require.Len(t, changes, 1)
		err := h.admits()
		require.ErrorIs(t, err, ErrUnhealthy)
		require.ErrorContains(t, err, "connection refused")
		var u *UnhealthyError
		require.ErrorAs(t, err, &u)
		require.Equal(t, start, u.Since)
		time.Sleep(firstPause)
		require.NoError(t, h.admits(), "the trial")
		require.ErrorIs(t, h.admits(), ErrUnhealthy, "one at a time")
		time.Sleep(2 * firstPause)
		require.NoError(t, h.admits())
		h.succeeded()
		require.Error(t, h.admits())
		h.succeeded()
		require.NoError(t, h.admits())
		require.Equal(t, 2, len(changes))
		require.NoError(t, changes[1])
		off := health{failures: -1}
		for range 10 {
			time.Sleep(ms)
			off.failed(down(), 0)
		}
		require.NoError(t, off.admits())
	})
}

// A hook that takes long is not overtaken by the next turn.
func TestTurnsOfHealthAreToldOneAfterTheOther(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var told []error
			failed, begun := 0, 0
			h := health{failures: 1, recoveries: 1, onUnhealthy: func() { failed++ }, onChange: func(err error) {
				begun++
				time.Sleep(time.Duration(10-begun) * time.Second) // the next would overtake
				told = append(told, err)
				end()
			}}
			for range 3 {
				go h.failed(down(), 0)
				time.Sleep(ms)
				go h.succeeded()
				time.Sleep(ms)
			}
			synctest.Wait()
			require.Equal(t, 3, failed, "who waits does not wait for the hook")
			time.Sleep(time.Minute)
			go h.failed(down(), 0) // has what is left told, if the hook ends its goroutines
			for range 10 {
				time.Sleep(time.Minute)
				go h.changes.Tell(h.onChange)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, told, 7, name)
			for i, err := range told {
				require.Equal(t, i%2 == 0, err != nil)
			}
		})
	}
}

func TestAServerThatIsDownFailsFastAndIsUsedAgainWhenItIsBack(t *testing.T) {
	var sick atomic.Bool
	var turns atomic.Int32
	cfg := Config{MaxSize: 2, Hooks: Hooks{Health: func(error) { turns.Add(1) }}}
	inBubble(t, testserver.Strict(), cfg, func(r *rig) {
		sick.Store(true)
		fault := r.srv.Faults().Set(testserver.Fault{On: testserver.OnConnect, Do: testserver.Kill()})
		r.srv.Faults().KillConns()
		synctest.Wait()
		_, err := r.pool.Query(r.Context(), "SELECT 1")
		require.Error(r, err)
		time.Sleep(7 * time.Second) // the refiller tries to keep one ready, and finds out
		require.NotNil(r, r.pool.Stats().UnhealthyReason)
		start := time.Now()
		fast := 0
		for range 10 {
			if _, err = r.pool.Query(r.Context(), "SELECT 1"); errors.Is(err, ErrUnhealthy) {
				fast++
			}
		}
		require.GreaterOrEqual(r, fast, 7, "a trial takes up to a second, so that another may be due")
		require.Less(r, time.Since(start), 5*time.Second)
		fault.Clear()
		time.Sleep(2 * time.Second)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		time.Sleep(2 * time.Minute) // checks of idle connections count as answers
		require.Nil(r, r.pool.Stats().UnhealthyReason)
		require.EqualValues(r, 2, turns.Load())
	})
}

func TestKindsOfHealthCheckFindWhatTheyAreFor(t *testing.T) {
	for kind, evictedIsSeen := range map[HealthKind]bool{Ping: false, Query: false, FullValidate: true} {
		profile := testserver.GizmoSQL()
		cfg := Config{MaxSize: 1, HealthCheck: HealthCheck{Kind: kind, ValidateOnAcquire: true, IdleBeforeCheck: -1}, Auth: BasicAuth("me", "x")}
		inBubble(t, profile, cfg, func(r *rig) {
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			checks := r.pool.Stats().Checks
			require.Positive(r, checks)
			r.srv.Faults().EvictSessions()
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			require.Equal(r, evictedIsSeen, r.pool.Stats().CheckFailures > 0, "kind %d", kind)
		})
	}
}

// Each check would close the connection, and the next would be opened in vain.
func TestAHealthCheckThatTheServerRefusesIsToldAtTheOpen(t *testing.T) {
	refusal := testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 2", Do: testserver.Fail(codes.InvalidArgument, "no such table")}
	for kind, told := range map[HealthKind]bool{Ping: false, Query: true, FullValidate: true} {
		cfg := Config{MaxSize: 1, MinIdle: -1, HealthCheck: HealthCheck{Kind: kind, SQL: "SELECT 2", ValidateOnAcquire: true, IdleBeforeCheck: -1}}
		inBubble(t, testserver.Strict(), cfg, func(r *rig) {
			r.srv.Faults().Set(refusal)
			for range 3 {
				if !told {
					require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
					r.pool.Reset()
					continue
				}
				_, err := r.pool.Query(r.Context(), "SELECT 1")
				require.Error(r, err, "kind %d", kind)
				require.ErrorContains(r, err, "HealthCheck.SQL: ")
				require.ErrorContains(r, err, "no such table")
				require.Equal(r, FaultStatement, backend.FaultIn(err))
				require.True(r, SafeToRetry(err))
				require.Nil(r, r.pool.Stats().UnhealthyReason)
			}
			r.srv.Faults().Clear()
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		})
	}
}

func TestAFailingHealthCheckReplacesTheConnection(t *testing.T) {
	inBubble(t, testserver.Strict(), Config{MaxSize: 1, HealthCheck: HealthCheck{Kind: Query, SQL: "SELECT 2"}}, func(r *rig) {
		require.Equal(r, 1, r.srv.Ledger().Snapshot().ConnsOpened)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT 2", Times: 1, Do: testserver.Fail(codes.Internal, "sick")})
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Equal(r, 2, r.srv.Ledger().Snapshot().ConnsOpened)
		require.EqualValues(r, 1, r.pool.Stats().CheckFailures)
	})
}

func TestOfAnUnhealthyServerCallsCountOnceAnOpenHasSucceeded(t *testing.T) {
	h := health{failures: 1, recoveries: 2, onUnhealthy: func() {}, onChange: func(error) {}}
	answers := func(n int) error {
		for range n {
			h.answered()
		}
		_, reason := h.unhealthySince()
		return reason
	}
	require.NoError(t, answers(3))
	h.failed(down(), 0)
	require.Error(t, answers(3), "they may come of connections of before the outage")
	h.succeeded()
	h.failed(down(), 0)
	require.Error(t, answers(3), "likewise")
	h.succeeded()
	require.Error(t, answers(0))
	require.NoError(t, answers(1))
	h.failed(down(), 0)
	require.Error(t, answers(3), "nothing is left of the earlier ones")
}
