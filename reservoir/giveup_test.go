package reservoir_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

func TestConnectionsInUseAreGivenUpAsTheyComeBack(t *testing.T) {
	for name, back := range map[string]func(t *testing.T, r *pool, l loan){
		"released":  func(t *testing.T, _ *pool, l loan) { release(t, l) },
		"discarded": func(t *testing.T, _ *pool, l loan) { require.NoError(t, l.Discard(nil)) },
	} {
		for _, resets := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					asked := 0
					r := f.pool(t, func(c *config) {
						c.MaxSize, c.MinIdle = 4, -1
						if resets {
							c.Reset = func(context.Context, *conn) error { asked++; return nil }
						}
					})
					a, b, c, d := acquire(t, r), acquire(t, r), acquire(t, r), acquire(t, r)
					release(t, d)
					asked = 0
					require.Equal(t, 3, r.GiveUp(3), "one is idle, two will come back")
					synctest.Wait()
					require.Equal(t, 1, r.Stats().Idle+r.Stats().InUse-2, "the idle one is closed at once")
					for _, l := range []loan{a, b} {
						back(t, r, l)
						synctest.Wait()
						require.True(t, l.Value().closed.Load())
					}
					require.Zero(t, asked, "what is closed is not reset before")
					release(t, c)
					require.False(t, c.Value().closed.Load(), "no more than were asked for")
					require.Equal(t, 1, r.Stats().Idle)
					shut(t, r)
				})
			})
		}
	}
}

func TestWaitersGetNoConnectionThatIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		allow := make(chan struct{}, 8)
		allow <- struct{}{}
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle = 1, -1
			c.Admit = func(ctx context.Context) (func(), error) {
				select {
				case <-allow:
					return func() {}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		a := acquire(t, r)
		served := make(chan loan)
		go func() { served <- acquire(t, r) }()
		synctest.Wait()
		require.Equal(t, 1, r.GiveUp(1))
		release(t, a)
		synctest.Wait()
		require.True(t, a.Value().closed.Load())
		require.Equal(t, 1, r.Stats().Waiting, "whoever waits needs another permission")
		allow <- struct{}{}
		release(t, <-served)
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

func TestWhatDoesNotComeBackIsNotSaidToBeGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 3, -1 })
		a, b, c := acquire(t, r), acquire(t, r), acquire(t, r)
		require.Equal(t, 2, r.GiveUp(2))
		time.Sleep(4 * time.Second)
		require.Equal(t, 2, r.GiveUp(2))
		time.Sleep(time.Second)
		require.Zero(t, r.GiveUp(2), "for five seconds none has come back")
		release(t, a)
		synctest.Wait()
		require.True(t, a.Value().closed.Load(), "but it is given up then")
		require.Equal(t, 1, r.GiveUp(1), "one has come back")
		require.Zero(t, r.GiveUp(0))
		release(t, b)
		require.False(t, b.Value().closed.Load(), "nobody wants it any more")
		b = acquire(t, r)
		require.Equal(t, 1, r.GiveUp(1))
		time.Sleep(5 * time.Minute)
		release(t, b, c)
		require.False(t, b.Value().closed.Load(), "five minutes are over")
		require.Equal(t, 2, r.Stats().Idle)
		shut(t, r)
	})
}

