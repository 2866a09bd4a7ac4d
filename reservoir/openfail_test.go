package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// errWithin is an error that ends who asks it.
type errWithin struct{ end func() }

func (*errWithin) Error() string   { return "errWithin" }
func (e *errWithin) Is(error) bool { e.end(); return false }
func (e *errWithin) As(any) bool   { e.end(); return false }

// nilError is no error: who asks it for its cause ends in a panic.
type nilError struct{ err error }

func (e *nilError) Error() string { return "nilError" }
func (e *nilError) Unwrap() error { return e.err }

// An error is the user's code, too: what its methods do ends neither the process nor the place of the open.
func TestAnErrorWhoseMethodsFailIsTheFailureOfItsOpen(t *testing.T) {
	for name, bad := range map[string]error{
		"nil within": (*nilError)(nil),
		"panic":      &errWithin{func() { panic("ouch") }},
		"Goexit":     &errWithin{runtime.Goexit},
	} {
		for at, set := range map[string]func(*config, func() error){
			"Admit": func(c *config, fail func() error) {
				c.Admit = func(context.Context) (func(), error) { return nil, fail() }
			},
			"Open": func(c *config, fail func() error) {
				open := c.Open
				c.Open = func(ctx context.Context) (*conn, error) {
					if err := fail(); err != nil {
						return nil, err
					}
					return open(ctx)
				}
			},
			"Watch": func(c *config, fail func() error) {
				c.Watch = func(*conn, func(error)) {
					if err := fail(); err != nil {
						panic(err)
					}
				}
			},
		} {
			t.Run(at+", "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fake) {
					var works atomic.Bool
					r := f.pool(t, func(c *config) {
						c.MaxSize, c.OpenRetry = 1, reservoir.OpenRetryNever
						set(c, func() error {
							if works.Load() {
								return nil
							}
							return bad
						})
					})
					_, err := r.Acquire(t.Context())
					require.NotErrorIs(t, err, errRefused, "it may be asked")
					require.NotErrorIs(t, r.Stats().LastOpenError, errRefused)
					require.NotZero(t, r.Stats().OpenFailures)
					works.Store(true)
					time.Sleep(time.Minute)
					release(t, acquire(t, r))
					shut(t, r)
				})
			})
		}
	}
}

// Nor does the cause of a caller's context end a wait that nobody is told of.
func TestTheEndOfAWaitIsToldWhateverTheMethodsOfItsCauseDo(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				var waiting atomic.Int64
				r := f.pool(t, func(c *config) {
					c.MaxSize = 1
					c.Hooks.WaitStart = func() { waiting.Add(1) }
					c.Hooks.WaitEnd = func(time.Duration, error) { waiting.Add(-1) }
				})
				held := acquire(t, r)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					defer func() { _ = recover() }()
					_, _ = r.Acquire(ctx)
				}()
				synctest.Wait()
				time.Sleep(time.Second)
				cancel(errors.Join(context.Canceled, &errWithin{end}))
				synctest.Wait()
				assert.Zero(t, waiting.Load())
				s := r.Stats()
				assert.EqualValues(t, 1, s.Canceled)
				assert.Equal(t, time.Second, s.WaitTime)
				release(t, held)
				shut(t, r)
			})
		})
	}
}

// What a failed open has left to be closed is missed after CloseTimeout, as any connection is: others are given
// another.
func TestWhatAFailedOpenHasLeftMayStall(t *testing.T) {
	for _, left := range []bool{true, false} {
		t.Run(fmt.Sprint("left by an open: ", left), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				stuck := make(chan struct{})
				var stalls atomic.Int64
				opens := 0
				r := f.pool(t, func(c *config) {
					c.MaxSize, c.CloseTimeout, c.MinIdle = 2, time.Second, -1
					c.Open = func(ctx context.Context) (*conn, error) {
						if opens++; left && opens == 2 {
							return nil, reservoir.StillClosing(errRefused, stuck)
						}
						return f.open(ctx)
					}
					c.Close = func(x *conn) error {
						if x.broken {
							<-stuck
						}
						return f.close(x)
					}
					c.Hooks.CloseStalled = func(why reservoir.Reason) {
						stalls.Add(1)
						assert.Equal(t, reservoir.Discarded, why)
					}
				})
				a := acquire(t, r)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				if b, err := r.Acquire(ctx); err == nil {
					b.Value().broken = true
					require.NoError(t, b.Discard(errRefused))
				}
				synctest.Wait()
				require.Equal(t, 1, r.Stats().Closing)
				require.Equal(t, 1, r.GiveUp(1), "it is being closed")
				release(t, a)
				synctest.Wait()
				require.False(t, a.Value().closed.Load())
				time.Sleep(2 * time.Second)
				require.Equal(t, 1, r.GiveUp(1))
				synctest.Wait()
				require.True(t, a.Value().closed.Load(), "in place of the one whose close does not end")
				require.EqualValues(t, 1, stalls.Load())
				require.EqualValues(t, 1, r.Stats().CloseStalls)
				close(stuck)
				synctest.Wait()
				require.Zero(t, r.Stats().Total)
				release(t, acquire(t, r))
				shut(t, r)
			})
		})
	}
}

// What another reservoir behind Open closes is that one's.
func TestWhatAReservoirBehindOpenClosesIsNotOnesOwn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		closed := make(chan struct{})
		inner := f.pool(t, func(c *config) {
			c.Open = func(context.Context) (*conn, error) { return nil, reservoir.StillClosing(errRefused, closed) }
			c.OpenRetry = reservoir.OpenRetryNever
		})
		outer := f.pool(t, func(c *config) {
			c.MaxSize, c.OpenRetry = 1, reservoir.OpenRetryNever
			c.Open = func(ctx context.Context) (*conn, error) {
				l, err := inner.Acquire(ctx)
				if err != nil {
					return nil, err
				}
				return l.Value(), nil
			}
		})
		_, err := outer.Acquire(t.Context())
		require.ErrorIs(t, err, errRefused)
		require.Zero(t, outer.Stats().Total)
		require.Zero(t, outer.GiveUp(1))
		require.Equal(t, 1, inner.Stats().Closing)
		close(closed)
		shut(t, outer)
		shut(t, inner)
	})
}

// An open that was permitted and has failed says that the next would, also where a permission has nothing to give back.
func TestAnOpenThatWasPermittedHasFailedByItself(t *testing.T) {
	for name, giveBack := range map[string]func(){"a release": func() {}, "none": nil} {
		bubble(t, func(t *testing.T, f *fake) {
			f.refuse = errRefused
			allow := make(chan struct{}, 1)
			r := f.pool(t, func(c *config) {
				c.MinIdle, c.MaxSize = 1, 1
				c.Admit = func(ctx context.Context) (func(), error) {
					select {
					case <-allow:
						return giveBack, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
			})
			synctest.Wait()
			require.Equal(t, 1, r.WantedPermissions(), name)
			allow <- struct{}{}
			time.Sleep(time.Second)
			require.EqualValues(t, 1, r.Stats().OpenFailures)
			require.Zero(t, r.WantedPermissions(), "%s: nobody waits for it", name)
			shut(t, r)
		})
	}
}
