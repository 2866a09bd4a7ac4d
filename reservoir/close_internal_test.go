package reservoir

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNoTimerRunsAfterCloseWhateverComesLate(t *testing.T) {
	for name, leakAfter := range map[string]time.Duration{"": 0, "with LeakAfter": 90 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opens := 0
				r, err := New(Config[int]{
					Open: func(context.Context) (int, error) {
						if opens++; opens > 1 {
							time.Sleep(time.Hour) // deaf
						}
						return opens, nil
					},
					Close:     func(int) error { return nil },
					MinIdle:   1,
					LeakAfter: leakAfter,
				})
				require.NoError(t, err)
				synctest.Wait()
				_, err = r.Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				require.Error(t, r.Close(ctx))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Zero(t, r.Stats().Total)
				require.False(t, r.sweepTimer.Stop(), "the alarm is set")
				require.False(t, r.clock.staleTimer.Stop(), "the clock's timer is set")
			})
		})
	}
}

// The sweeper may run between Close's first step and the closing of what is idle.
func TestASweepAsCloseBeginsIsNothing(t *testing.T) {
	for name, leakAfter := range map[string]time.Duration{"": 0, "with LeakAfter": 90 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closes := 0
				r, err := New(Config[int]{
					Open:  func(context.Context) (int, error) { return 1, nil },
					Close: func(int) error { closes++; return nil }, Check: func(context.Context, int) error { return nil },
					MinIdle: 1, MaxSize: 1, CheckInterval: time.Minute, LeakAfter: leakAfter,
				})
				require.NoError(t, err)
				synctest.Wait()
				cancel := r.cancel // called when the reservoir is marked closed and nothing is closed yet
				r.cancel = func() {
					require.Equal(t, 1, r.Stats().Idle)
					time.Sleep(2 * time.Minute) // a check would be due
					r.sweep()
					cancel()
				}
				require.NoError(t, r.Close(t.Context()))
				require.Equal(t, 1, closes)
				require.Zero(t, r.Stats().Checks)
			})
		})
	}
}
