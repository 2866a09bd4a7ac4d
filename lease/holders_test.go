package lease_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/fleet"
)

// An idler is a holder that uses nothing of what it has, or all. What it closes is closed a moment later.
type idler struct {
	mu             sync.Mutex
	busy           bool
	idle           []func()
	asked, closing int
}

// newIdler makes one that has n of a budget.
func newIdler(t *testing.T, l lease.Leases, n int, busy bool) *idler {
	p := &idler{busy: busy}
	ctx := lease.WithHolder(t.Context(), lease.NewHolder(p.closeIdle))
	for range n {
		release, err := l.Acquire(ctx)
		require.NoError(t, err)
		p.idle = append(p.idle, release)
	}
	return p
}

func (p *idler) closeIdle(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.busy {
		return 0
	}
	n = min(n, len(p.idle))
	p.closing += n
	for _, release := range p.idle[:n] {
		time.AfterFunc(70*time.Millisecond, release)
	}
	p.idle = p.idle[n:]
	return n
}

func (p *idler) read() (asked, closing int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.closing
}

func (p *idler) releaseAll() {
	for _, release := range p.idle {
		release()
	}
}

// Holders give up as many as others wait for, however many holders there are, and also while those are being closed. The few
// that have something idle are found at once among many.
func TestHoldersGiveUpWhatOthersWaitFor(t *testing.T) {
	const limit = 20
	for name, budget := range map[string]func(*testing.T) lease.Leases{
		"in memory": func(*testing.T) lease.Leases { return lease.NewLeases("b", limit) },
		"of a fleet": func(t *testing.T) lease.Leases {
			l, err := fleet.New(t.Context(), fleet.NewMemory(), fleet.Config{Budget: "b", Limit: limit, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			return l
		},
	} {
		for story, s := range map[string]struct{ holders, busy, callers int }{
			"many holders":           {holders: limit / 2, callers: 1},
			"one":                    {holders: 1, callers: 4},
			"one, down to its share": {holders: 1, callers: limit},
			"few that have some":     {holders: limit / 2, busy: limit/2 - 1, callers: 1},
		} {
			t.Run(name+"/"+story, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := budget(t)
					var holders []*idler
					for i := range s.holders {
						holders = append(holders, newIdler(t, l, limit/s.holders, i < s.busy))
					}
					served := make(chan func(), s.callers)
					ctx, cancel := context.WithTimeout(lease.WithHolder(t.Context(), lease.NewHolder(nil)), time.Minute)
					defer cancel()
					for range s.callers {
						go func() {
							if release, err := l.Acquire(ctx); err == nil {
								served <- release
							}
						}()
						time.Sleep(time.Millisecond)
					}
					time.Sleep(20 * time.Second)
					share := min(s.callers, limit/2)
					require.Len(t, served, share)
					all := 0
					for _, p := range holders {
						_, closing := p.read()
						all += closing
					}
					require.Equal(t, share, all)
					<-ctx.Done()
					for len(served) > 0 {
						(<-served)()
					}
					for _, p := range holders {
						p.releaseAll()
					}
					require.NoError(t, l.Close(t.Context()))
				})
			})
		}
	}
}

// A holder that has nothing idle is asked again every second, not for each who comes.
func TestABusyHolderIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lease.NewLeases("b", 2)
		busy := newIdler(t, l, 2, true)
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			go func() { _, _ = l.Acquire(ctx); cancel() }()
			time.Sleep(time.Millisecond)
		}
		asked, _ := busy.read()
		require.LessOrEqual(t, asked, 2)
		time.Sleep(10 * time.Millisecond) // nobody waits
		busy.releaseAll()
		require.NoError(t, l.Close(t.Context()))
	})
}

