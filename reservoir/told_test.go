package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// A caller refused at once is told of by Rejected, and only that: neither who waits nor
// who meets a closed reservoir.
func TestShedTellsOfEveryCallerWhoIsRefusedAtOnce(t *testing.T) {
	for name, set := range map[string]func(c *config){
		"FailFast":   func(c *config) { c.OnExhausted = reservoir.FailFast },
		"MaxWaiters": func(c *config) { c.MaxWaiters = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				var told, waits int
				r := f.pool(t, func(c *config) {
					c.MaxSize = 1
					c.Hooks.Rejected = func() { told++ }
					c.Hooks.WaitStart = func() { waits++ }
					set(c)
				})
				held := acquire(t, r)
				waits = 0
				var waiting <-chan outcome
				if name == "MaxWaiters" {
					waiting = call(t.Context(), r)
					synctest.Wait()
					require.Equal(t, 1, waits)
				}
				for n := range 3 {
					_, err := r.Acquire(t.Context())
					require.ErrorIs(t, err, reservoir.ErrExhausted)
					require.Equal(t, n+1, told)
					require.EqualValues(t, n+1, r.Stats().Rejected)
				}
				release(t, held)
				if waiting != nil {
					require.Equal(t, 1, waits)
					release(t, (<-waiting).loan)
				} else {
					require.Zero(t, waits)
				}
				shut(t, r)
				_, err := r.Acquire(t.Context())
				require.ErrorIs(t, err, reservoir.ErrClosed)
				require.Equal(t, 3, told)
			})
		})
	}
}

// A borrower whose goroutine its own hook ends never had the loan.
func TestALoanWhoseBorrowerTheHookEndsIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.Hooks.Acquired = 1, func(time.Duration) { runtime.Goexit() } })
		for range 3 { // one is opened; then idle; then by TryAcquire
			go func() { _, _ = r.Acquire(t.Context()) }()
			synctest.Wait()
			go func() { _, _ = r.TryAcquire() }()
			synctest.Wait()
			s := r.Stats()
			require.Zero(t, s.InUse)
			require.Equal(t, 1, s.Idle)
		}
		require.EqualValues(t, 6, r.Stats().Acquired)
		shut(t, r)
	})
}

// Released is told of every loan that ends, however it ends.
func TestReleasedTellsOfEveryLoan(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *pool, f *fake, l loan){
		"kept":      func(t *testing.T, _ *pool, _ *fake, l loan) { release(t, l) },
		"discarded": func(t *testing.T, _ *pool, _ *fake, l loan) { require.NoError(t, l.Discard(errRefused)) },
		"outdated":  func(t *testing.T, r *pool, _ *fake, l loan) { r.Reset(); release(t, l) },
		"unhealthy": func(t *testing.T, _ *pool, f *fake, l loan) {
			f.set(func() { l.Value().broken = true })
			release(t, l)
		},
	} {
		for _, checks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, CheckOnRelease %v", name, checks), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					var told []time.Duration
					r := f.pool(t, func(c *config) {
						c.Check, c.CheckInterval, c.CheckOnRelease = f.check, -1, checks
						c.Hooks.Released = func(held time.Duration) { told = append(told, held) }
					})
					time.Sleep(5 * time.Second)
					l := acquire(t, r)
					time.Sleep(3 * time.Second)
					end(t, r, f, l)
					require.Len(t, told, 1)
					require.InDelta(t, 3*time.Second, told[0], float64(10*time.Millisecond))
					shut(t, r)
				})
			})
		}
	}
}

// Closed is told what Close and the release of Admit have said.
func TestClosedTellsWhatCloseSaid(t *testing.T) {
	errClose := errors.New("cannot close")
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var told []error
		r := f.pool(t, func(c *config) {
			c.Close = func(*conn) error { return errClose }
			c.Admit = func(context.Context) (func(), error) { return func() { panic(errCut) }, nil }
			c.Hooks.Closed = func(_ reservoir.Reason, err error) { told = append(told, err) }
		})
		release(t, acquire(t, r))
		shut(t, r)
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], errClose)
		require.ErrorIs(t, told[0], errCut)
	})
}

// Who waits for connections that will not come is told when the reservoir closes.
func TestCloseEndsWaitReady(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Hour
		r := f.pool(t, func(c *config) { c.OpenTimeout = -1 })
		ready := make(chan error, 1)
		go func() { ready <- r.WaitReady(t.Context(), 2) }()
		time.Sleep(time.Second)
		shut(t, r)
		synctest.Wait()
		require.Len(t, ready, 1)
		require.ErrorIs(t, <-ready, reservoir.ErrClosed)
	})
}

