package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// callers lets n goroutines of a user work until stop, and collects their waits.
func callers(t *testing.T, g *rig, user string, n int, hold time.Duration, until time.Time) func() []time.Duration {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var waits []time.Duration
	for range n {
		wg.Go(func() {
			for time.Now().Before(until) {
				waited, err := work(t.Context(), g, "s", user, hold)
				if err != nil {
					t.Errorf("user %s: %v", user, err)
					return
				}
				mu.Lock()
				waits = append(waits, waited)
				mu.Unlock()
			}
		})
	}
	return func() []time.Duration {
		wg.Wait()
		slices.Sort(waits)
		return waits
	}
}

func percentile(waits []time.Duration, p float64) time.Duration {
	return waits[min(len(waits)-1, int(p*float64(len(waits))))]
}

// B alone, and B beside A with a hundred times the callers.
func TestABurstOfOneUserDoesNotMakeAnotherWait(t *testing.T) {
	var alone, beside []time.Duration
	run := func(burst int) (b []time.Duration) {
		bubble(t, func(t *testing.T, g *rig) {
			f := g.fake("s")
			f.dial = 50 * time.Millisecond
			define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1 })
			until := time.Now().Add(25 * time.Second)
			a := callers(t, g, "a", burst, 20*time.Millisecond, until)
			if burst > 0 {
				time.Sleep(time.Second) // A has everything
				assert.Equal(t, 10, f.users("remote a"))
			}
			b = callers(t, g, "b", 2, 20*time.Millisecond, until)()
			served := a()
			if burst > 0 {
				assert.Equal(t, 8, f.users("remote a"), "what B does not want is A's")
				require.Greater(t, len(served), 8_000)
			}
			assert.LessOrEqual(t, f.mostLive, 10)
		})
		return b
	}
	alone = run(0)
	beside = run(200)
	t.Logf("B's waits alone: p50 %v p99 %v max %v; beside A: p50 %v p99 %v max %v, of %d",
		percentile(alone, .5), percentile(alone, .99), percentile(alone, 1), percentile(beside, .5), percentile(beside, .99), percentile(beside, 1), len(beside))
	require.LessOrEqual(t, percentile(beside, .99), 2*percentile(alone, .99))
	require.LessOrEqual(t, percentile(beside, 1), 2*(50+20)*time.Millisecond, "even the first wait: a loan of A's comes back, and an open")
	require.GreaterOrEqual(t, len(beside), len(alone)*95/100)
}

func TestTheDivisionIsMaxMinFair(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1 })
		until := time.Now().Add(10 * time.Second)
		done := []func() []time.Duration{
			callers(t, g, "a", 50, 20*time.Millisecond, until),
			callers(t, g, "b", 50, 20*time.Millisecond, until),
			callers(t, g, "c", 2, 20*time.Millisecond, until),
		}
		time.Sleep(5 * time.Second)
		assert.Equal(t, []int{4, 4, 2}, []int{f.users("remote a"), f.users("remote b"), f.users("remote c")})
		for _, d := range done {
			d()
		}
		assert.Equal(t, 10, f.mostLive)
	})
}

// A user who comes gets as many as it asks for, and nobody gives up more than that.
func TestANewcomerCostsOneOpenForEachConnectionThatItNeeds(t *testing.T) {
	for _, size := range []int{10, 40} {
		bubble(t, func(t *testing.T, g *rig) {
			f := g.fake("s")
			f.dial, f.slow = 10*time.Millisecond, 50*time.Millisecond
			define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = size; d.AcquireTimeout = -1 })
			until := time.Now().Add(4 * time.Second)
			a := callers(t, g, "a", 2*size, 20*time.Millisecond, until)
			b := callers(t, g, "b", 2*size, 20*time.Millisecond, until)
			time.Sleep(2 * time.Second)
			require.Equal(t, []int{size / 2, size / 2}, []int{f.users("remote a"), f.users("remote b")})
			before := f.read(&f.opens)
			waits := callers(t, g, "c", 1, 20*time.Millisecond, until)()
			require.Less(t, percentile(waits, 1), 100*time.Millisecond, "a loan ends, and its connection is closed and another opened")
			a()
			b()
			require.Equal(t, 1, f.read(&f.opens)-before)
		})
	}
}