// Nobody gives up what nobody wants any more, and one who is wanted again is served as ever.
func TestWhatNobodyWantsIsNotAskedFor(t *testing.T) {
	const limit = 8
	join := func(t *testing.T, store fleet.Store) lease.Leases {
		l, err := fleet.New(t.Context(), store, fleet.Config{Budget: "b", Limit: limit, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return l
	}
	for name, s := range map[string]struct {
		budgets func(*testing.T) (rich, poor lease.Leases)
		soon    time.Duration
	}{
		"in memory": {func(*testing.T) (rich, poor lease.Leases) { l := lease.NewLeases("b", limit); return l, l }, 400 * time.Millisecond},
		"of a process of a fleet": {func(t *testing.T) (rich, poor lease.Leases) {
			l := join(t, fleet.NewMemory())
			return l, l
		}, time.Minute},
		"of a fleet": {func(t *testing.T) (rich, poor lease.Leases) {
			store := fleet.NewMemory()
			return join(t, store), join(t, store)
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				richs, poors := s.budgets(t)
				rich := newIdler(t, richs, limit, false)
				served := make(chan func(), 4)
				var wanted atomic.Int64
				self := lease.NewHolder(nil).Wanting(func() int { return int(wanted.Load()) - len(served) })
				ctx, cancel := context.WithCancel(lease.WithHolder(t.Context(), self))
				for range cap(served) {
					go func() {
						if release, err := poors.Acquire(ctx); err == nil {
							served <- release
						}
					}()
				}
				time.Sleep(5*time.Minute + 300*time.Millisecond)
				asked, _ := rich.read()
				assert.Zero(t, asked)
				reads := poors.Stats().Traffic.Reads
				time.Sleep(5 * time.Minute)
				assert.LessOrEqual(t, poors.Stats().Traffic.Reads-reads, uint64(100), "no more than a fleet that lacks nothing")
				assert.Zero(t, poors.Stats().Share, "the fleet is not short")
				wanted.Store(1)
				time.Sleep(s.soon)
				_, closing := rich.read()
				assert.Equal(t, 1, closing)
				assert.Len(t, served, 1)
				cancel()
				rich.releaseAll()
				time.Sleep(time.Second)
				for len(served) > 0 {
					(<-served)()
				}
				require.NoError(t, poors.Close(t.Context()))
				require.NoError(t, richs.Close(t.Context()))
			})
		})
	}
}

func TestAHolderThatDoesNotSayWhatItWantsWantsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		for name, h := range map[string]*lease.Holder{
			"none": nil, "silent": lease.NewHolder(nil),
			"panics":             lease.NewHolder(nil).Wanting(func() int { panic("its own") }),
			"ends its goroutine": lease.NewHolder(nil).Wanting(func() int { runtime.Goexit(); return 0 }),
			"hangs":              lease.NewHolder(nil).Wanting(func() int { <-hangs; return 0 }),
			"more":               lease.NewHolder(nil).Wanting(func() int { return 9 }),
		} {
			require.Equal(t, 3, h.Wanted(3), name)
		}
		require.Zero(t, lease.NewHolder(nil).Wanting(func() int { return -1 }).Wanted(3))
	})
}

// What was to be given up for callers who have left is kept.
func TestWhatOthersDoNotNeedAnyMoreIsKept(t *testing.T) {
	const limit = 8
	for name, s := range map[string]struct {
		budget func(*testing.T) lease.Leases
		soon   time.Duration
	}{
		"in memory": {func(*testing.T) lease.Leases { return lease.NewLeases("b", limit) }, 2300 * time.Millisecond},
		"of a fleet": {func(t *testing.T) lease.Leases {
			l, err := fleet.New(t.Context(), fleet.NewMemory(), fleet.Config{Budget: "b", Limit: limit, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			return l
		}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := s.budget(t)
				asked := make(chan int, 9)
				busy := lease.WithHolder(t.Context(), lease.NewHolder(func(n int) int { asked <- n; return n }))
				var releases []func()
				for range limit {
					release, err := l.Acquire(busy)
					require.NoError(t, err)
					releases = append(releases, release)
				}
				ctx, leave := context.WithCancel(lease.WithHolder(t.Context(), lease.NewHolder(nil)))
				for range 3 {
					go func() { _, _ = l.Acquire(ctx) }()
				}
				time.Sleep(s.soon)
				assert.Len(t, asked, 1)
				assert.Equal(t, 3, <-asked)
				leave()
				time.Sleep(s.soon)
				assert.Len(t, asked, 1)
				assert.Equal(t, 0, <-asked)
				for _, release := range releases {
					release()
				}
				require.NoError(t, l.Close(t.Context()))
			})
		})
	}
}
