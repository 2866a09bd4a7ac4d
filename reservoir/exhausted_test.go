package reservoir_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestFailFastDoesNotWaitForOpensThatDoNotCome(t *testing.T) {
	full := func(context.Context) (func(), error) { return nil, reservoir.ErrExhausted }
	for name, c := range map[string]struct {
		sessions int
		admit    func(context.Context) (func(), error)
	}{"the server takes no more": {3, nil}, "the budget is full": {0, full}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.sessions = c.sessions
				r := f.pool(t, func(cfg *config) { cfg.MaxSize, cfg.OnExhausted, cfg.Admit = 10, reservoir.FailFast, c.admit })
				var loans []loan
				for range c.sessions {
					loans = append(loans, acquire(t, r))
				}
				for range 3 { // the first finds out, the others find a pause
					got := <-call(t.Context(), r)
					require.ErrorIs(t, got.err, reservoir.ErrExhausted)
					require.Zero(t, got.took)
				}
				require.EqualValues(t, 3, r.Stats().Rejected)
				release(t, loans...)
				shut(t, r)
			})
		})
	}
}

func TestMaxWaitersDoesNotCountThoseForWhomThereIsAConnection(t *testing.T) {
	for name, set := range map[string]func(*config){
		"opened": func(c *config) { c.MinIdle = 0 },
		"checked": func(c *config) {
			c.MinIdle, c.CheckOnAcquire, c.CheckInterval = 10, true, -1
			c.Check = func(ctx context.Context, _ *conn) error { return sleep(ctx, time.Millisecond) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.dial = 10 * time.Millisecond
				r := f.pool(t, func(c *config) { c.MaxSize, c.MaxWaiters = 10, 2; set(c) })
				time.Sleep(2 * time.Second)
				var calls []<-chan outcome
				for range 13 {
					calls = append(calls, call(t.Context(), r))
					synctest.Wait()
				}
				got := <-calls[12]
				require.ErrorIs(t, got.err, reservoir.ErrExhausted, "ten are served, two wait")
				require.Zero(t, got.took)
				var loans []loan
				for _, c := range calls[:10] {
					got := <-c
					require.NoError(t, got.err)
					loans = append(loans, got.loan)
				}
				release(t, loans...)
				for _, c := range calls[10:12] {
					got := <-c
					require.NoError(t, got.err)
					release(t, got.loan)
				}
				shut(t, r)
			})
		})
	}
}

func TestTryAcquireTakesWhatWasJustChecked(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var checks atomic.Int64
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.CheckOnAcquire, c.IdleBeforeCheck, c.CheckInterval = 10, true, -1, -1
			c.Check = func(ctx context.Context, _ *conn) error {
				checks.Add(1)
				return sleep(ctx, time.Second)
			}
		})
		var loans []loan
		for range 10 {
			loans = append(loans, acquire(t, r))
		}
		release(t, loans...)
		for range 20 {
			_, ok := r.TryAcquire()
			require.False(t, ok)
		}
		require.Equal(t, 9, r.Stats().Idle, "one is checked, not all")
		time.Sleep(1500 * time.Millisecond)
		l, ok := r.TryAcquire()
		require.True(t, ok)
		release(t, l)
		_, ok = r.TryAcquire()
		require.False(t, ok, "it was used since")
		synctest.Wait()
		require.EqualValues(t, 2, checks.Load())
		time.Sleep(time.Second)
		shut(t, r)
	})
}

// A check counts for less than a second.
func TestTryAcquireBelievesACheckForLessThanASecond(t *testing.T) {
	for age, believed := range map[time.Duration]bool{time.Second - 1: true, time.Second: false} {
		bubble(t, func(t *testing.T, f *fake) {
			r := f.pool(t, func(c *config) {
				c.CheckOnAcquire, c.IdleBeforeCheck, c.CheckInterval, c.Check = true, -1, -1, f.check
			})
			release(t, acquire(t, r))
			_, ok := r.TryAcquire()
			require.False(t, ok)
			synctest.Wait() // it has been checked
			time.Sleep(age - 2*time.Millisecond)
			require.Zero(t, r.CloseIdle(1, time.Hour)) // reads the time, which is kept for 10ms
			time.Sleep(2 * time.Millisecond)
			l, ok := r.TryAcquire()
			require.Equal(t, believed, ok, "after %v", age)
			if ok {
				release(t, l)
			}
			shut(t, r)
		})
	}
}