func TestAFreeSlotGoesToTheUserWithTheFewest(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 3 })
		one, two, mine := acquire(t, g, "c"), acquire(t, g, "c"), acquire(t, g, "a")
		order := make(chan string, 2)
		for _, user := range []string{"a", "b"} {
			go func() {
				c := acquire(t, g, user)
				order <- user
				time.Sleep(time.Millisecond)
				assert.NoError(t, c.Release())
			}()
			synctest.Wait()
		}
		require.NoError(t, one.Fail(nil))
		require.Equal(t, "b", <-order, "a came first, but has one already")
		require.Equal(t, 4, g.fake("s").read(&g.fake("s").opens), "and not by way of a")
		require.NoError(t, two.Release())
		require.NoError(t, mine.Release())
		<-order
	})
}

func TestWhatOneDoesNotUseAnyMoreGoesToWhoWants(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.slow, f.dial = 100*time.Millisecond, 500*time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1 })
		callers(t, g, "b", 10, 20*time.Millisecond, time.Now().Add(2*time.Second))()
		assert.Equal(t, 10, f.users("remote b"))
		a := callers(t, g, "a", 50, 20*time.Millisecond, time.Now().Add(20*time.Second))
		time.Sleep(2 * time.Second)
		assert.Equal(t, 5, f.users("remote a"), "half at once")
		time.Sleep(5 * time.Second)
		assert.Equal(t, 10, f.users("remote a"), "all when B has used none for ten times as long as an open takes")
		a()
	})
}

func TestAReservedConnectionIsThereAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1; d.UserReserved = 2 })
		require.NoError(t, g.Warmup(t.Context(), "s", 1))
		a := callers(t, g, "a", 50, time.Second, time.Now().Add(5*time.Second))
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, 6, f.users("remote a"), "two each are for b and c")
		began := time.Now()
		first, second := acquire(t, g, "b"), acquire(t, g, "b")
		require.Zero(t, time.Since(began), "although A has callers for a second each")
		require.NoError(t, first.Release())
		require.NoError(t, second.Release())
		a()
	})
}

func TestMoreUsersThanConnectionsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, func(d *registry.ServerDefinition) {
			d.MaxSize = 2
			d.AcquireTimeout = -1
			for i := range 6 {
				d.Users[fmt.Sprint("u", i)] = registry.UserMapping{User: fmt.Sprint("u", i)}
			}
		})
		until := time.Now().Add(20 * time.Second)
		var done []func() []time.Duration
		for i := range 6 {
			done = append(done, callers(t, g, fmt.Sprint("u", i), 3, 10*time.Millisecond, until))
		}
		for i, d := range done {
			waits := d()
			require.Greater(t, len(waits), 100, "user %d", i)
			require.Less(t, percentile(waits, 1), 2*time.Second, "user %d", i)
		}
		require.Equal(t, 2, f.mostLive)
	})
}

func TestTheCapHoldsWhileConnectionsClose(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = 10 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 3; d.AcquireTimeout = -1 })
		until := time.Now().Add(5 * time.Second)
		var wg sync.WaitGroup
		for i, user := range []string{"a", "b", "c", "a", "b", "c"} {
			wg.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					c, err := g.Acquire(t.Context(), "s", user)
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					time.Sleep(time.Millisecond)
					if (n+i)%5 == 0 {
						_ = c.Fail(nil)
					} else {
						_ = c.Release()
					}
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, f.read(&f.mostLive), 3)
	})
}

func TestFailFastRefusesWhenOtherUsersHaveEverything(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 2; d.OnExhausted = flightpool.FailFast })
		one, two := acquire(t, g, "a"), acquire(t, g, "b")
		began := time.Now()
		_, err := g.Acquire(t.Context(), "s", "c")
		var full *registry.ExhaustedError
		require.ErrorAs(t, err, &full)
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.Equal(t, []int{2, 2, 0}, []int{full.ServerConnections, full.MaxSize, full.UserConnections})
		require.Zero(t, time.Since(began))
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
		require.NoError(t, acquire(t, g, "a").Release())
	})
}

// Those who were refused come again, and find what was asked for when they came first: nobody
// keeps all there is for ever.
func TestFailFastLetsUsersTakeTurnsWhoComeAgain(t *testing.T) {
	for _, size := range []int{1, 2} {
		bubble(t, func(t *testing.T, g *rig) {
			f := g.fake("s")
			f.dial, f.slow = 10*time.Millisecond, time.Millisecond
			define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = size; d.OnExhausted = flightpool.FailFast })
			until := time.Now().Add(3 * time.Second)
			var wg sync.WaitGroup
			served := [3]atomic.Int64{}
			for i := range 9 {
				rnd := rand.New(rand.NewPCG(uint64(i), uint64(size)))
				wg.Go(func() {
					for time.Now().Before(until) {
						_, err := work(t.Context(), g, "s", []string{"a", "b", "c"}[i%3], 10*time.Millisecond)
						if err == nil {
							served[i%3].Add(1)
							continue
						}
						assert.ErrorIs(t, err, registry.ErrExhausted)
						time.Sleep(time.Duration(rnd.IntN(4_000)) * time.Microsecond)
					}
				})
			}
			wg.Wait()
			for i := range served {
				require.Greater(t, served[i].Load(), int64(25*size), "user %d", i)
			}
			require.Equal(t, size, f.mostLive)
		})
	}
}

