package reservoir_test

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// A loan is over when its Release begins, not when Reset has returned.
func TestALoanThatIsBeingResetIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Reset = func(ctx context.Context, _ *conn) error { return sleep(ctx, time.Second) }
		})
		l := acquire(t, r)
		released := make(chan error)
		go func() { released <- l.Release() }()
		synctest.Wait()
		require.ErrorIs(t, l.Release(), reservoir.ErrReleased)
		require.ErrorIs(t, l.Discard(errRefused), reservoir.ErrReleased)
		require.NoError(t, <-released)
		shut(t, r)
	})
}

// Who has given up WaitReady wants nothing any more.
func TestAWaitReadyThatHasEndedOpensNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, nil)
		f.set(func() { f.refuse = errRefused })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.WaitReady(ctx, 3), context.DeadlineExceeded)
		f.set(func() { f.refuse = nil })
		time.Sleep(time.Minute)
		require.Zero(t, r.Stats().Total)
		shut(t, r)
	})
}

// What a discarded connection leaves missing is opened at once, however long its
// Close takes.
func TestWhatIsDiscardedIsMissedBeforeItIsClosed(t *testing.T) {
	for name, end := range map[string]func(l loan) error{
		"discarded": func(l loan) error { return l.Discard(errRefused) },
		"outdated":  func(l loan) error { return l.Release() },
		"unhealthy": func(l loan) error { l.Value().broken = true; return l.Release() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.closes, f.dial = time.Minute, time.Second
				r := f.pool(t, func(c *config) { c.CheckOnRelease, c.Check = true, f.check })
				l := acquire(t, r)
				if name == "outdated" {
					r.Reset()
				}
				ready := make(chan error)
				began := time.Now()
				go func() { ready <- r.WaitReady(t.Context(), 2) }()
				synctest.Wait()
				require.Equal(t, 2, r.Stats().Total)
				require.NoError(t, end(l))
				synctest.Wait()
				require.Equal(t, 3, r.Stats().Total, "one is closed, two are opened")
				require.NoError(t, <-ready)
				require.Equal(t, time.Second, time.Since(began))
				shut(t, r)
			})
		})
	}
}

// Nobody gets a connection at the instant of its end, even when the time was
// read a moment before.
func TestAConnectionThatWasUsedJustBeforeItsEndIsNotLentAtIt(t *testing.T) {
	const life, guard = time.Hour, time.Minute
	for _, before := range []time.Duration{time.Nanosecond, time.Millisecond, 5 * time.Millisecond} {
		bubble(t, func(t *testing.T, f *fake) {
			r := f.pool(t, func(c *config) { c.MaxLifetime, c.LifetimeJitter, c.GuardWindow, c.OpenTimeout = life, -1, guard, -1 })
			release(t, acquire(t, r))
			f.set(func() { f.dial = 2 * life }) // no successor comes in time
			end := f.connections()[0].born.Add(life - guard)
			time.Sleep(time.Until(end) - before)
			l, ok := r.TryAcquire()
			require.True(t, ok)
			release(t, l)
			time.Sleep(before)
			_, ok = r.TryAcquire()
			require.False(t, ok, "%v before", before)
			shut(t, r)
		})
	}
}

// A check that passes costs no open; after one that failed, opens race the
// checks that follow.
func TestACheckThatPassesCostsNoOpen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		checks := 0
		r := f.pool(t, func(c *config) {
			c.CheckOnAcquire, c.CheckInterval, c.IdleBeforeCheck = true, -1, -1
			c.Check = func(ctx context.Context, k *conn) error {
				checks++
				return cmp.Or(sleep(ctx, 50*time.Millisecond), f.check(ctx, k))
			}
		})
		a, b := acquire(t, r), acquire(t, r)
		release(t, a, b)
		for range 3 {
			l := acquire(t, r)
			require.Equal(t, 2, f.read(&f.opens))
			release(t, l)
		}
		require.Equal(t, 3, checks)
		f.set(func() { b.Value().broken = true })
		release(t, acquire(t, r))
		require.Equal(t, 3, f.read(&f.opens))
		shut(t, r)
	})
}

// What is being checked is not closed; what is idle beside it is.
func TestWhatIsIdleIsClosedBesideAKeepaliveCheck(t *testing.T) {
	for name, closeIdle := range map[string]func(t *testing.T, r *pool) int{
		"EvictIdle": func(_ *testing.T, r *pool) int { return r.EvictIdle() },
		"Yield":     func(_ *testing.T, r *pool) int { return r.CloseIdle(5, 0) },
		"Resize": func(t *testing.T, r *pool) int {
			before := r.Stats().Idle
			require.NoError(t, r.Resize(1))
			synctest.Wait()
			return before - r.Stats().Idle
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				checked := make(chan *conn, 9)
				goOn := make(chan struct{})
				r := f.pool(t, func(c *config) {
					c.CheckInterval = time.Minute
					c.Check = func(_ context.Context, k *conn) error { checked <- k; <-goOn; return nil }
				})
				a, b := acquire(t, r), acquire(t, r)
				release(t, a)
				time.Sleep(time.Second)
				release(t, b)
				require.Same(t, a.Value(), <-checked, "the oldest, which would be the first to go")
				require.Equal(t, 1, closeIdle(t, r))
				synctest.Wait()
				require.False(t, a.Value().closed.Load())
				require.True(t, b.Value().closed.Load())
				close(goOn)
				shut(t, r)
			})
		})
	}
}

