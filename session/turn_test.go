package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// What is left to its end may take for ever: those who come behind it wait no longer than their own time, and what they have
// waited counts against that.
func TestTheTimeOfACallHoldsBehindWhatIsLeftToItsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		policy, call time.Duration
		then         func(s *SessionHandle, opts QueryOptions) error
	}{
		"its own": {0, 2 * time.Second, func(s *SessionHandle, opts QueryOptions) error {
			_, err := s.QueryWithOptions(context.Background(), "SELECT 1", opts)
			return err
		}},
		"the pool's": {2 * time.Second, 0, func(s *SessionHandle, opts QueryOptions) error {
			_, err := s.UpdateWithOptions(context.Background(), "INSERT 1", opts)
			return err
		}},
		"its own before the pool's": {time.Hour, 2 * time.Second, func(s *SessionHandle, opts QueryOptions) error {
			_, err := s.PrepareQueryWithOptions(context.Background(), "SELECT 1", opts)
			return err
		}},
		"that of a begin": {2 * time.Second, 0, func(s *SessionHandle, _ QueryOptions) error {
			return s.BeginTransaction(context.Background())
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			ctx, stop := context.WithTimeout(t.Context(), 20*ms)
			defer stop()
			_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1h", QueryOptions{NoCancel: true})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			r.policy.QueryTimeout = tc.policy
			start := time.Now()
			err = tc.then(r.handle, QueryOptions{Timeout: tc.call})
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.True(t, backend.SafeToRetry(err), name)
			require.Equal(t, 2*time.Second, time.Since(start), name)
			time.Sleep(time.Hour)
			must(t, r.handle.Ping(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// The time that a call has waited for its turn is not given to it once more.
func TestTheWaitForItsTurnCountsAgainstTheTimeOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		_, err := r.handle.UpdateWithOptions(ctx, "UPDATE SLOW 1s", QueryOptions{NoCancel: true})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		_, err = r.handle.QueryWithOptions(t.Context(), "SELECT SLOW 1h", QueryOptions{Timeout: 2 * time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(start))
		must(t, r.handle.Close())
		time.Sleep(time.Minute)
		r.reused()
	})
}

// A Rollback has the time of a call, but CloseTimeout at least, and without one all that it takes.
func TestARollbackHasCloseTimeoutAtLeast(t *testing.T) {
	for name, tc := range map[string]struct{ policy, takes, told time.Duration }{
		"no time is set":        {0, time.Hour, 0},
		"none is to be":         {-1, time.Hour, 0},
		"a short one":           {100 * ms, 4 * time.Second, 0},
		"a short one, too late": {100 * ms, 6 * time.Second, 5 * time.Second},
		"a long one":            {time.Minute, 50 * time.Second, 0},
		"a long one, too late":  {time.Minute, time.Hour, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{work: map[string]time.Duration{"Rollback": tc.takes}})
			must(t, r.handle.BeginTransaction(t.Context()))
			r.policy.QueryTimeout = tc.policy
			start := time.Now()
			err := r.handle.Rollback(t.Context())
			if tc.told == 0 {
				require.NoError(t, err, name)
				require.Equal(t, tc.takes, time.Since(start), name)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.Equal(t, tc.told, time.Since(start), name)
			}
			time.Sleep(2 * time.Hour)
			_ = r.handle.Close()
		})
	}
}

// A rollback that nobody repeats goes out however short the time of a call is: no later statement of the handle may run in
// the transaction.
func TestTheTimeOfACallEndsNoRollbackOfWithTransaction(t *testing.T) {
	for name, leaves := range map[string]bool{"its caller waits": false, "its caller leaves": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{work: map[string]time.Duration{"Rollback": time.Second}})
			r.policy.QueryTimeout = 100 * ms
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			mine := errors.New("mine")
			err := r.handle.WithTransaction(ctx, func(context.Context, *SessionHandle) error {
				if leaves {
					stop()
				}
				return mine
			})
			require.ErrorIs(t, err, mine, name)
			require.NotErrorIs(t, err, context.DeadlineExceeded, name)
			time.Sleep(time.Minute)
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Commit(t.Context()))
			must(t, r.handle.Close())
			r.reused()
		})
	}
}

