package reservoir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// Where permissions take longer than callers wait, who comes later finds the connection of those who came before: else
// none would ever be served.
func TestAnOpenThatWasAdmittedAfterItsCallerHasLeftServesTheNext(t *testing.T) {
	for name, leave := range map[string]struct {
		acquireTimeout, deadline time.Duration
	}{"by its context": {-1, time.Second}, "by AcquireTimeout": {time.Second, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake) {
				r := f.pool(t, func(c *config) {
					c.AcquireTimeout = leave.acquireTimeout
					c.Admit = func(ctx context.Context) (func(), error) {
						if err := sleep(ctx, 10*time.Second); err != nil {
							return nil, err
						}
						return f.admit(ctx)
					}
				})
				for range 2 {
					ctx, cancel := context.WithTimeout(t.Context(), leave.deadline)
					_, err := r.Acquire(ctx)
					cancel()
					require.ErrorIs(t, err, reservoir.ErrExhausted)
				}
				time.Sleep(time.Minute)
				got := <-call(t.Context(), r)
				require.NoError(t, got.err)
				require.Zero(t, got.took)
				require.Equal(t, 1, f.read(&f.opens), "no more than one for nobody")
				release(t, got.loan)
				shut(t, r)
			})
		})
	}
}

// What was wanted by a caller who has left is not, once there is an idle connection, nor for ever.
func TestWhoHasLeftWantsNoMoreThanOneConnection(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		permits := make(chan error)
		r := f.pool(t, func(c *config) {
			c.Admit = func(ctx context.Context) (func(), error) {
				select {
				case err := <-permits:
					if err != nil {
						return nil, err
					}
					return f.admit(ctx)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		leaveSoon := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		first := call(t.Context(), r)
		synctest.Wait()
		permits <- nil
		held := (<-first).loan
		serveNextByReturn := func() {
			next := call(t.Context(), r)
			synctest.Wait()
			release(t, held)
			held = (<-next).loan
		}

		leaveSoon()
		permits <- errors.New("there is none")
		time.Sleep(time.Minute)
		require.Zero(t, r.Stats().Opening, "nobody asks again for one who has left")
		serveNextByReturn()
		permits <- nil
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.opens), "the one who has left is forgotten")

		leaveSoon()
		serveNextByReturn()
		release(t, held)
		permits <- nil
		synctest.Wait()
		require.Equal(t, 1, f.read(&f.opens), "one is idle")
		shut(t, r)
	})
}

// Of several opens that wait for permissions, the first that gets one is opened, however many more wait than are still
// wanted: a permission that is given back may be spent, as that of a rate is.
func TestTheFirstPermissionIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		turn := make(chan struct{}, 1)
		turn <- struct{}{}
		r := f.pool(t, func(c *config) {
			c.Admit = func(ctx context.Context) (func(), error) { // one a second
				select {
				case <-turn:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				defer func() { turn <- struct{}{} }()
				if err := sleep(ctx, time.Second); err != nil {
					return nil, err
				}
				return f.admit(ctx)
			}
		})
		staying := call(t.Context(), r)
		ctx, leave := context.WithCancel(t.Context())
		for range 3 {
			call(ctx, r)
		}
		synctest.Wait()
		leave()
		got := <-staying
		require.Equal(t, time.Second, got.took)
		time.Sleep(time.Minute)
		require.Equal(t, 1, f.read(&f.opens))
		require.EqualValues(t, 3, r.Stats().OpensSkipped)
		release(t, got.loan)
		shut(t, r)
	})
}

// A permission is wanted for as long as somebody waits for its connection, or has left without one.
func TestPermissionsAreWantedAsCallersAre(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		r := f.pool(t, func(c *config) {
			c.Admit = func(ctx context.Context) (func(), error) {
				if f.read(&f.leases) == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return f.admit(ctx)
			}
		})
		held := acquire(t, r)
		require.Zero(t, r.WantedPermissions())
		ctx, leave := context.WithCancel(t.Context())
		var callers []<-chan outcome
		for range 3 {
			callers = append(callers, call(ctx, r))
			synctest.Wait()
		}
		require.Equal(t, 3, r.WantedPermissions())
		release(t, held)
		held = (<-callers[0]).loan
		require.Equal(t, 2, r.WantedPermissions(), "one was served by a return")
		release(t, held)
		held = (<-callers[1]).loan
		leave()
		require.Error(t, (<-callers[2]).err)
		require.Equal(t, 1, r.WantedPermissions(), "for the next")
		release(t, held)
		require.Zero(t, r.WantedPermissions(), "one is idle")
		require.Equal(t, 3, r.Stats().Opening)
		shut(t, r)
	})
}
