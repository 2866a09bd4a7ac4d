package callback

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("no")

// The ways in which a function can end.
func returns() (int, error) { return 7, nil }
func fails() (int, error)   { return 0, errRefused }
func panics() (int, error)  { panic(errRefused) }
func exits() (int, error)   { runtime.Goexit(); return 0, nil }

func TestWhatAFunctionComesToIsItsCallers(t *testing.T) {
	for _, tc := range []struct {
		f      func() (int, error)
		is     error
		says   string
		resume string
	}{
		{returns, nil, "", "returned"},
		{fails, errRefused, "no", "returned"},
		{panics, errRefused, "it panicked: no", "panicked"},
		{exits, ErrExited, "it ended its goroutine (runtime.Goexit)", "exited"},
	} {
		ended := false
		a, inTime := Within(t.Context(), 0, tc.f, nil, func() { ended = true })
		require.True(t, inTime)
		require.True(t, ended, "before the caller goes on")
		guarded := make(chan error, 1)
		go Guard("it", func() error { _, err := tc.f(); return err }, func(err error) { guarded <- err })
		for _, err := range []error{a.Failure("it"), Isolate("it", func() error { _, err := tc.f(); return err }), <-guarded} {
			require.ErrorIs(t, err, tc.is)
			if tc.says != "" {
				require.EqualError(t, err, tc.says)
			}
			var caught *PanicError
			if errors.As(err, &caught) {
				require.Contains(t, string(caught.Stack), "callback.panics")
			}
		}
		how := make(chan string, 1)
		go func() {
			end := "exited"
			defer func() {
				if recover() != nil {
					end = "panicked"
				}
				how <- end
			}()
			a.Resume()
			end = "returned"
		}()
		require.Equal(t, tc.resume, <-how)
	}
	require.EqualError(t, &PanicError{Value: 7}, "a callback panicked: 7")
}

func TestACallerWhoseContextHasEndedWaitsForTheGrace(t *testing.T) {
	const grace = time.Second
	for _, after := range []time.Duration{0, grace - 1, grace + 1, time.Hour} {
		for i, f := range []func() (int, error){returns, fails, panics, exits} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				var events []string
				begun := time.Now()
				_, inTime := Within(ctx, grace, func() (int, error) { time.Sleep(after); return f() },
					func(v int) {
						require.Equal(t, 7, v, "only what succeeded")
						events = append(events, "late")
					},
					func() { events = append(events, "end") })
				require.Equal(t, after < grace, inTime)
				require.Equal(t, min(after, grace), time.Since(begun))
				time.Sleep(after)
				synctest.Wait()
				if returned := i == 0; returned && !inTime {
					require.Equal(t, []string{"late", "end"}, events)
				} else {
					require.Equal(t, []string{"end"}, events)
				}
			})
		}
	}
}

func TestAWaitEndsWithWhatItWaitsForOrWithItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		began := time.Now()
		require.False(t, EndsWithin(done, time.Second))
		require.Equal(t, time.Second, time.Since(began))
		time.AfterFunc(time.Second, func() { close(done) })
		require.True(t, EndsWithin(done, time.Minute))
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

// Nobody is there to be told how what is done with a late result has ended.
func TestWhatIsDoneWithALateResultEndsNoProcess(t *testing.T) {
	for _, ends := range []func(){func() { panic("x") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			ended := false
			_, inTime := Within(ctx, 0, func() (int, error) { time.Sleep(time.Second); return 7, nil }, func(int) { ends() }, func() { ended = true; ends() })
			require.False(t, inTime)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.True(t, ended)
		})
	}
}