// Callers for whom a connection can still be opened, beyond MaxSize too, do not
// count as waiting.
func TestMaxWaitersCountsNobodyForWhomThereIsOverflow(t *testing.T) {
	for _, together := range []int{8, 1} {
		bubble(t, func(t *testing.T, f *fake) {
			f.dial = time.Second
			r := f.pool(t, func(c *config) {
				c.MaxSize, c.MaxWaiters, c.OnExhausted, c.MaxConcurrentOpens = 1, 1, reservoir.Overflow(2), together
			})
			var calls []<-chan outcome
			for range 4 { // three get a connection, one waits
				calls = append(calls, call(t.Context(), r))
				synctest.Wait()
			}
			refused := <-call(t.Context(), r)
			require.ErrorIs(t, refused.err, reservoir.ErrExhausted)
			require.Zero(t, refused.took)
			for _, c := range calls {
				got := <-c
				require.NoError(t, got.err)
				release(t, got.loan)
			}
			shut(t, r)
		})
	}
}

// Checks beside the callers are told of as those of callers are, and opens are
// counted by how they end.
func TestWhatRunsByItselfIsCountedAndTold(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var told []error
		var took time.Duration
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.CheckInterval = 2, time.Minute
			c.Check = func(ctx context.Context, k *conn) error { return cmp.Or(sleep(ctx, time.Second), f.check(ctx, k)) }
			c.Hooks.Checked = func(err error, d time.Duration) { told, took = append(told, err), took+d }
		})
		synctest.Wait()
		require.EqualValues(t, 2, r.Stats().Opens)
		time.Sleep(time.Minute + 3*time.Second)
		synctest.Wait()
		require.Equal(t, []error{nil, nil}, told)
		require.Equal(t, 2*time.Second, took)
		f.set(func() { f.refuse = errRefused })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, r.WaitReady(ctx, 3))
		s := r.Stats()
		require.EqualValues(t, 3, s.Opens)
		require.EqualValues(t, 1, s.OpenFailures)
		require.ErrorIs(t, s.LastOpenError, errRefused)
		shut(t, r)
	})
}

// Close tells of what it leaves: connections, or else hooks.
func TestCloseCountsWhatItLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		inClose bool
		want    int
	}{"connections": {true, 2}, "hooks": {false, 2}} {
		bubble(t, func(t *testing.T, f *fake) {
			goOn := make(chan struct{})
			r := f.pool(t, func(cfg *config) {
				cfg.MinIdle, cfg.CloseTimeout = 2, time.Second
				if c.inClose {
					cfg.Close = func(k *conn) error { <-goOn; return f.close(k) }
				} else {
					cfg.Hooks.Closed = func(reservoir.Reason, error) { <-goOn }
				}
			})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			var left *reservoir.CloseError
			require.ErrorAs(t, r.Close(ctx), &left, name)
			require.Equal(t, c.want, left.Remaining, name)
			require.Zero(t, left.Forced, name)
			require.Equal(t, 2*time.Second, time.Since(began), name)
			close(goOn)
			synctest.Wait()
			require.ErrorIs(t, r.Close(t.Context()), reservoir.ErrClosed)
		})
	}
}

// What is to be done to more than a batch is done at once, not when the first of
// them are done.
func TestTheRestOfABatchIsNotWaitedFor(t *testing.T) {
	const many = 200
	bubble(t, func(t *testing.T, f *fake) {
		f.dial, f.closes = time.Second, time.Minute
		tuned := config{MaxSize: many, MaxConcurrentOpens: -1, MaxLifetime: -1, IdleTTL: time.Minute}
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.MaxSize, c.MaxConcurrentOpens, c.IdleTTL = many, many, -1, time.Minute
		})
		began := time.Now()
		require.NoError(t, r.WaitReady(t.Context(), many))
		require.Equal(t, time.Second, time.Since(began))
		time.Sleep(2 * time.Minute)
		require.Equal(t, many, r.Stats().Idle)
		require.NoError(t, r.Reconfigure(tuned))
		synctest.Wait()
		time.Sleep(time.Second)
		require.Equal(t, many, r.Stats().Closing)
		shut(t, r)
	})
}
