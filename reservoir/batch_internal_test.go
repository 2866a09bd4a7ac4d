//go:build invariants

package reservoir

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A tally counts what each section under the lock has done.
type tally struct {
	r                         *Reservoir[int]
	waiters, closing, opening int // when the section began
	failed, closed, opened    int // at most, by one section

	section, atSection int
	then               func() // called in that section, counted from 1
}

func (y *tally) locked() {
	m := &y.r.mu
	y.section++
	if y.section == y.atSection {
		y.then()
	}
	y.waiters, y.closing, y.opening = m.waiters.n, m.count[closing], m.count[opening]
}

func (y *tally) unlocking() {
	m := &y.r.mu
	y.failed = max(y.failed, y.waiters-m.waiters.n)
	y.closed = max(y.closed, m.count[closing]-y.closing)
	y.opened = max(y.opened, m.count[opening]-y.opening)
}

// So many that a quarter, which are replaced at a time, are more than a batch.
const ofEach = 4*batch + 7

// Whatever happens to many at once is done in batches: this counts what
// TestNoSectionUnderTheLockIsLong measures.
func TestNoSectionUnderTheLockDoesMoreThanABatch(t *testing.T) {
	type scene struct {
		r       *Reservoir[int]
		loans   []Loan[int]
		waiting []*waiter[int]
		cancel  context.CancelFunc
	}
	hold := func(t *testing.T, s *scene) {
		for range ofEach {
			l, err := s.r.Acquire(t.Context())
			require.NoError(t, err)
			s.loans = append(s.loans, l)
		}
	}
	queue := func(t *testing.T, s *scene) {
		ctx, cancel := context.WithCancel(t.Context())
		s.cancel = cancel
		s.r.mu.Mutex.Lock()
		for range ofEach {
			w := s.r.newWaiter(ctx)
			s.r.enqueue(w)
			s.waiting = append(s.waiting, w)
		}
		s.r.mu.Mutex.Unlock()
	}
	idle := func(t *testing.T, s *scene) {
		hold(t, s)
		for _, l := range s.loans {
			require.NoError(t, l.Release())
		}
	}
	for name, c := range map[string]struct {
		prepare []func(t *testing.T, s *scene)
		happen  func(t *testing.T, s *scene)
		set     func(c *Config[int])
	}{
		"Close of idle ones": {[]func(*testing.T, *scene){idle}, func(t *testing.T, s *scene) { _ = s.r.Close(t.Context()) }, nil},
		"Close of waiters":   {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, s *scene) { s.r.beginClose() }, nil},
		"Close by force": {[]func(*testing.T, *scene){hold}, func(t *testing.T, s *scene) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = s.r.Close(ctx)
		}, nil},
		"Reset":     {[]func(*testing.T, *scene){idle}, func(_ *testing.T, s *scene) { s.r.Reset() }, nil},
		"EvictIdle": {[]func(*testing.T, *scene){idle}, func(_ *testing.T, s *scene) { s.r.EvictIdle() }, nil},
		"Resize":    {[]func(*testing.T, *scene){idle}, func(t *testing.T, s *scene) { require.NoError(t, s.r.Resize(1)) }, nil},
		"IdleTTL":   {[]func(*testing.T, *scene){idle}, func(_ *testing.T, _ *scene) { time.Sleep(time.Hour / 2) }, func(c *Config[int]) { c.IdleTTL = time.Minute }},
		"MaxLifetime": {
			[]func(*testing.T, *scene){idle}, func(_ *testing.T, _ *scene) { time.Sleep(70 * time.Second) },
			func(c *Config[int]) { c.MaxLifetime, c.LifetimeJitter, c.ReplaceAfter = time.Minute, -1, time.Minute },
		},
		"FailWaiters":    {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, s *scene) { s.r.FailWaiters(nil) }, nil},
		"AcquireTimeout": {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, _ *scene) { time.Sleep(time.Hour) }, nil},
		"those who leave": {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, s *scene) {
			for _, w := range s.waiting[1:] { // while the first is at work
				w.status.Store(waiterLeft)
				s.r.leavers.inQueue.Add(1)
				s.r.leavers.push(w)
			}
			s.r.removeLeavers(s.r.leavers.head.Load(), nil)
		}, nil},
		"a failed open": {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, s *scene) {
			var fx effects[int]
			s.r.mu.Lock()
			s.r.failWaitersUpTo(s.r.mu.lastWaiter, errNoReason, false, &fx)
			s.r.unlock(&fx)
		}, nil},
		"FailFast": {[]func(*testing.T, *scene){hold, queue}, func(_ *testing.T, s *scene) {
			var fx effects[int]
			s.r.mu.Lock()
			s.r.reconcile(&fx)
			s.r.unlock(&fx)
		}, func(c *Config[int]) { c.OnExhausted = FailFast }},
		"replacement": {[]func(*testing.T, *scene){idle}, func(_ *testing.T, s *scene) { // of all that became stale while opens failed
			var fx effects[int]
			s.r.mu.Lock()
			now := s.r.clock.read()
			for _, e := range s.r.mu.all {
				e.lifetime.replaceAt, e.fastPathUntil = now, now
				s.r.markStale(e, now)
			}
			s.r.reconcile(&fx)
			s.r.unlock(&fx)
		}, nil},
		"a call beside what has expired": {[]func(*testing.T, *scene){idle}, func(t *testing.T, s *scene) { // of all whose credential ends at a moment
			s.r.mu.Lock()
			now := s.r.clock.read()
			for _, e := range s.r.mu.all {
				e.lifetime, e.fastPathUntil = lifetime{now, now}, now
				s.r.schedule(e, now)
			}
			s.r.mu.Unlock()
			l, err := s.r.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Release())
		}, nil},
		"opens": {nil, func(t *testing.T, s *scene) { require.NoError(t, s.r.WaitReady(t.Context(), ofEach)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scene{cancel: func() {}}
				var err error
				s.r, err = New(opensAny(func(cfg *Config[int]) {
					cfg.MaxSize, cfg.MaxConcurrentOpens, cfg.IdleTTL, cfg.CloseTimeout = ofEach, -1, -1, -1
					cfg.AcquireTimeout, cfg.MaxLifetime, cfg.OpenRetry = time.Minute, -1, OpenRetryNever
					if c.set != nil {
						c.set(cfg)
					}
				}))
				require.NoError(t, err)
				for _, prepare := range c.prepare {
					prepare(t, s)
				}
				synctest.Wait()
				y := &tally{r: s.r}
				s.r.mu.Mutex.Lock()
				s.r.mu.observer = y
				s.r.mu.Mutex.Unlock()
				c.happen(t, s)
				synctest.Wait()
				s.r.mu.Mutex.Lock()
				s.r.mu.observer = nil
				s.r.mu.Mutex.Unlock()
				require.Equal(t, batch, max(y.failed, y.closed, y.opened))
				s.cancel()
				s.r.FailWaiters(nil)
				for _, l := range s.loans {
					_ = l.Release()
				}
				_ = s.r.Close(t.Context())
				synctest.Wait()
			})
		})
	}
}