// Callers who come at the same time all find the same room.
func TestFailFastLetsNobodyWaitForRoomThatAnotherTook(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = 100 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 2; d.OnExhausted = flightpool.FailFast })
		require.NoError(t, g.Warmup(t.Context(), "s", 0))
		var mu sync.Mutex
		var held []*registry.Conn
		var wg sync.WaitGroup
		refused := 0
		for i := range 12 {
			wg.Go(func() {
				began := time.Now()
				c, err := g.Acquire(t.Context(), "s", []string{"a", "b", "c"}[i%3])
				mu.Lock()
				defer mu.Unlock()
				assert.LessOrEqual(t, time.Since(began), 100*time.Millisecond, "nobody waits for a loan to end")
				if err != nil {
					assert.ErrorIs(t, err, registry.ErrExhausted)
					refused++
					return
				}
				held = append(held, c)
			})
		}
		wg.Wait()
		require.Len(t, held, 2)
		require.Equal(t, 10, refused)
		for _, c := range held {
			require.NoError(t, c.Release())
		}
	})
}

// Those for whom an open is under way wait for it alone: it is not taken from them for the
// sake of somebody who is refused.
func TestFailFastLeavesOpensUnderWayToThoseWhoWaitForThem(t *testing.T) {
	for _, size := range []int{1, 2} {
		bubble(t, func(t *testing.T, g *rig) {
			g.fake("s").dial = 100 * time.Millisecond
			define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = size; d.OnExhausted = flightpool.FailFast })
			got := make(chan time.Duration, size)
			for range size {
				go func() {
					waited, err := work(t.Context(), g, "s", "a", 0)
					assert.NoError(t, err)
					got <- waited
				}()
			}
			time.Sleep(50 * time.Millisecond)
			_, err := g.Acquire(t.Context(), "s", "b")
			require.ErrorIs(t, err, registry.ErrExhausted)
			for range size {
				require.Equal(t, 100*time.Millisecond, <-got)
			}
		})
	}
}

// A user's turn begins when its connection is there, however long the open took.
func TestATurnDoesNotBeginBeforeTheConnectionIsOpen(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		g.fake("s").dial = 100 * time.Millisecond
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1 })
		got := make(chan time.Duration, 2)
		began := time.Now()
		for _, user := range []string{"a", "b"} {
			go func() {
				_, err := work(t.Context(), g, "s", user, 0)
				assert.NoError(t, err)
				got <- time.Since(began)
			}()
			time.Sleep(50 * time.Millisecond)
		}
		require.Equal(t, 100*time.Millisecond, <-got)
		require.Equal(t, 200*time.Millisecond, <-got)
	})
}

func TestOverflowIsForThoseWhoWaitAndGoesWhenNobodyDoes(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 2; d.OnExhausted = flightpool.Overflow(1) })
		one, two, three := acquire(t, g, "a"), acquire(t, g, "a"), acquire(t, g, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Acquire(ctx, "s", "a")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.Equal(t, 3, f.read(&f.live))
		require.NoError(t, one.Release())
		require.NoError(t, two.Release())
		require.NoError(t, three.Release())
		synctest.Wait()
		require.Equal(t, 2, f.read(&f.live))
	})
}

func TestMaxWaitersRefusesOneMore(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.MaxSize = 1; d.MaxWaiters = 1 })
		held := acquire(t, g, "a")
		got := make(chan error, 1)
		go func() {
			_, err := work(t.Context(), g, "s", "a", 0)
			got <- err
		}()
		synctest.Wait()
		_, err := g.Acquire(t.Context(), "s", "a")
		require.ErrorIs(t, err, registry.ErrExhausted)
		require.NoError(t, held.Release())
		require.NoError(t, <-got)
	})
}

