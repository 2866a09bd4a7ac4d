package registry_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// What a pool has lent that was removed before, or has a successor, is waited for, and
// taken back, with all the rest, and the error tells of it.
func TestWhatEndsPoolsEndsThoseThatDrainToo(t *testing.T) {
	leaves := map[string]func(d *registry.ServerDefinition){
		"nothing":     func(*registry.ServerDefinition) {},
		"a successor": func(d *registry.ServerDefinition) { d.Users["a"] = registry.UserMapping{User: "another"} },
		"no mapping":  func(d *registry.ServerDefinition) { delete(d.Users, "a") },
	}
	ends := map[string]func(ctx context.Context, g *rig) error{
		"CloseAll":   func(ctx context.Context, g *rig) error { return g.CloseAll(ctx, "s") },
		"Unregister": func(ctx context.Context, g *rig) error { return g.Unregister(ctx, "s") },
		"Close":      func(ctx context.Context, g *rig) error { return g.Close(ctx) },
	}
	for update, change := range leaves {
		for name, end := range ends {
			for _, givenBack := range []bool{false, true} {
				bubble(t, func(t *testing.T, g *rig) {
					d := define(t, g, nil)
					f := g.fake("s")
					held := acquire(t, g, "a")
					d.Users = maps.Clone(d.Users)
					change(&d)
					require.NoError(t, g.Update(t.Context(), d))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if givenBack {
						time.AfterFunc(time.Second/2, func() { _ = held.Release() })
					}
					began := time.Now()
					err := end(ctx, g)
					if givenBack {
						require.NoError(t, err, "%s, %s", update, name)
						require.Equal(t, time.Second/2, time.Since(began), "%s, %s", update, name)
						return
					}
					var drain *registry.DrainError
					require.ErrorAs(t, err, &drain, "%s, %s", update, name)
					require.ErrorIs(t, err, context.DeadlineExceeded, "%s, %s", update, name)
					require.Equal(t, time.Second, time.Since(began), "%s, %s", update, name)
					require.ErrorIs(t, held.Release(), registry.ErrReleased, "%s, %s", update, name)
					require.Zero(t, f.read(&f.live), "%s, %s", update, name)
				})
			}
		}
	}
}

// Close waits for what an Unregister waits for, and no longer than its own context allows.
func TestCloseEndsWithWhatAnUnregisterHasLeft(t *testing.T) {
	for _, givenBack := range []bool{false, true} {
		bubble(t, func(t *testing.T, g *rig) {
			define(t, g, nil)
			held := acquire(t, g, "a")
			unregistered := make(chan error, 1)
			go func() { unregistered <- g.Unregister(t.Context(), "s") }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if givenBack {
				time.AfterFunc(time.Second/2, func() { _ = held.Release() })
			}
			began := time.Now()
			err := g.Close(ctx)
			if givenBack {
				require.NoError(t, err)
				require.NoError(t, <-unregistered)
				require.Equal(t, time.Second/2, time.Since(began))
				return
			}
			var drain *registry.DrainError
			require.ErrorAs(t, err, &drain)
			require.Equal(t, time.Second, time.Since(began))
			require.ErrorAs(t, <-unregistered, &drain)
			require.ErrorIs(t, held.Release(), registry.ErrReleased)
		})
	}
}

// A server that goes with its registry was not unknown.
func TestACallThatTheEndOfTheRegistryMeetsIsToldOfThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, asked := make(chan struct{}), atomic.Int64{}
		r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{moody(func(registry.ConnectParams) error { asked.Add(1); <-release; return nil }, fine)}})
		require.NoError(t, err)
		require.NoError(t, r.Register(t.Context(), moodyServer("s", "a")))
		got := make(chan error, 1)
		go func() {
			_, err := r.Acquire(t.Context(), "s", "a")
			got <- err
		}()
		synctest.Wait()
		require.EqualValues(t, 1, asked.Load())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		closed := make(chan error, 1)
		go func() { closed <- r.Close(ctx) }()
		assert.ErrorIs(t, <-got, registry.ErrClosed)
		close(release)
		require.NoError(t, <-closed)
	})
}
