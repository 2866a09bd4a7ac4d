package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A shardless store answers for the budget's record and, while it lasts, for no
// shard.
type shardless struct {
	*Memory
	over bool
}

func (s *shardless) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	if !s.over && strings.HasPrefix(keys[0], "shard#") {
		<-ctx.Done()
		return Snapshot{}, ctx.Err()
	}
	return s.Memory.Read(ctx, keys...)
}

func (s *shardless) Write(ctx context.Context, c Change) (Answer, error) {
	if !s.over && strings.HasPrefix(c.Key, "shard#") {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}
	return s.Memory.Write(ctx, c)
}

// Where nothing can be taken, the Fallback decides, although the budget's record
// is renewed.
func TestTheFallbackDecidesWhileNoShardAnswers(t *testing.T) {
	for _, grants := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			store := &shardless{Memory: NewMemory()}
			l, err := New(t.Context(), store, Config{Budget: "b", Limit: 10, Fallback: lease.Share(grants)})
			require.NoError(t, err)
			for range 40 { // ten minutes
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				var releases []func()
				for {
					release, err := l.Acquire(ctx)
					if err != nil {
						require.ErrorIs(t, err, lease.ErrUnavailable)
						break
					}
					releases = append(releases, release)
				}
				require.NoError(t, ctx.Err(), "at once")
				cancel()
				require.Len(t, releases, grants)
				require.True(t, l.Stats().Degraded)
				for _, release := range releases {
					release()
				}
				time.Sleep(15 * time.Second)
			}
			store.over = true
			time.Sleep(5 * time.Second)
			require.False(t, l.Stats().Degraded)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 10 {
				release, err := l.Acquire(ctx)
				require.NoError(t, err, errors.Unwrap(err))
				defer release()
			}
			require.Zero(t, l.Stats().Unbacked)
			l.halt()
		})
	}
}