// Connections that are silently dead: each check takes CheckTimeout to find out.
func TestSilentlyDeadConnectionsDoNotKeepCallersWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		bound time.Duration
	}{"with room": {16, 200 * time.Millisecond}, "full": {10, 1100 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.dial = 20 * time.Millisecond
				r := f.pool(t, func(cfg *config) {
					cfg.MaxSize, cfg.MinIdle, cfg.CheckOnAcquire, cfg.CheckInterval = c.size, 10, true, -1
					cfg.Check = func(ctx context.Context, x *conn) error {
						if x.broken {
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					}
				})
				require.NoError(t, r.WaitReady(t.Context(), 10))
				time.Sleep(2 * time.Second)
				f.set(func() {
					for _, x := range f.log {
						x.broken = true
					}
				})
				for range 4 {
					got := <-call(t.Context(), r)
					require.NoError(t, got.err)
					require.LessOrEqual(t, got.took, c.bound)
					release(t, got.loan)
					time.Sleep(time.Second)
				}
				shut(t, r)
			})
		})
	}
}

func TestAKeepaliveCheckOfTheOnlyConnectionIsGivenUpForACaller(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize = 1
			c.Check = func(ctx context.Context, _ *conn) error { return sleep(ctx, time.Hour) }
		})
		release(t, acquire(t, r))
		time.Sleep(30*time.Second + 50*time.Millisecond)
		got := <-call(t.Context(), r)
		require.NoError(t, got.err)
		require.LessOrEqual(t, got.took, 1100*time.Millisecond)
		release(t, got.loan)
		shut(t, r)
	})
}

func TestNobodyOvertakesAWaiterWhoseCheckTuneHasMadeNeedless(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		check := func(context.Context, *conn) error { time.Sleep(3 * time.Second); return nil }
		r := f.pool(t, func(c *config) { c.MaxSize, c.Check, c.CheckOnAcquire, c.CheckInterval = 2, check, true, -1 })
		release(t, acquire(t, r), acquire(t, r))
		time.Sleep(2 * time.Second)
		first := call(t.Context(), r)
		synctest.Wait()
		require.NoError(t, r.Reconfigure(config{MaxSize: 2, MaxLifetime: -1, IdleTTL: -1, CheckInterval: -1}))
		f1 := <-first
		require.Zero(t, f1.took, "the other connection needs no check now")
		second := <-call(t.Context(), r)
		release(t, second.loan, f1.loan)
		shut(t, r)
	})
}

func TestWhoWaitsOverAFailedOpen(t *testing.T) {
	lasting := errors.New("no such user")
	for name, c := range map[string]struct {
		retry  reservoir.OpenRetry
		refuse error
		timed  bool
		waits  bool
	}{
		"timed":                      {reservoir.OpenRetryTimed, errRefused, true, true},
		"timed, no deadline":         {reservoir.OpenRetryTimed, errRefused, false, false},
		"timed, permanent":           {reservoir.OpenRetryTimed, reservoir.Permanent(lasting), true, false},
		"never":                      {reservoir.OpenRetryNever, errRefused, true, false},
		"always":                     {reservoir.OpenRetryAlways, errRefused, false, true},
		"always, permanent":          {reservoir.OpenRetryAlways, reservoir.Permanent(lasting), true, false},
		"permanent, and wrapped":     {reservoir.OpenRetryAlways, errors.Join(reservoir.Permanent(lasting)), false, false},
		"nothing is permanent there": {reservoir.OpenRetryAlways, errors.Join(reservoir.Permanent(nil), errRefused), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.refuse, f.dial = c.refuse, time.Millisecond
				r := f.pool(t, func(cfg *config) { cfg.OpenRetry, cfg.AcquireTimeout = c.retry, 10*time.Second })
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.timed {
					ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
				}
				defer cancel()
				got := <-call(ctx, r)
				require.ErrorIs(t, got.err, c.refuse)
				switch {
				case !c.waits:
					require.Equal(t, time.Millisecond, got.took)
					require.NotErrorIs(t, got.err, reservoir.ErrExhausted)
					require.EqualValues(t, 1, r.Stats().Failed)
				case c.timed:
					require.Equal(t, 5*time.Second, got.took)
					require.ErrorIs(t, got.err, reservoir.ErrExhausted)
				default:
					require.Equal(t, 10*time.Second, got.took)
					require.ErrorIs(t, got.err, reservoir.ErrExhausted)
				}
				if c.waits {
					f.set(func() { f.refuse = nil })
					got = <-call(ctx, r)
					if c.timed {
						require.Error(t, got.err, "its deadline is over")
					} else {
						require.NoError(t, got.err)
						release(t, got.loan)
					}
				}
				shut(t, r)
			})
		})
	}
}

