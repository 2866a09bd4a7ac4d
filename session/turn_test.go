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
