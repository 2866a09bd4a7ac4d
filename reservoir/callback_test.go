package reservoir_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestFailWaitersNeedsNoReason(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		waiting := call(t.Context(), r)
		synctest.Wait()
		r.FailWaiters(nil)
		require.Error(t, (<-waiting).err)
		release(t, held)
		shut(t, r)
	})
}

// A silentContext is Done and does not say why.
type silentContext struct {
	context.Context
	done chan struct{}
}

func (c silentContext) Done() <-chan struct{} { return c.done }
func (c silentContext) Err() error            { return nil }

func TestAContextThatDoesNotSayWhyItIsDoneIsCanceled(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize = 1 })
		held := acquire(t, r)
		ctx := silentContext{t.Context(), make(chan struct{})}
		waiting := call(ctx, r)
		synctest.Wait()
		close(ctx.done)
		require.ErrorIs(t, (<-waiting).err, context.Canceled)
		release(t, held)
		shut(t, r)
	})
}

func TestProveSurvivesACheckThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.CheckInterval = -1
			c.Check = func(context.Context, *conn) error { runtime.Goexit(); return nil }
		})
		go func() { _ = r.CheckOne(t.Context()) }()
		synctest.Wait()
		require.Zero(t, r.Stats().InUse)
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Unhealthy])
		shut(t, r)
	})
}

// Nor does what ends the goroutine when the connection is given back: the answer
// comes all the same.
func TestProveAnswersWhenAResetEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Check, c.CheckInterval = f.check, -1
			c.Reset = func(context.Context, *conn) error { runtime.Goexit(); return nil }
		})
		proved := make(chan error, 1)
		go func() { proved <- r.CheckOne(t.Context()) }()
		synctest.Wait()
		require.Len(t, proved, 1, "it hangs")
		require.NoError(t, <-proved, "the check has passed")
		require.EqualValues(t, 1, r.Stats().Closed[reservoir.Discarded])
		shut(t, r)
	})
}

func TestEveryCheckIsCountedAndTold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var told atomic.Int64
		r := f.pool(t, func(c *config) {
			c.Check, c.CheckInterval, c.CheckOnRelease = f.check, -1, true
			c.Hooks.Checked = func(error, time.Duration) { told.Add(1) }
		})
		require.NoError(t, r.CheckOne(t.Context())) // checks, and again when it releases
		f.set(func() { f.log[0].broken = true })
		release(t, acquire(t, r))
		synctest.Wait()
		s := r.Stats()
		require.EqualValues(t, 3, s.Checks)
		require.EqualValues(t, 3, told.Load())
		require.EqualValues(t, 1, s.CheckFailures)
		require.EqualValues(t, 1, s.Closed[reservoir.Unhealthy])
		shut(t, r)
	})
}

// Every hook, in every way in which a call can end badly.
func TestAHookThatPanicsOrEndsItsGoroutineLosesNothing(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				w := &watchman{}
				var called atomic.Uint64
				bad := func() { called.Add(1); end() }
				var refuse atomic.Bool
				r := f.pool(t, func(c *config) {
					c.MaxSize, c.Check, c.LeakAfter, c.Watch, c.AcquireTimeout = 2, f.check, time.Second, w.watch, 5*time.Second
					c.Admit = f.admit
					c.CloseTimeout = time.Millisecond
					c.Close = func(x *conn) error { time.Sleep(2 * time.Millisecond); return f.close(x) }
					c.Hooks = reservoir.Hooks{
						Opening: bad, Opened: func(time.Duration) { bad() }, OpenFailed: func(error, time.Duration) { bad() }, OpenSkipped: bad,
						WaitStart: bad, WaitEnd: func(time.Duration, error) { bad() }, Acquired: func(time.Duration) { bad() },
						Released: func(time.Duration) { bad() }, Rejected: bad, Leaked: func(reservoir.Leak) { bad() },
						Checked: func(error, time.Duration) { bad() }, Closing: func(reservoir.Reason, error) { bad() },
						CloseStalled: func(reservoir.Reason) { bad() }, Closed: func(reservoir.Reason, error) { bad() },
					}
				})
				for range 10 {
					for range 3 {
						go func() {
							if l, err := r.Acquire(t.Context()); err == nil {
								time.Sleep(2 * time.Second)
								if refuse.Load() {
									_ = l.Discard(errRefused)
								} else {
									_ = l.Release()
								}
							}
						}()
					}
					time.Sleep(40 * time.Second)
					refuse.Store(!refuse.Load())
					synctest.Wait()
					require.Zero(t, r.Stats().InUse)
					require.Zero(t, r.Stats().Waiting)
				}
				require.Error(t, r.Stats().LastHookError)
				shut(t, r)
				require.NotZero(t, called.Load())
				require.Equal(t, called.Load(), r.Stats().HookFailures, "each is counted")
			})
		})
	}
}

