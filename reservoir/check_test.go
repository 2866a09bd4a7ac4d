package reservoir_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// The context of a callback ends with its time limit, has none where that is
// off, and has ended once the callback has returned: nothing is kept for it.
func TestTheContextOfACallbackEndsWithIt(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, r *pool){
		"Open":  func(t *testing.T, r *pool) { release(t, acquire(t, r)) },
		"Reset": func(t *testing.T, r *pool) { release(t, acquire(t, r)) },
		"Check": func(t *testing.T, r *pool) { release(t, acquire(t, r)); time.Sleep(75 * time.Second) },
		"Prove": func(t *testing.T, r *pool) { _ = r.CheckOne(t.Context()) }, // fails where there is a limit
	} {
		for _, limit := range []time.Duration{-1, 3 * time.Second, 30 * time.Second} {
			t.Run(name+" "+limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var ended func() error // the callback's context
					var took time.Duration
					callback := func(ctx context.Context) error {
						began := time.Now()
						defer func() { took = time.Since(began) }()
						ended = ctx.Err
						return sleep(ctx, 10*time.Second)
					}
					f := &fake{}
					r := f.pool(t, func(c *config) {
						c.OpenTimeout, c.CheckTimeout, c.CheckInterval, c.OpenRetry = limit, limit, -1, reservoir.OpenRetryNever
						switch name {
						case "Open":
							c.Open = func(ctx context.Context) (*conn, error) { _ = callback(ctx); return f.open(t.Context()) }
						case "Reset":
							c.Reset = func(ctx context.Context, _ *conn) error { return callback(ctx) }
						case "Check":
							c.CheckInterval = time.Minute
							fallthrough
						default:
							c.Check = func(ctx context.Context, _ *conn) error { return callback(ctx) }
						}
					})
					use(t, r)
					synctest.Wait()
					want := 10 * time.Second
					if limit > 0 {
						want = min(want, limit)
					}
					require.Equal(t, want, took)
					if name != "Prove" || limit > 0 { // else it gets the reservoir's own
						require.Error(t, ended())
					}
					shut(t, r)
				})
			})
		}
	}
}

// What stands in line for a keepalive check and is used meanwhile is not checked:
// neither while it is in use nor for that reason afterwards.
func TestWhatIsUsedMeanwhileIsNotCheckedInItsTurn(t *testing.T) {
	for name, back := range map[string]bool{"in use": false, "has been used": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				checks := map[*conn][]time.Time{}
				r := f.pool(t, func(c *config) {
					c.CheckInterval = time.Minute // one at a time
					c.Check = func(_ context.Context, x *conn) error {
						f.set(func() { checks[x] = append(checks[x], time.Now()) })
						time.Sleep(time.Second)
						return nil
					}
				})
				loans := []loan{acquire(t, r), acquire(t, r), acquire(t, r)}
				release(t, loans...)
				used := time.Now()
				time.Sleep(time.Minute)
				synctest.Wait() // one is being checked, two are due
				require.Equal(t, 1, r.Stats().InUse)
				l := acquire(t, r)
				if back {
					release(t, l)
				}
				time.Sleep(10 * time.Second)
				f.set(func() {
					require.Empty(t, checks[l.Value()])
					require.Len(t, checks, 2)
					first := checks[loans[0].Value()]
					if len(first) == 0 || first[0].After(used.Add(time.Minute)) {
						first = checks[loans[1].Value()]
					}
					require.Equal(t, used.Add(time.Minute), first[0], "at its time, to the nanosecond")
				})
				if !back {
					release(t, l)
				}
				time.Sleep(49*time.Second + 500*time.Millisecond)
				if !back {
					require.Empty(t, checks[l.Value()], "its minute is not over")
				}
				shut(t, r)
			})
		})
	}
}

// What stands in line for a check that a longer CheckInterval puts off is checked when that is over.
func TestWhatIsPutOffInItsTurnIsCheckedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var checks []time.Time
		r := f.pool(t, func(c *config) {
			c.CheckInterval = 10 * time.Second // one at a time
			c.Check = func(context.Context, *conn) error {
				f.set(func() { checks = append(checks, time.Now()) })
				time.Sleep(time.Second)
				return nil
			}
		})
		release(t, acquire(t, r), acquire(t, r))
		used := time.Now()
		time.Sleep(10*time.Second + 500*time.Millisecond) // one is being checked, one is due
		require.NoError(t, r.Reconfigure(config{MaxSize: 4, MaxLifetime: -1, IdleTTL: -1, CheckInterval: 15 * time.Second}))
		time.Sleep(9 * time.Second)
		f.set(func() { require.Equal(t, []time.Time{used.Add(10 * time.Second), used.Add(15 * time.Second)}, checks) })
		shut(t, r)
	})
}

// A quarter of MaxSize may be checked at a time: with a larger one more at once.
func TestALargerReservoirChecksMoreAtATimeAtOnce(t *testing.T) {
	for name, grow := range map[string]func(r *pool) error{
		"Resize": func(r *pool) error { return r.Resize(12) },
		"Tune": func(r *pool) error {
			return r.Reconfigure(config{MaxSize: 12, MaxLifetime: -1, IdleTTL: -1, CheckInterval: time.Minute})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) {
					c.CheckInterval, c.CheckTimeout = time.Minute, -1
					c.Check = func(ctx context.Context, _ *conn) error { return sleep(ctx, time.Hour) }
				})
				release(t, acquire(t, r), acquire(t, r), acquire(t, r))
				time.Sleep(2 * time.Minute)
				require.Equal(t, 1, r.Stats().InUse)
				require.NoError(t, grow(r))
				require.Equal(t, 3, r.Stats().InUse)
				shut(t, r)
			})
		})
	}
}