func TestALoweredCapIsReachedByUsersWithOneConnectionEach(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		d := define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1; d.UserMaxSize = 1 })
		until := time.Now().Add(3 * time.Second)
		a := callers(t, g, "a", 3, 20*time.Millisecond, until)
		b := callers(t, g, "b", 3, 20*time.Millisecond, until)
		c := callers(t, g, "c", 3, 20*time.Millisecond, until)
		time.Sleep(time.Second)
		assert.Equal(t, 3, f.read(&f.live))
		d.MaxSize = 1
		assert.NoError(t, g.Update(t.Context(), d))
		time.Sleep(time.Second)
		f.set(func() { f.mostLive = f.live })
		time.Sleep(time.Second)
		assert.Equal(t, 1, f.read(&f.mostLive))
		a()
		b()
		c()
	})
}

func TestALoweredCapIsReachedAsLoansComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		d := define(t, g, func(d *registry.ServerDefinition) { d.AcquireTimeout = -1 })
		until := time.Now().Add(5 * time.Second)
		a := callers(t, g, "a", 20, 20*time.Millisecond, until)
		b := callers(t, g, "b", 20, 20*time.Millisecond, until)
		time.Sleep(time.Second)
		assert.Equal(t, 10, f.read(&f.live))
		d.MaxSize = 4
		require.NoError(t, g.Update(t.Context(), d))
		time.Sleep(time.Second)
		assert.Equal(t, 4, f.read(&f.live))
		d.MaxSize = 8
		require.NoError(t, g.Update(t.Context(), d))
		time.Sleep(time.Second)
		assert.Equal(t, []int{4, 4}, []int{f.users("remote a"), f.users("remote b")})
		a()
		b()
	})
}

// A user's bound holds over the pools that new credentials have made, too.
func TestANewCredentialDoesNotDoubleAUsersBound(t *testing.T) {
	for _, policy := range []flightpool.Exhaustion{flightpool.Wait, flightpool.FailFast} {
		bubble(t, func(t *testing.T, g *rig) {
			d := define(t, g, func(d *registry.ServerDefinition) {
				d.MaxSize, d.UserMaxSize, d.OnExhausted = 3, 1, policy
			})
			old := acquire(t, g, "a")
			d.Users["a"] = registry.UserMapping{User: "remote a", Password: "new"}
			require.NoError(t, g.Update(t.Context(), d))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := g.Acquire(ctx, "s", "a")
			require.ErrorIs(t, err, registry.ErrExhausted)
			require.NoError(t, acquire(t, g, "b").Release(), "who waits for the own bound holds nobody up")
			require.Equal(t, 1, g.fake("s").users("remote a"))
			require.NoError(t, old.Release())
			time.Sleep(time.Second)
			require.NoError(t, acquire(t, g, "a").Release())
		})
	}
}

// What a user has on loan of a pool that was removed counts too.
func TestARemovedPoolsLoansCountAgainstTheirUsersBound(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		define(t, g, func(d *registry.ServerDefinition) { d.UserMaxSize, d.AcquireTimeout = 2, time.Second })
		f := g.fake("s")
		one, two := acquire(t, g, "a"), acquire(t, g, "a")
		for range 2 { // the second finds a pool that has nothing itself
			go func() { _ = g.CloseAll(context.Background(), "s") }()
			synctest.Wait()
			require.Zero(t, got(t, g, "a", 3))
			require.Equal(t, 2, got(t, g, "b", 3), "others are not held up")
		}
		require.NoError(t, one.Release())
		require.Equal(t, 1, got(t, g, "a", 3))
		require.NoError(t, two.Release())
		require.Equal(t, 2, got(t, g, "a", 3))
		synctest.Wait()
		require.LessOrEqual(t, f.users("remote a"), 2)
	})
}

// A pool that is removed while its open waits for a slot has none to give back.
func TestAnOpenThatNeverHadASlotGivesNoneBack(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		f.dial = time.Second
		d := define(t, g, func(d *registry.ServerDefinition) { d.MaxConcurrentOpens = 1 })
		ask := func(user string) (gone chan error) {
			gone = make(chan error, 1)
			go func() {
				c, err := g.Acquire(t.Context(), "s", user)
				if err == nil {
					err = c.Release()
				}
				gone <- err
			}()
			synctest.Wait()
			return gone
		}
		first, second := ask("a"), ask("b")
		delete(d.Users, "b")
		require.NoError(t, g.Update(t.Context(), d))
		require.ErrorIs(t, <-second, registry.ErrNoMapping)
		third := ask("c")
		require.NoError(t, <-first)
		require.NoError(t, <-third)
		require.Equal(t, 1, f.read(&f.mostOpening), "opens at a time")
	})
}