func TestNoMoreAreGivenUpThanWereInUse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.dial, f.closes = time.Second, time.Minute
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 4, -1 })
		a := acquire(t, r)
		opened := make(chan loan)
		go func() { opened <- acquire(t, r) }()
		synctest.Wait()
		require.Equal(t, 1, r.GiveUp(5), "one is in use, one is being opened")
		b := <-opened
		release(t, a)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Closing)
		require.Equal(t, 1, r.GiveUp(1), "which is being closed already")
		release(t, b)
		require.False(t, b.Value().closed.Load())
		require.Equal(t, 1, r.Stats().Idle, "what was opened since was not promised")
		require.Equal(t, 2, r.GiveUp(2), "of which one is being closed already")
		require.Zero(t, r.Stats().Idle)
		c := acquire(t, r)
		require.Equal(t, 3, r.GiveUp(3))
		release(t, c)
		require.Zero(t, r.Stats().Idle)
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestWhatIsNotGivenUpAnyMoreIsReset(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		reset := 0
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle = 1, -1
			c.Reset = func(context.Context, *conn) error { reset++; return nil }
		})
		a := acquire(t, r)
		require.Equal(t, 1, r.GiveUp(1))
		time.Sleep(5 * time.Minute)
		release(t, a)
		require.Equal(t, 1, reset)
		a = acquire(t, r)
		require.Equal(t, 1, r.GiveUp(1), "what was said before does not count")
		require.Zero(t, r.GiveUp(0))
		release(t, a)
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

// Who says that nothing comes back is asked for more by those who reckon with that.
func TestNoMoreIsPromisedOfWhatDoesNotComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 5, -1 })
		a, b, c, d, e := acquire(t, r), acquire(t, r), acquire(t, r), acquire(t, r), acquire(t, r)
		require.Equal(t, 1, r.GiveUp(1))
		time.Sleep(time.Minute)
		require.Zero(t, r.GiveUp(4))
		release(t, a, b)
		synctest.Wait()
		require.True(t, a.Value().closed.Load())
		require.False(t, b.Value().closed.Load(), "no more than was asked for")
		release(t, c)
		require.Equal(t, 3, r.GiveUp(3), "two are idle, and one has come back lately")
		require.Equal(t, 2, r.Stats().InUse)
		require.Zero(t, r.Stats().Idle)
		release(t, d, e)
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

// Opens that fail are made again for nobody, too: nothing is given up for these.
func TestPermissionsForOpensThatFailAreWantedByCallersAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse = errRefused
		allow := make(chan struct{}, 1)
		r := f.pool(t, func(c *config) {
			c.MinIdle = 1
			c.Admit = f.admitFrom(allow)
		})
		synctest.Wait()
		require.Equal(t, 1, r.WantedPermissions(), "MinIdle")
		allow <- struct{}{}
		time.Sleep(time.Minute)
		require.Equal(t, 1, r.Stats().Opening)
		require.Zero(t, r.WantedPermissions())
		got := call(t.Context(), r)
		synctest.Wait()
		require.Equal(t, 1, r.WantedPermissions())
		f.set(func() { f.refuse = nil })
		allow <- struct{}{}
		release(t, (<-got).loan)
		shut(t, r)
	})
}

// Behind an outage of what grants permissions, none of which says anything of the server, MinIdle is wanted as ever.
func TestAPermissionThatFailsSaysNothingOfOpens(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		var back atomic.Bool
		r := f.pool(t, func(c *config) {
			c.MinIdle = 1
			c.Admit = func(ctx context.Context) (func(), error) {
				if !back.Load() { // one at a time
					return nil, errRefused
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		synctest.Wait()
		back.Store(true)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, r.Stats().Opening)
		require.Equal(t, 1, r.WantedPermissions())
		shut(t, r)
	})
}

func TestWhatSaysThatOpensFailHolds(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(t *testing.T, r *pool, f *fake, allow chan struct{}, lose func())
		wanted  int
	}{
		"nothing": {func(*testing.T, *pool, *fake, chan struct{}, func()) {}, 0},
		"a reset": {func(_ *testing.T, r *pool, _ *fake, _ chan struct{}, _ func()) { r.Reset() }, 1},
		"a success": {func(t *testing.T, r *pool, f *fake, allow chan struct{}, _ func()) {
			f.set(func() { f.refuse = nil })
			got := call(t.Context(), r)
			allow <- struct{}{}
			require.NoError(t, (<-got).loan.Discard(nil))
		}, 1},
		"a success that is lost at once": {func(t *testing.T, r *pool, f *fake, allow chan struct{}, lose func()) {
			f.set(func() { f.refuse = nil })
			got := call(t.Context(), r)
			allow <- struct{}{}
			release(t, (<-got).loan)
			lose()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				f.refuse = errRefused
				allow := make(chan struct{}, 1)
				var lost atomic.Pointer[func(error)]
				r := f.pool(t, func(c *config) {
					c.MinIdle = 1
					c.Watch = func(_ *conn, report func(error)) { lost.Store(&report) }
					c.Admit = f.admitFrom(allow)
				})
				allow <- struct{}{}
				time.Sleep(time.Minute)
				c.happens(t, r, f, allow, func() { (*lost.Load())(errCut) })
				time.Sleep(time.Minute)
				require.Equal(t, 1, r.Stats().Opening)
				require.Equal(t, c.wanted, r.WantedPermissions())
				shut(t, r)
			})
		})
	}
}