// Its time is that of all that a call waits for: behind what is left to its end comes a rollback that nobody waits for.
func TestACallWaitsOnceForAllThatComesBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{work: map[string]time.Duration{"Rollback": 3 * time.Second}})
		ctx, stop := context.WithTimeout(t.Context(), 20*ms)
		defer stop()
		err := r.handle.WithTransaction(ctx, func(ctx context.Context, s *SessionHandle) error {
			_, err := s.UpdateWithOptions(ctx, "INSERT SLOW 1500ms", QueryOptions{NoCancel: true})
			return err
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		_, err = r.handle.UpdateWithOptions(t.Context(), "INSERT 2", QueryOptions{Timeout: 2 * time.Second})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(start))
		must(t, r.handle.Close())
		time.Sleep(time.Minute)
		require.NotContains(t, r.conn.Log(), "INSERT 2")
		r.reused()
	})
}

// A hook of the owner's that keeps the connection of a lost session keeps later calls for CloseTimeout at most, and then they
// are told so: nothing of them is sent.
func TestACallWaitsForTheReturnOfALostConnectionForCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{fail: map[string]error{"INSERT 1": transportError()}})
		hold := make(chan struct{})
		s := New(r.conn, r.policy, func(reason error) {
			<-hold
			r.returned(reason)
		})
		go func() { _, _ = s.Update(t.Context(), "INSERT 1") }()
		synctest.Wait()
		start := time.Now()
		_, err := s.Update(t.Context(), "INSERT 2")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.True(t, backend.SafeToRetry(err))
		require.Equal(t, r.policy.closeTimeout(), time.Since(start))
		require.Equal(t, []string{"INSERT 1"}, r.conn.Log())
		close(hold)
		synctest.Wait()
		_ = r.discarded()
		must(t, s.Close())
	})
}

// What a call that cannot begin yet waits for, and for how long, is what the handle does.
func TestWhatACallWaitsForIsWhatItsHandleDoes(t *testing.T) {
	ended, rolledBack := make(chan struct{}), make(chan struct{})
	lost := errors.New("lost")
	for name, tc := range map[string]struct {
		state            state
		lost, undo       bool
		returned, behind bool // its connection was, or is being; a rollback goes on
		wait             <-chan struct{}
		err              error
	}{
		"nothing is under way":                           {},
		"a call":                                         {state: busy, err: backend.ErrBusy},
		"one is being ended":                             {state: ending, wait: ended},
		"one is being ended, which has lost":             {state: ending, lost: true, wait: ended},
		"the connection is being given back":             {state: ending, lost: true, returned: true, wait: ended, err: lost},
		"it was given back":                              {lost: true, returned: true, err: lost},
		"the session is lost":                            {lost: true, err: lost},
		"it is closed":                                   {state: closed, returned: true, err: backend.ErrHandleClosed},
		"it is made clean":                               {state: cleaning, err: backend.ErrHandleClosed},
		"a rollback that nobody waits for":               {behind: true, wait: rolledBack},
		"a rollback that nobody waits for, its own call": {behind: true, undo: true},
	} {
		r := newRig(t, &fakeConn{})
		s := r.handle
		s.mu.state = tc.state
		if tc.state == ending {
			s.mu.ended = ended
		}
		if tc.lost {
			s.mu.lost = lost
		}
		if tc.returned {
			s.mu.releaseConn = nil
		}
		if tc.behind {
			s.mu.rollbackDone = rolledBack
		}
		wait, err := s.tryBegin(s.newCall(t.Context(), "Query", QueryOptions{}, cancelWhenLeft), tc.undo)
		require.Equal(t, tc.wait, wait, name)
		require.ErrorIs(t, err, tc.err, name)
		require.Equal(t, tc.err == nil && tc.wait == nil, s.mu.call != nil, name)
	}
}