// A lethalContext does not return from Err once it is to end.
type lethalContext struct {
	context.Context
	done chan struct{}
	ends *atomic.Bool
	end  func()
}

func (c lethalContext) Done() <-chan struct{} { return c.done }

func (c lethalContext) Err() error {
	if c.ends.Load() {
		c.end()
	}
	return nil
}

// Whoever counts those who wait by the hooks counts right also where the caller's goroutine
// has ended, which leaves nothing behind.
func TestTheEndOfEveryWaitIsTold(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
		for _, served := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, served %v", name, served), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					var waiting, ended, acquired, released atomic.Int64
					r := f.pool(t, func(c *config) {
						c.MaxSize = 1
						c.Hooks.WaitStart = func() { waiting.Add(1) }
						c.Hooks.Acquired = func(time.Duration) { acquired.Add(1) }
						c.Hooks.Released = func(time.Duration) { released.Add(1) }
						c.Hooks.WaitEnd = func(_ time.Duration, err error) {
							waiting.Add(-1)
							if err != nil {
								ended.Add(1)
							}
						}
					})
					held := acquire(t, r) // which waits, too
					ctx := lethalContext{t.Context(), make(chan struct{}), new(atomic.Bool), end}
					go func() {
						defer func() { _ = recover() }()
						_, _ = r.Acquire(ctx)
					}()
					synctest.Wait()
					require.EqualValues(t, 1, waiting.Load())
					ctx.ends.Store(true)
					if served {
						release(t, held)
					} else {
						close(ctx.done)
					}
					synctest.Wait()
					assert.Zero(t, waiting.Load(), "nobody waits")
					assert.EqualValues(t, 1, ended.Load(), "without a connection")
					assert.Zero(t, r.Stats().Waiting)
					if !served {
						release(t, held)
					}
					s := r.Stats()
					require.Zero(t, s.InUse)
					require.EqualValues(t, 1, s.Timeouts+s.Canceled+s.Failed+s.Rejected, "each is counted")
					require.Equal(t, acquired.Load(), released.Load(), "a loan whose end is told has been told")
					shut(t, r)
				})
			})
		}
	}
}

// Many loans that are out too long are told at once. A hook that takes its time holds up nobody's timeout
// meanwhile, and may itself wait for the reservoir.
func TestAHookThatIsToldOfLeaksHoldsUpNoTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const size = 200 // more than what is swept under one hold of the lock
		returns, told := make(chan struct{}), make(chan error, size)
		var r *pool
		r = f.pool(t, func(c *config) {
			c.MaxSize, c.LeakAfter, c.AcquireTimeout = size, time.Second, 3*time.Second
			c.Hooks.Leaked = func(reservoir.Leak) {
				_, err := r.Acquire(context.WithoutCancel(t.Context()))
				told <- err
				<-returns
			}
		})
		require.NoError(t, r.WaitReady(t.Context(), size))
		var held []loan
		for range size {
			held = append(held, acquire(t, r))
		}
		waiting := call(t.Context(), r)
		time.Sleep(10 * time.Second)
		assert.Len(t, waiting, 1, "a caller waits past AcquireTimeout")
		assert.Len(t, told, size, "each leak is told, and what the hook waits for ends")
		close(returns)
		release(t, held...)
		require.ErrorIs(t, (<-waiting).err, reservoir.ErrExhausted)
		for range size {
			require.ErrorIs(t, <-told, reservoir.ErrExhausted)
		}
		shut(t, r)
	})
}

