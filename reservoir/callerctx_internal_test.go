//go:build invariants

package reservoir

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lockOwner knows which goroutine has the lock.
type lockOwner struct{ goroutine atomic.Pointer[string] }

func (o *lockOwner) locked()    { o.goroutine.Store(thisGoroutine()) }
func (o *lockOwner) unlocking() { o.goroutine.Store(nil) }

// thisGoroutine is the calling goroutine as a stack names it.
func thisGoroutine() *string {
	text := make([]byte, 64)
	name, _, _ := strings.Cut(string(text[:runtime.Stack(text, false)]), "[")
	return &name
}

// A lookingContext notes whether a method of it is called under the lock.
type lookingContext struct {
	context.Context
	owner  *lockOwner
	locked *[]string
}

func (c lookingContext) look(method string) {
	if owner := c.owner.goroutine.Load(); owner != nil && *owner == *thisGoroutine() {
		*c.locked = append(*c.locked, method)
	}
}

func (c lookingContext) Done() <-chan struct{}       { c.look("Done"); return c.Context.Done() }
func (c lookingContext) Err() error                  { c.look("Err"); return c.Context.Err() }
func (c lookingContext) Deadline() (time.Time, bool) { c.look("Deadline"); return c.Context.Deadline() }
func (c lookingContext) Value(key any) any           { c.look("Value"); return c.Context.Value(key) }

// A ctx of the caller's own make may take a lock of the caller's, call the
// reservoir, or panic.
func TestNoMethodOfACallersContextIsCalledUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config[int]{
			Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil },
			Check: func(context.Context, int) error { return nil }, MaxSize: 1,
		})
		require.NoError(t, err)
		owner := &lockOwner{}
		r.mu.Mutex.Lock()
		r.mu.observer = owner
		r.mu.Mutex.Unlock()
		var locked []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		looking := lookingContext{ctx, owner, &locked}
		calls := map[string]func() error{
			"Acquire": func() error {
				l, err := r.Acquire(looking)
				if err == nil {
					err = l.Release()
				}
				return err
			},
			"Prove":     func() error { return r.CheckOne(looking) },
			"WaitReady": func() error { return r.WaitReady(looking, 1) },
		}
		for name, call := range calls {
			require.NoError(t, call(), name)
			held, err := r.Acquire(t.Context())
			require.NoError(t, err)
			var wg sync.WaitGroup
			wg.Go(func() { _ = call() })
			synctest.Wait()
			require.NoError(t, held.Release())
			wg.Wait()
		}
		held, err := r.Acquire(t.Context())
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, call := range calls {
			wg.Go(func() { _ = call() })
		}
		wg.Go(func() { _ = r.Close(looking) })
		synctest.Wait()
		cancel()
		wg.Wait()
		require.ErrorIs(t, held.Release(), ErrReleased)
		for _, call := range calls {
			require.Error(t, call(), "ended before it came")
		}
		require.Empty(t, locked)
	})
}