// A check is ended before its time only for a caller whom nothing else can
// serve, and not before a second.
func TestAnUnhurriedCheckIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		takes   time.Duration
		refuses bool
		waits   bool
	}{
		"it is quick":            {1, 900 * time.Millisecond, false, true},
		"nobody waits":           {1, 3 * time.Second, false, false},
		"closing makes no room":  {2, 3 * time.Second, true, true},
		"there is room for more": {2, 3 * time.Second, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.dial = time.Millisecond
				r := f.pool(t, func(cfg *config) {
					cfg.MaxSize, cfg.CheckInterval, cfg.OpenRetry = c.size, time.Minute, reservoir.OpenRetryAlways
					cfg.Check = func(ctx context.Context, _ *conn) error { return sleep(ctx, c.takes) }
				})
				l := acquire(t, r)
				release(t, l)
				f.set(func() {
					if c.refuses {
						f.refuse = errRefused
					}
				})
				time.Sleep(time.Minute + time.Millisecond)
				require.Equal(t, 1, r.Stats().InUse, "it is being checked")
				if c.waits {
					got := <-call(t.Context(), r)
					require.NoError(t, got.err)
					release(t, got.loan)
				}
				time.Sleep(10 * time.Second)
				require.False(t, l.Value().closed.Load())
				require.Zero(t, r.Stats().CheckFailures)
				shut(t, r)
			})
		})
	}
}

// Opens race checks after one that has failed, until an open or a check
// succeeds; and a check that was slow is not counted as such when it is over.
func TestOpensRaceChecksNoLongerThanNeeded(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var takes atomic.Int64
		takes.Store(int64(50 * time.Millisecond))
		r := f.pool(t, func(c *config) {
			c.CheckOnAcquire, c.CheckInterval, c.IdleBeforeCheck = true, -1, -1
			c.Check = func(ctx context.Context, x *conn) error {
				if err := sleep(ctx, time.Duration(takes.Load())); err != nil {
					return err
				}
				return f.check(ctx, x)
			}
		})
		l := acquire(t, r)
		release(t, l)
		f.set(func() { l.Value().broken = true })
		release(t, acquire(t, r))
		require.Equal(t, 2, f.read(&f.opens), "the check has failed")
		release(t, acquire(t, r))
		require.Equal(t, 2, f.read(&f.opens), "the check is waited for")

		takes.Store(int64(time.Second)) // as slow as that, an open is begun beside it
		release(t, acquire(t, r))
		opens := f.read(&f.opens)
		require.Equal(t, 3, opens)
		time.Sleep(2 * time.Second)
		takes.Store(int64(50 * time.Millisecond))
		for range 3 {
			release(t, acquire(t, r))
		}
		require.Equal(t, opens, f.read(&f.opens))
		shut(t, r)
	})
}

// What was idle for too long is closed when its check is over, and nothing else
// for it: what is idle beside it is not that old.
func TestBesideWhatIsCheckedNothingYoungerIsClosedForItsAge(t *testing.T) {
	for name, beside := range map[string]bool{"beside another": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) {
					c.MinIdle, c.MaxSize, c.IdleTTL, c.CheckInterval = 1, 8, time.Minute, 61*time.Second
					c.Check = func(ctx context.Context, _ *conn) error { return sleep(ctx, 4*time.Second) }
				})
				require.NoError(t, r.WaitReady(t.Context(), 1))
				var young loan
				if beside {
					old := acquire(t, r)
					young = acquire(t, r)
					synctest.Wait()
					require.Equal(t, 1, r.EvictIdle()+r.Stats().Idle, "a spare one, which goes below")
					release(t, old)
					r.CloseIdle(1, 0)
					synctest.Wait()
				}
				time.Sleep(30 * time.Second)
				if beside {
					release(t, young)
				}
				time.Sleep(31*time.Second + time.Millisecond)
				require.NoError(t, r.Reconfigure(config{MaxSize: 8, MaxLifetime: -1, IdleTTL: time.Minute, CheckInterval: 61 * time.Second}))
				synctest.Wait()
				if beside {
					require.False(t, young.Value().closed.Load(), "idle for half a minute")
				}
				time.Sleep(3 * time.Minute)
				require.Zero(t, r.Stats().Total)
				shut(t, r)
			})
		})
	}
}

// A connection that Recall takes before its check is no word on the reservoir: another is checked.
func TestCheckOneChecksAnotherForOneThatWasRecalled(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var r *pool
		recalls := 0
		r = f.pool(t, func(c *config) {
			c.Check, c.CheckInterval = f.check, -1
			c.Hooks.Acquired = func(time.Duration) {
				if recalls++; recalls == 1 {
					r.Recall()(errRefused)
				}
			}
		})
		require.NoError(t, r.CheckOne(t.Context()))
		require.Equal(t, 2, recalls)
		shut(t, r)
		require.ErrorIs(t, r.CheckOne(t.Context()), reservoir.ErrClosed)
	})
}