// The end of a loan is told also where Reset has ended the goroutine that gives it back.
func TestTheEndOfALoanIsToldThoughResetEndsItsGoroutine(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				var released atomic.Int64
				r := f.pool(t, func(c *config) {
					c.Reset = func(context.Context, *conn) error { end(); return nil }
					c.Hooks.Released = func(time.Duration) { released.Add(1) }
				})
				l := acquire(t, r)
				go func() { _ = l.Release() }()
				synctest.Wait()
				require.EqualValues(t, 1, released.Load())
				require.EqualValues(t, 1, r.Stats().Closed[reservoir.Discarded])
				shut(t, r)
			})
		})
	}
}

func TestCloseWithoutCloseTimeoutEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.closes = 10 * time.Hour
		r := f.pool(t, func(c *config) { c.CloseTimeout = -1 })
		release(t, acquire(t, r))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var left *reservoir.CloseError
		require.ErrorAs(t, r.Close(ctx), &left)
		require.Equal(t, 1, left.Remaining)
		require.Equal(t, time.Second, time.Since(began))

		again, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, r.Close(again), context.DeadlineExceeded, "a second Close waits for the rest")
		require.Equal(t, time.Second+time.Minute, time.Since(began))
		require.ErrorIs(t, r.Close(t.Context()), reservoir.ErrClosed)
		require.Equal(t, 10*time.Hour, time.Since(began))
		require.Zero(t, r.Stats().Total)
		require.Zero(t, r.Stats().CloseStalls, "no Close takes too long")
	})
}

func TestNoHookRunsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var running, after atomic.Int64
		var over atomic.Bool
		hook := func() {
			running.Add(1)
			if over.Load() {
				after.Add(1)
			}
			time.Sleep(time.Second)
			running.Add(-1)
		}
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.Check, c.CheckInterval = 2, f.check, time.Second
			c.Hooks = reservoir.Hooks{
				Opened: func(time.Duration) { hook() }, Checked: func(error, time.Duration) { hook() },
				Closing: func(reservoir.Reason, error) { hook() }, Closed: func(reservoir.Reason, error) { hook() },
			}
		})
		require.NoError(t, r.WaitReady(t.Context(), 2))
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, r.Close(t.Context()))
		over.Store(true)
		require.Zero(t, running.Load())
		time.Sleep(time.Minute)
		require.Zero(t, after.Load())
	})
}

func TestAnOpenThatCloseEndsIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Hour
		var failed, elided atomic.Int64
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.OpenTimeout = 1, -1
			c.Hooks.OpenFailed = func(error, time.Duration) { failed.Add(1) }
			c.Hooks.OpenSkipped = func() { elided.Add(1) }
		})
		synctest.Wait()
		require.NoError(t, r.Close(t.Context()))
		s := r.Stats()
		require.Zero(t, s.OpenFailures)
		require.NoError(t, s.LastOpenError)
		require.Zero(t, failed.Load())
		require.EqualValues(t, 1, elided.Load())
		require.EqualValues(t, 1, s.OpensSkipped)
	})
}

func TestAPanicIsToldInOneLine(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.Open = func(context.Context) (*conn, error) { panic(errRefused) } })
		got := <-call(t.Context(), r)
		require.False(t, strings.Contains(got.err.Error(), "\n"), "%v", got.err)
		require.ErrorIs(t, got.err, errRefused)
		var p *reservoir.PanicError
		require.ErrorAs(t, got.err, &p)
		require.Contains(t, string(p.Stack), "TestAPanicIsToldInOneLine")
		shut(t, r)
	})
}
