package flightpool

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// header is give for tests that look at the header alone.
func (t *tokens) header(ctx context.Context, rejected string) (string, error) {
	c, err := t.give(ctx, rejected)
	return c.Header, err
}

func TestAFetchOutlivesTheCallerWhoNeededItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tokens := newTokens(t.Context(), func(ctx context.Context) (string, time.Time, error) {
			calls++
			select {
			case <-time.After(3 * time.Second):
				return "t", time.Time{}, nil
			case <-ctx.Done():
				return "", time.Time{}, ctx.Err()
			}
		})
		hurried, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := tokens.header(hurried, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		h, err := tokens.header(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "Bearer t", h)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, 1, calls)
		tokens.close()
	})
}

func TestAFailedFetchIsSharedByThoseWhoWaitedAndTriedAgainLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		calls := 0
		tokens := newTokens(t.Context(), func(context.Context) (string, time.Time, error) {
			calls++
			time.Sleep(time.Second)
			return "", time.Time{}, down
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, err := tokens.header(t.Context(), "")
				require.ErrorIs(t, err, down)
			})
		}
		all.Wait()
		require.Equal(t, 1, calls)
		_, err := tokens.header(t.Context(), "")
		require.ErrorIs(t, err, down)
		require.Equal(t, 2, calls)
	})
}

func TestClosingEndsAFetchAndAnEndlessOneEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endless := func(ctx context.Context) (string, time.Time, error) {
			<-ctx.Done()
			return "", time.Time{}, ctx.Err()
		}
		tokens := newTokens(t.Context(), endless)
		start := time.Now()
		_, err := tokens.header(t.Context(), "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, fetchLimit, time.Since(start))

		go func() {
			time.Sleep(time.Second)
			tokens.close()
		}()
		_, err = tokens.header(t.Context(), "")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, fetchLimit+time.Second, time.Since(start))
		_, err = tokens.header(t.Context(), "")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestAShortLivedTokenIsUsedForHalfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		tokens := newTokens(t.Context(), func(context.Context) (string, time.Time, error) {
			calls++
			return "t", time.Now().Add(4 * time.Second), nil
		})
		defer tokens.close()
		for _, want := range []int{1, 1, 2, 2, 3} { // at 0, 1, 2, 3 and 4 s
			_, err := tokens.header(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, want, calls)
			time.Sleep(time.Second)
		}
	})
}