// A reservoir that is made smaller than WaitReady asks for is ready with what it
// has.
func TestResizeEndsAWaitReadyThatHasEnough(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		release(t, acquire(t, r), acquire(t, r))
		f.set(func() { f.dial = time.Hour })
		ready := make(chan error, 1)
		go func() { ready <- r.WaitReady(t.Context(), 3) }()
		time.Sleep(time.Second)
		require.Empty(t, ready)
		require.NoError(t, r.Resize(2))
		synctest.Wait()
		require.Len(t, ready, 1)
		require.NoError(t, <-ready)
		shut(t, r)
	})
}

// Close may take the loan back before CheckOne has begun its check.
func TestProveOfALoanThatCloseTookBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var r *pool
		r = f.pool(t, func(c *config) {
			c.Check, c.CheckInterval, c.CloseTimeout = f.check, -1, -1
			c.Hooks.Acquired = func(time.Duration) { _ = r.Close(over) }
		})
		require.ErrorIs(t, r.CheckOne(t.Context()), reservoir.ErrClosed)
		require.Zero(t, r.Stats().Checks)
		require.ErrorIs(t, r.Close(t.Context()), reservoir.ErrClosed)
	})
}

// A caller who gives up is told for how long it has waited.
func TestACancelledWaitSaysHowLongItWas(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := call(ctx, r)
		time.Sleep(2 * time.Second)
		cancel()
		require.EqualError(t, (<-waiting).err, "reservoir: acquire after 2s: context canceled")
		require.Equal(t, 2*time.Second, r.Stats().WaitTime)
		release(t, held)
		shut(t, r)
	})
}

// Without LeakAfter nothing is a leak, however long it is out.
func TestALeakIsReportedAtItsTimeAndOnlyIfAskedFor(t *testing.T) {
	for after, want := range map[time.Duration]int{0: 0, time.Hour: 1} {
		bubble(t, func(t *testing.T, f *fake) {
			var leaks []reservoir.Leak
			r := f.pool(t, func(c *config) {
				c.LeakAfter, c.IdleTTL = after, 45*time.Minute // by which it is looked at, too
				c.Hooks.Leaked = func(l reservoir.Leak) { f.set(func() { leaks = append(leaks, l) }) }
			})
			release(t, acquire(t, r))
			time.Sleep(20 * time.Minute)
			l := acquire(t, r)
			time.Sleep(time.Hour - 1)
			f.set(func() { require.Empty(t, leaks) })
			time.Sleep(10 * time.Hour)
			f.set(func() {
				require.Len(t, leaks, want)
				for _, leak := range leaks {
					require.Equal(t, time.Hour, leak.Held)
				}
			})
			require.EqualValues(t, want, r.Stats().Leaks)
			release(t, l)
			shut(t, r)
		})
	}
}

// Close waits for what is out: what nobody gives back is told of while it does, with
// whoever has it, also where the pool has looked at nothing before.
func TestALeakIsReportedWhileCloseWaitsForIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var leaks []time.Duration
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle, c.LeakAfter = 200, 1, time.Minute // more than are looked at under one lock
			c.Hooks.Leaked = func(l reservoir.Leak) {
				f.set(func() {
					leaks = append(leaks, l.Held)
					require.Contains(t, l.Stack, "TestALeakIsReportedWhileCloseWaitsForIt")
				})
			}
		})
		require.NoError(t, r.WaitReady(t.Context(), 200))
		var out []reservoir.Loan[*conn]
		for range 199 {
			out = append(out, acquire(t, r))
		}
		time.Sleep(30 * time.Second)
		late := acquire(t, r)
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		time.Sleep(30*time.Second - 1)
		f.set(func() { require.Empty(t, leaks) })
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		f.set(func() { require.Len(t, leaks, 199) })
		for _, l := range out {
			release(t, l)
		}
		time.Sleep(10 * time.Minute)
		f.set(func() { require.Len(t, leaks, 200) })
		release(t, late)
		require.NoError(t, <-closed)
		time.Sleep(10 * time.Minute)
		f.set(func() {
			require.Len(t, leaks, 200)
			for _, held := range leaks {
				require.Equal(t, time.Minute, held)
			}
		})
		require.EqualValues(t, 200, r.Stats().Leaks)
	})
}

// A caller whose goroutine its own hook ends before it waits has given up.
func TestACallerWhomItsHookEndsHasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Second // else it may be served before
		r := f.pool(t, func(c *config) { c.MaxSize, c.Hooks.WaitStart = 1, runtime.Goexit })
		go func() { _, _ = r.Acquire(t.Context()) }()
		synctest.Wait()
		require.EqualValues(t, 1, r.Stats().Canceled)
		require.Zero(t, r.Stats().Waiting)
		shut(t, r)
	})
}
