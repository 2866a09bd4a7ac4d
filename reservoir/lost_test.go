package reservoir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

var errCut = errors.New("cut off")

// A watchman is a Config.Watch that remembers how to report each loss.
type watchman struct {
	mu   sync.Mutex
	lost map[*conn]func(error)
}

func (w *watchman) watch(c *conn, lost func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == nil {
		w.lost = map[*conn]func(error){}
	}
	w.lost[c] = lost
}

// lose reports that c has ended.
func (w *watchman) lose(c *conn) {
	w.mu.Lock()
	lost := w.lost[c]
	w.mu.Unlock()
	lost(errCut)
	lost(errors.New("again"))
}

func TestAnIdleConnectionThatEndsIsClosedAndReplacedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		w := &watchman{}
		f.closes = time.Second
		var why []error
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.Watch = 2, w.watch
			c.Hooks.Closing = func(reason reservoir.Reason, cause error) {
				if reason == reservoir.Lost {
					why = append(why, cause)
				}
			}
		})
		require.NoError(t, r.WaitReady(t.Context(), 2))
		time.Sleep(time.Minute)
		began := time.Now()
		c := f.connections()[0]
		w.lose(c)
		synctest.Wait()
		require.Zero(t, time.Since(began), "without a pause, without a clock")
		require.Equal(t, []error{errCut}, why, "it is being closed")
		require.Equal(t, 1, r.Stats().Closing)
		require.Equal(t, 2, r.Stats().Idle)
		require.Len(t, f.connections(), 3)
		w.lose(c) // says nothing new
		synctest.Wait()
		require.Len(t, f.connections(), 3)
		shut(t, r)
		w.lose(f.connections()[2])
	})
}

func TestALostConnectionThatIsOnLoanIsNotLentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		w := &watchman{}
		var why error
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.Watch = 1, w.watch
			c.Hooks.Closing = func(_ reservoir.Reason, cause error) { why = cause }
		})
		l := acquire(t, r)
		c := l.Value()
		w.lose(c)
		synctest.Wait()
		require.False(t, c.closed.Load(), "it is its borrower's")
		release(t, l)
		synctest.Wait()
		require.True(t, c.closed.Load(), "nobody waits: it is not kept idle")
		require.Equal(t, errCut, why, "the first reason counts")

		l = acquire(t, r)
		w.lose(l.Value())
		waiting := call(t.Context(), r)
		synctest.Wait()
		release(t, l)
		got := <-waiting
		require.NoError(t, got.err)
		require.NotSame(t, l.Value(), got.loan.Value(), "nor handed to a waiter")
		release(t, got.loan)
		shut(t, r)
	})
}

func TestALossDuringACheckAResetOrAnOpenIsNotForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		w := &watchman{}
		during := func(ctx context.Context, c *conn) error {
			_ = sleep(ctx, time.Second)
			w.lose(c)
			return nil // it was quicker than the loss
		}
		r := f.pool(t, func(c *config) { c.MinIdle, c.Watch, c.Check, c.CheckInterval = 1, w.watch, during, time.Minute })
		time.Sleep(time.Minute + 2*time.Second)
		synctest.Wait()
		require.True(t, f.connections()[0].closed.Load(), "in a check")
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)

		r = f.pool(t, func(c *config) { c.Watch, c.Reset = w.watch, during })
		l := acquire(t, r)
		release(t, l)
		synctest.Wait()
		require.True(t, l.Value().closed.Load(), "in a reset")
		shut(t, r)

		first := true
		r = f.pool(t, func(c *config) {
			c.MaxConcurrentOpens = 1
			c.Watch = func(_ *conn, lost func(error)) {
				if first {
					first = false
					lost(nil)
				}
			}
		})
		l = acquire(t, r) // which says that it is not a closed one
		release(t, l)
		shut(t, r)
	})
}

