package reservoir_test

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// lasting gives every connection the same remaining life.
func lasting(d time.Duration) func(*conn) time.Time {
	return func(c *conn) time.Time { return c.born.Add(d) }
}

func TestAConnectionIsNotLentAfterItsOwnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MaxConcurrentOpens, c.GuardWindow, c.ExpiresAt = 2, 1, 10*time.Second, lasting(100*time.Second)
		})
		f.set(func() { f.sessions = 1 }) // no replacement before the end
		l := acquire(t, r)
		first := l.Value()
		time.Sleep(time.Until(first.born.Add(90*time.Second - 1)))
		release(t, l)
		l = acquire(t, r)
		require.Same(t, first, l.Value(), "one nanosecond is left")
		time.Sleep(time.Nanosecond)
		f.set(func() { f.sessions = 0 })
		release(t, l)
		l = acquire(t, r)
		require.NotSame(t, first, l.Value())
		release(t, l)
		shut(t, r)
	})
}

func TestConnectionsAreReplacedBeforeTheirOwnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial = time.Second
		r := f.pool(t, func(c *config) { c.MinIdle, c.GuardWindow, c.ExpiresAt = 2, 10*time.Second, lasting(5*time.Minute) })
		require.NoError(t, r.WaitReady(t.Context(), 2))
		for range 30 * 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			require.GreaterOrEqual(t, r.Stats().Idle, 2)
		}
		require.LessOrEqual(t, f.read(&f.opens), 2*30/3)
		shut(t, r)
	})
}

func TestTheEarlierOfLifetimeAndExpiresAtCounts(t *testing.T) {
	for name, c := range map[string]struct{ own, want time.Duration }{
		"lifetime": {time.Hour, 90 * time.Second}, "its own": {time.Minute, 50 * time.Second}, "no bound": {0, 90 * time.Second},
		"longer than time": {1 << 62, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(cfg *config) {
					lives(100 * time.Second)(cfg)
					cfg.ExpiresAt = func(x *conn) time.Time {
						if c.own == 0 {
							return time.Time{}
						}
						return x.born.Add(c.own)
					}
				})
				l := acquire(t, r)
				f.set(func() { f.sessions = 1 }) // no replacement before the end
				first := l.Value()
				time.Sleep(c.want - 1)
				release(t, l)
				l = acquire(t, r)
				require.Same(t, first, l.Value())
				time.Sleep(time.Nanosecond)
				f.set(func() { f.sessions = 0 })
				release(t, l)
				l = acquire(t, r)
				require.NotSame(t, first, l.Value())
				release(t, l)
				shut(t, r)
			})
		})
	}
}

func TestANewConnectionThatCannotBeLentIsAFailedOpen(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*conn) time.Time
		want string
	}{
		"too short": {lasting(10 * time.Second), "within GuardWindow 10s"},
		"panic":     {func(*conn) time.Time { panic("ouch") }, "ouch"},
		"goexit":    {func(*conn) time.Time { runtime.Goexit(); return time.Time{} }, "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				var told []error
				opened := 0
				r := f.pool(t, func(cfg *config) {
					cfg.ExpiresAt = c.tell
					cfg.Hooks.OpenFailed = func(err error, _ time.Duration) { told = append(told, err) }
					cfg.Hooks.Opened = func(time.Duration) { opened++ }
				})
				got := <-call(t.Context(), r)
				require.ErrorContains(t, got.err, c.want)
				var failed *reservoir.OpenError
				require.True(t, errors.As(got.err, &failed))
				require.Zero(t, got.took)
				synctest.Wait()
				require.Len(t, told, 1, "operators hear of it as of any")
				require.ErrorIs(t, got.err, told[0])
				require.Equal(t, 1, opened, "as it is closed, too")
				require.ErrorAs(t, told[0], new(*reservoir.UnusableError))
				require.EqualValues(t, 1, r.Stats().OpenFailures)
				require.ErrorIs(t, r.Stats().LastOpenError, told[0])
				shut(t, r)
			})
		})
	}
}

func TestAWatchThatPanicsOrEndsItsGoroutineIsAFailedOpen(t *testing.T) {
	for name, watch := range map[string]func(*conn, func(error)){
		"panic":  func(*conn, func(error)) { panic("ouch") },
		"goexit": func(*conn, func(error)) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) { c.Watch = watch })
				got := <-call(t.Context(), r)
				var failed *reservoir.OpenError
				require.True(t, errors.As(got.err, &failed), "%v", got.err)
				shut(t, r)
			})
		})
	}
}