// FailWaiters fails those who are in the queue when it is called.
func TestFailWaitersLeavesThoseWhoComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, held, results := queued(t.Context(), t, 3*batch+1)
		later := r.newWaiter(t.Context())
		r.mu.Mutex.Lock()
		r.mu.observer = &tally{r: r, atSection: 3, then: func() { r.enqueue(later) }}
		r.mu.Mutex.Unlock()
		require.Equal(t, 3*batch+1, r.FailWaiters(nil))
		for range 3*batch + 1 {
			require.ErrorIs(t, <-results, errNoReason)
		}
		require.Equal(t, 1, r.Stats().Waiting)
		require.NoError(t, held.Release())
		l, err := r.await(t.Context(), later)
		require.NoError(t, err)
		require.NoError(t, l.Release())
	})
}

// Those who leave while others are being taken out of the queue are taken out
// by the same goroutine, each once.
func TestLeaversWhoJoinOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, held, results := queued(t.Context(), t, 1)
		var all []*waiter[int]
		for range 4 {
			w := r.newWaiter(t.Context())
			all = append(all, w)
			r.mu.Mutex.Lock()
			r.enqueue(w)
			r.mu.Mutex.Unlock()
		}
		leave := func(w *waiter[int]) {
			w.status.Store(waiterLeft)
			r.leavers.inQueue.Add(1)
			r.leavers.push(w)
		}
		leave(all[0])
		leave(all[1])
		y := &tally{r: r}
		y.then = func() { // one more joins whenever some are taken out
			if w := all[2]; w.status.Load() != waiterLeft {
				leave(w)
				y.atSection++
			} else {
				leave(all[3])
			}
		}
		require.False(t, r.removeLeavers(all[0], nil))
		r.mu.Mutex.Lock()
		y.atSection = 2 // the first is removeLaterLeavers' own
		r.mu.observer = y
		r.mu.Mutex.Unlock()
		r.removeLaterLeavers(all[0])
		synctest.Wait()
		require.Equal(t, 1, r.Stats().Waiting)
		require.Nil(t, r.leavers.head.Load())
		for _, w := range all {
			require.False(t, w.link.linked())
		}
		require.NoError(t, held.Release())
		require.NoError(t, <-results)
	})
}

// Whose context has ended is passed over when a connection comes, in a bounded
// number: after many it is given to one of them, who passes it on.
func TestAConnectionPassesABoundedNumberOfEndedWaits(t *testing.T) {
	for n, last := range map[int]bool{10: true, 3 * batch: false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r, held, results := queued(t.Context(), t, 0)
			var waiting []*waiter[int]
			var fx effects[int]
			r.mu.Lock()
			for i := range n + 1 {
				of := ctx
				if i == n {
					of = t.Context()
				}
				w := r.newWaiter(of)
				r.enqueue(w)
				waiting = append(waiting, w)
			}
			cancel()
			r.endUse(held.entry)
			require.Equal(t, handedOff, r.handOff(held.entry, r.clock.now(), &fx))
			to := waiting[min(n, batch)]
			require.Equal(t, held.entry, to.loan.entry)
			require.Equal(t, last, to == waiting[n])
			require.ErrorIs(t, waiting[0].err, errLeft)
			r.unlock(&fx)
			r.FailWaiters(nil)
			require.NoError(t, to.loan.Release())
			require.Empty(t, results)
		})
	}
}

// Under FailFast one who leaves while the others are failed is none to fail, and
// ends the search when nobody is left.
func TestFailFastBesideOneWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(opensAny(func(c *Config[int]) { c.MaxSize, c.OnExhausted = 1, FailFast }))
		require.NoError(t, err)
		held, err := r.Acquire(t.Context())
		require.NoError(t, err)
		w := r.newWaiter(t.Context())
		var fx effects[int]
		r.mu.Lock()
		r.enqueue(w)
		w.status.Store(waiterLeft) // after it was counted among those who wait
		r.failExcess(&fx)
		r.leavers.inQueue.Add(1)
		require.Zero(t, r.mu.waiters.n)
		r.unlock(&fx)
		require.Zero(t, r.Stats().Rejected)
		require.NoError(t, held.Release())
		require.NoError(t, r.Close(t.Context()))
	})
}