// One who waits until the pool is ready waits over opens that fail, and who has left before its connection came would never be served.
func TestPermissionsForOpensThatFailAreWantedByAllWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.refuse = errRefused
		allow := make(chan struct{}, 1)
		r := f.pool(t, func(c *config) {
			c.MinIdle, c.MaxSize = 1, 4
			c.Admit = f.admitFrom(allow)
		})
		allow <- struct{}{}
		time.Sleep(time.Minute)
		require.Zero(t, r.WantedPermissions())
		for _, wait := range []func(context.Context) error{
			func(ctx context.Context) error { return r.WaitReady(ctx, 3) },
			func(ctx context.Context) error { _, err := r.Acquire(ctx); return err },
		} {
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- wait(ctx) }()
			synctest.Wait()
			require.Equal(t, 1, r.WantedPermissions(), "one open at a time while they fail")
			leave()
			require.Error(t, <-left)
		}
		require.Equal(t, 1, r.WantedPermissions(), "of a caller who has left")
		allow <- struct{}{}
		time.Sleep(time.Minute)
		require.Zero(t, r.WantedPermissions(), "it has had its open")
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, r.WantedPermissions(), "MinIdle: no open has been made for as long, and the server may be there")
		allow <- struct{}{}
		time.Sleep(time.Minute)
		require.Zero(t, r.WantedPermissions(), "it is not")
		shut(t, r)
	})
}

// Who is asked for all gives up all, whatever it was asked for before.
func TestAllAreGivenUpWhateverWasPromisedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle = 3, -1 })
		a, b, c := acquire(t, r), acquire(t, r), acquire(t, r)
		require.Equal(t, 1, r.GiveUp(1))
		time.Sleep(time.Minute) // nothing comes back
		r.GiveUp(math.MaxInt)
		release(t, a, b, c)
		synctest.Wait()
		for _, l := range []loan{a, b, c} {
			require.True(t, l.Value().closed.Load())
		}
		require.Zero(t, r.Stats().Idle)
		shut(t, r)
	})
}

// A Close that hangs gives nothing up.
func TestWhatHangsInItsCloseIsNotSaidToBeGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.closes = time.Hour
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.CloseTimeout = 2, -1, time.Second })
		a, b := acquire(t, r), acquire(t, r)
		require.NoError(t, a.Discard(nil))
		release(t, b)
		synctest.Wait()
		require.Equal(t, 1, r.GiveUp(1), "it is being closed")
		require.Equal(t, 1, r.Stats().Idle)
		time.Sleep(2 * time.Second) // CloseTimeout is over
		f.set(func() { f.closes = 0 })
		require.Equal(t, 1, r.GiveUp(1))
		synctest.Wait()
		require.Zero(t, r.Stats().Idle, "another goes in its place")
		time.Sleep(time.Hour)

		f.set(func() { f.closes = time.Millisecond })
		a, b = acquire(t, r), acquire(t, r)
		require.NoError(t, a.Discard(nil))
		release(t, b)
		synctest.Wait()
		require.Equal(t, 1, r.GiveUp(1), "that which hung is closed")
		require.Equal(t, 1, r.Stats().Idle)
		shut(t, r)
	})
}