func TestAServerThatDropsWhatItTakesIsAskedAboutOnceASecond(t *testing.T) {
	atOnce := func(_ *conn, lost func(error)) { lost(errCut) }
	soon := func(_ *conn, lost func(error)) { time.AfterFunc(time.Millisecond, func() { lost(errCut) }) }
	for i, drop := range []func(*conn, func(error)){soon, soon, atOnce} {
		size := 1 + 3*(i%2)
		bubble(t, func(t *testing.T, f *fake) {
			r := f.pool(t, func(c *config) { c.MinIdle, c.MaxSize, c.Watch = size, size, drop })
			time.Sleep(10 * time.Second)
			f.set(func() { f.opens = 0 })
			told := false
			for range 600 {
				time.Sleep(time.Minute / 600)
				told = told || errors.Is(r.Stats().LastOpenError, errCut)
			}
			require.True(t, told, "what the pauses are for")
			require.LessOrEqual(t, f.read(&f.opens), (60*2+10)*size, "the first to come through brings the others with it")
			require.GreaterOrEqual(t, f.read(&f.opens), 30)
			shut(t, r)
			time.Sleep(time.Second) // for the timers of soon
		})
	}
}

func TestOldConnectionsThatEndTogetherAreReplacedWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		w := &watchman{}
		r := f.pool(t, func(c *config) { c.MinIdle, c.MaxSize, c.MaxConcurrentOpens, c.Watch = 16, 16, -1, w.watch })
		require.NoError(t, r.WaitReady(t.Context(), 16))
		time.Sleep(2 * time.Second)
		began := time.Now()
		for _, c := range f.connections() {
			w.lose(c)
		}
		require.NoError(t, r.WaitReady(t.Context(), 16))
		require.Zero(t, time.Since(began))
		require.Len(t, f.connections(), 32)
		shut(t, r)
	})
}

// Permissions that are taken back: idle connections go at once, those on loan when they
// come back or by force, and those that were opened since stay.
func TestRecallEndsLoansByForceAndNothingThatWasOpenedSince(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MinIdle, c.MaxSize = 0, 4 })
		brief, long, idle := acquire(t, r), acquire(t, r), acquire(t, r)
		release(t, idle)
		force := r.Recall()
		synctest.Wait()
		require.True(t, idle.Value().closed.Load())
		require.False(t, long.Value().closed.Load())
		release(t, brief)
		synctest.Wait()
		require.True(t, brief.Value().closed.Load())
		since := acquire(t, r)
		require.Equal(t, 1, force(errors.New("revoked")))
		require.Zero(t, force(nil), "once")
		synctest.Wait()
		require.True(t, long.Value().closed.Load())
		require.ErrorIs(t, long.Release(), reservoir.ErrReleased)
		require.False(t, since.Value().closed.Load())
		waits := acquire(t, r) // its place is free
		release(t, since, waits)
		require.EqualValues(t, 3, r.Stats().Closed[reservoir.Outdated])
		shut(t, r)
		require.Zero(t, force(nil), "after Close")
	})
}

// What Release runs may take longer than permissions that are taken back allow a
// connection, as a check may.
func TestRecallEndsWhatAReleaseRunsByForce(t *testing.T) {
	hang := func(ctx context.Context, _ *conn) error { <-ctx.Done(); return ctx.Err() }
	for name, set := range map[string]func(c *config){
		"reset": func(c *config) { c.Reset = hang },
		"check": func(c *config) { c.Check, c.CheckInterval, c.CheckOnRelease = hang, -1, true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) {
					c.MaxSize, c.CheckTimeout = 1, time.Hour
					set(c)
				})
				l := acquire(t, r)
				released := make(chan error, 1)
				go func() { released <- l.Release() }()
				synctest.Wait()
				force := r.Recall()
				time.Sleep(10 * time.Second)
				require.False(t, l.Value().closed.Load(), "it is being made as good as new")
				assert.Zero(t, force(errors.New("revoked")), "no loan")
				synctest.Wait()
				assert.True(t, l.Value().closed.Load())
				require.NoError(t, <-released)
				shut(t, r)
			})
		})
	}
}

// A check may take longer than permissions that are taken back allow a connection.
func TestRecallEndsChecksByForce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.MaxSize, c.CheckInterval, c.CheckTimeout = 1, 1, time.Minute, time.Hour
			c.Check = func(ctx context.Context, _ *conn) error { <-ctx.Done(); return ctx.Err() }
		})
		require.NoError(t, r.WaitReady(t.Context(), 1))
		old := f.connections()[0]
		time.Sleep(90 * time.Second)
		force := r.Recall()
		time.Sleep(10 * time.Second)
		require.False(t, old.closed.Load(), "it is being checked")
		require.Zero(t, force(errors.New("revoked")), "no loan")
		synctest.Wait()
		require.True(t, old.closed.Load())
		shut(t, r)
	})
}