func TestACallerWithADeadlineGetsTheConnectionOfALaterOpen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse = errRefused
		r := f.pool(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		waiting := call(ctx, r)
		time.Sleep(2 * time.Second)
		f.set(func() { f.refuse = nil })
		got := <-waiting
		require.NoError(t, got.err)
		require.LessOrEqual(t, got.took, 3*time.Second)
		release(t, got.loan)
		shut(t, r)
	})
}

// Those without a deadline who stand between others with one.
func TestAFailedOpenReachesManyWaitersInBatches(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse, f.dial = errRefused, time.Second
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2)
		defer cancel()
		var patient, others []<-chan outcome
		for range 1000 {
			patient = append(patient, call(ctx, r))
			others = append(others, call(t.Context(), r))
		}
		for _, c := range others {
			got := <-c
			require.ErrorIs(t, got.err, errRefused)
			// Who came after the open began waits for the next.
			require.Contains(t, []time.Duration{time.Second, 2 * time.Second}, got.took.Truncate(time.Second))
		}
		require.Equal(t, 1000, r.Stats().Waiting)
		cancel()
		for _, c := range patient {
			require.ErrorIs(t, (<-c).err, context.Canceled)
		}
		shut(t, r)
	})
}

func TestStatsTellHowWaitsEnded(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-1))
		defer cancel()
		_, err := r.Acquire(past)
		require.ErrorIs(t, err, reservoir.ErrExhausted)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, r.Stats().Timeouts)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.Acquire(gone)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, r.Stats().Canceled)

		held := acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		require.Equal(t, 1, r.FailWaiters(errRefused))
		require.ErrorIs(t, (<-waiting).err, errRefused)
		require.EqualValues(t, 1, r.Stats().Failed)
		require.EqualValues(t, 1, r.Stats().Canceled)
		release(t, held)

		for range 20 { // the caller leaves as it is served
			held := acquire(t, r)
			ctx, cancel := context.WithCancel(t.Context())
			first := call(ctx, r)
			synctest.Wait()
			release(t, held)
			cancel()
			if o := <-first; o.err == nil {
				release(t, o.loan)
			}
		}
		s := r.Stats()
		require.Equal(t, s.AcquiredWaited, s.Handoffs)
		require.Equal(t, uint64(1+20+20+1), s.Acquired+s.Canceled)
		shut(t, r)
	})
}

func TestALossOfYoungConnectionsInUsePausesTheOpens(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Millisecond
		r := f.pool(t, func(c *config) {
			c.MaxSize = 8
			c.Watch = func(_ *conn, lost func(error)) { time.AfterFunc(2*time.Millisecond, func() { lost(errCut) }) }
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan struct{}, 8)
		for range 8 {
			go func() {
				for ctx.Err() == nil {
					if l, err := r.Acquire(ctx); err == nil {
						time.Sleep(3 * time.Millisecond) // the statement fails
						_ = l.Release()
					}
				}
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		require.LessOrEqual(t, f.read(&f.opens), 300)
		require.ErrorIs(t, r.Stats().LastOpenError, errCut)
		shut(t, r)
	})
}