// An open that fails gives its permission to others, as a connection does that is closed.
func TestAnOpenThatFailsCountsAsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) { c.MaxSize, c.MinIdle, c.Admit = 4, -1, f.admit })
		a := acquire(t, r)
		f.set(func() { f.dial, f.refuse = time.Second, errRefused })
		got := call(t.Context(), r)
		synctest.Wait()
		require.Equal(t, 1, r.GiveUp(1))
		time.Sleep(1500 * time.Millisecond) // the open has failed
		release(t, a)
		synctest.Wait()
		require.False(t, a.Value().closed.Load(), "others have had one permission")
		f.set(func() { f.refuse = nil })
		release(t, (<-got).loan)
		shut(t, r)
	})
}

// The same of one that is not made, since there is no room for it any more.
func TestAnOpenThatIsSkippedCountsAsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		allow := make(chan struct{}, 1)
		r := f.pool(t, func(c *config) {
			c.MaxSize, c.MinIdle = 2, -1
			c.Admit = f.admitFrom(allow)
		})
		allow <- struct{}{}
		a := acquire(t, r)
		got := call(t.Context(), r)
		synctest.Wait()
		require.NoError(t, r.Resize(1))
		require.Equal(t, 1, r.GiveUp(1))
		allow <- struct{}{}
		synctest.Wait()
		require.EqualValues(t, 1, r.Stats().OpensSkipped)
		release(t, a)
		require.False(t, a.Value().closed.Load(), "others have had one permission")
		release(t, (<-got).loan)
		shut(t, r)
	})
}

// What a failed open has made is given up once it is closed.
func TestWhatAFailedOpenHasLeftCountsAsGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(*pool, int) int{"GiveUp": (*pool).GiveUp, "GiveUpOpened": (*pool).GiveUpOpened} {
		bubble(t, func(t *testing.T, f *fake) {
			allow, closed, opens := make(chan struct{}, 1), make(chan struct{}), 0
			r := f.pool(t, func(c *config) {
				c.MaxSize, c.MinIdle = 2, -1
				c.Admit = f.admitFrom(allow)
				c.Open = func(ctx context.Context) (*conn, error) {
					if opens++; opens == 2 {
						return nil, reservoir.StillClosing(errRefused, closed)
					}
					return f.open(ctx)
				}
			})
			allow <- struct{}{}
			a := acquire(t, r)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			got := call(ctx, r)
			synctest.Wait()
			require.Equal(t, 1, giveUp(r, 1), name)
			allow <- struct{}{}
			synctest.Wait()
			require.Equal(t, 1, r.Stats().Closing)
			leave()
			<-got
			release(t, a)
			synctest.Wait()
			require.False(t, a.Value().closed.Load(), name)
			close(closed)
			shut(t, r)
		})
	}
}

// What an open gives back that fails, or is not wanted any more, is a permission of Admit.
func TestAnOpenThatFailsGivesNothingUpOfWhatOpenTakes(t *testing.T) {
	for name, end := range map[string]func(f *fake, r *pool) error{
		"it fails":         func(f *fake, _ *pool) error { f.set(func() { f.refuse = errRefused }); return nil },
		"there is no room": func(_ *fake, r *pool) error { return r.Resize(1) },
	} {
		for _, ofOpen := range []bool{true, false} {
			bubble(t, func(t *testing.T, f *fake) {
				allow := make(chan struct{}, 1)
				r := f.pool(t, func(c *config) {
					c.MaxSize, c.MinIdle = 2, -1
					c.Admit = f.admitFrom(allow)
				})
				allow <- struct{}{}
				a := acquire(t, r)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				got := call(ctx, r)
				synctest.Wait()
				giveUp := r.GiveUp
				if ofOpen {
					giveUp = r.GiveUpOpened
				}
				require.Equal(t, 1, giveUp(1), name)
				require.NoError(t, end(f, r))
				allow <- struct{}{}
				synctest.Wait()
				leave()
				<-got
				require.NoError(t, a.Release())
				synctest.Wait()
				require.Equal(t, ofOpen, a.Value().closed.Load(), name)
				shut(t, r)
			})
		}
	}
}
