package fairshare_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/fairshare"
)

// Nearly every loan is a grant here: a slot that goes from one user to another.
func TestTheWorkOfAGrantDoesNotGrowWithUsers(t *testing.T) {
	work := func(users int) (comparisons, calls float64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, fairshare.Bounds{Max: 5, MaxOpening: 5})
			for i := range users {
				w.join(fmt.Sprint("user", i), 5).want(1)
			}
			count := w.share.Comparisons()
			time.Sleep(500 * time.Millisecond) // all have begun
			w.mu.Lock()
			grants, asked, compared := w.grants, w.asked, count()
			w.mu.Unlock()
			time.Sleep(time.Second)
			w.mu.Lock()
			grants, asked, compared = w.grants-grants, w.asked-asked, count()-compared
			w.mu.Unlock()
			require.Greater(t, grants, 100)
			comparisons, calls = float64(compared)/float64(grants), float64(asked)/float64(grants)
			w.end()
		})
		return comparisons, calls
	}
	few, fewCalls := work(10)
	many, manyCalls := work(320)
	t.Logf("comparisons a grant: %.1f among 10 users, %.1f among 320; calls of pools: %.1f, %.1f", few, many, fewCalls, manyCalls)
	assert.Less(t, many, 3*few, "32 times as many users are 5 levels of a heap more")
	assert.Less(t, manyCalls, 2*fewCalls)
}

func TestWhoHasNoneGetsAnIdleConnectionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 2, MaxOpening: 2})
		a, b, c := w.join("a", 2), w.join("b", 2), w.join("c", 2)
		a.want(1)
		b.want(1)
		time.Sleep(10 * holdTime)
		a.want(0)
		time.Sleep(2 * holdTime) // much less than what makes it cold
		require.Equal(t, []int{1, 1, 0}, holds(a, b, c))
		c.want(1)
		time.Sleep(2 * holdTime)
		synctest.Wait()
		require.Equal(t, openTime+closeTime, c.waited())
		require.Equal(t, []int{0, 1, 1}, holds(a, b, c))
		w.end()
	})
}

// Turns are the users', however many callers and tickets each has.
func TestAUserOfManyCallersGetsNoMoreTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 1, MaxOpening: 1})
		a, b, c := w.join("a", 8), w.join("b", 8), w.join("c", 8)
		a.want(20)
		b.want(1)
		c.want(1)
		time.Sleep(5 * time.Second)
		require.Less(t, max(b.waited(), c.waited()), 200*time.Millisecond, "at the beginning, when a share that has nobody to look after looks again in 100ms; later 60ms")
		w.end()
	})
}

func TestOverflowEndsWhenNoCallerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 2, Overflow: 1, MaxOpening: 3})
		u := w.join("a", 3)
		u.want(4)
		time.Sleep(10 * holdTime)
		require.Equal(t, []int{3}, holds(u))
		u.want(0)
		time.Sleep(2 * holdTime)
		require.Equal(t, []int{2}, holds(u))
		w.end()
	})
}

// What is still held of a share that another succeeds counts in that one: see admitted.
func TestSlotsOfAPredecessorCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 2, MaxOpening: 2})
		w.join("a", 2).want(2)
		time.Sleep(holdTime / 2)
		synctest.Wait()
		w.succeed()
		u := w.join("a", 2)
		u.want(2)
		time.Sleep(2 * holdTime)
		require.Equal(t, []int{2}, holds(u))
		w.end()
	})
}

// While the gate is shut, opens of one member pass, one at a time; after one that
// brings no connection, the next.
func TestTheGateLetsOneOpenPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 3, MaxOpening: 3})
		a, b := w.join("a", 3), w.join("b", 3)
		w.share.Gate(func() bool { return true })
		a.want(3)
		b.want(3)
		synctest.Wait()
		w.fail(100)
		w.share.AllowOne(b.Member)
		time.Sleep(openTime / 2)
		require.Equal(t, []int{0, 1}, holds(a, b))
		time.Sleep(openTime)
		require.Equal(t, 2, w.granted(), "the first failed, another passes")
		w.fail(0)
		time.Sleep(10 * openTime)
		require.Equal(t, []int{0, 1}, holds(a, b))
		w.share.AllowOne(nil)
		w.share.Gate(func() bool { return false })
		time.Sleep(20 * holdTime)
		synctest.Wait()
		require.Equal(t, 3, w.share.Connections())
		w.end()
	})
}

func TestUnderFailFastWhoCannotBeServedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 2, MaxOpening: 2, FailFast: true})
		a, b := w.join("a", 2), w.join("b", 2)
		a.want(2)
		time.Sleep(openTime + time.Millisecond)
		require.Equal(t, []bool{false, true}, []bool{a.HasRoom(), b.HasRoom()}, "b might find an idle one")
		_, got := b.get()
		require.False(t, got)
		w.end()
	})
}

func TestAnOpenThatIsGivenUpLeavesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 1, MaxOpening: 1})
		u := w.join("a", 2)
		release, err := u.Admit(t.Context())
		require.NoError(t, err)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err = u.Admit(ctx)
		require.ErrorAs(t, err, new(fairshare.NotAdmittedError))
		require.ErrorIs(t, err, context.Canceled)
		u.Opened(openTime)
		release()
		release() // once
		require.Zero(t, w.share.Connections())
		w.end()
	})
}

// Callers who wait for their user's own bound have no use for connections of others.
func TestOverflowEndsWhileAUserWaitsForItsOwnBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 2, Overflow: 2, MaxOpening: 4})
		a, b := w.join("a", 1), w.join("b", 3)
		a.want(3)
		b.want(3)
		time.Sleep(10 * holdTime)
		require.Equal(t, []int{1, 3}, holds(a, b))
		b.want(0)
		time.Sleep(time.Second)
		require.Equal(t, []int{1, 1}, holds(a, b))
		w.end()
	})
}

// Whoever has the idle ones, and however many have more: their work does not grow with
// that.
func TestOverflowEndsAmongManyWhoseConnectionsAreInUse(t *testing.T) {
	// Each loan that ends then makes a pass of its own, which asks 8. One that ended during
	// another's would have the timer fire, which may ask 64 others.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const many = 80
		w := newWorld(t, 1, fairshare.Bounds{Max: 3, Overflow: 2 * many, MaxOpening: 2 * many})
		for i := range many { // who wait for their own bound
			w.join(fmt.Sprint("user", i), 2).want(3)
		}
		last := w.join("last", 1)
		last.want(1)
		time.Sleep(10 * holdTime)
		require.Equal(t, []int{1}, holds(last))
		last.want(0)
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, []int{0}, holds(last))
		calls := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.asked
		}
		began := calls()
		time.Sleep(20 * holdTime)
		require.Less(t, calls()-began, 20*2*many*20, "20 for each of the loans that end, of 80 users")
		for _, u := range w.users {
			u.want(0)
		}
		w.end()
	})
}

// A pool whose size was set anew after the share had asked it for a connection in use is asked
// again, however often others are asked for an idle one meanwhile.
func TestWhatAChangeOfSizesHasUndoneIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 3, MaxOpening: 3})
		rich, other, poor := w.join("rich", 4), w.join("other", 1), w.join("poor", 4)
		other.want(3)
		time.Sleep(holdTime)
		rich.want(6)
		time.Sleep(10 * holdTime)
		require.Equal(t, []int{2, 1}, holds(rich, other))
		poor.want(1)
		synctest.Wait()
		require.Equal(t, 1, rich.size, "it is asked for one")
		rich.setSize(4)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1}, holds(rich, other, poor))
		w.end()
	})
}

// A change of sizes that comes while the share is about to make a pool smaller, or to let it
// grow again, is the one that holds.
func TestAChangeOfSizesThatCrossesAnAskHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 4, MaxOpening: 4})
		rich, poor := w.join("rich", 4), w.join("poor", 4)
		rich.want(4)
		time.Sleep(10 * holdTime)
		rich.crossing = func() { w.set(fairshare.Bounds{Max: 12, MaxOpening: 4}, func() int { return 6 }) }
		rich.want(6)
		poor.want(1)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []int{6, 1}, holds(rich, poor))
		w.end()
	})
}

// Users whose callers keep their connections do not keep those of others from who has none.
func TestWhoKeepsConnectionsForLongIsNotTheOnlyOneWhoIsAsked(t *testing.T) {
	for _, held := range [][]int{{2, 2, 2}, {3, 2, 2}, {2, 1, 1}, {2, 2, 1, 1}, {1, 1, 1}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, fairshare.Bounds{Max: 20, MaxOpening: 4})
			bound := time.Second
			for i, n := range held {
				u := w.join(fmt.Sprint("user", i), n)
				if i < len(held)-1 {
					u.keepFor(time.Hour)
					bound += time.Duration(n) * 1100 * time.Millisecond
				}
				u.want(n + 1)
			}
			time.Sleep(10 * holdTime)
			w.set(fairshare.Bounds{Max: len(held) + held[0] + held[1] - 2, MaxOpening: 4}, func() int { return 5 })
			require.Equal(t, held, holds(w.users...))
			poor := w.join("poor", 4)
			poor.want(1)
			time.Sleep(10 * time.Second)
			require.Less(t, poor.waited(), bound, "each that is kept is waited for once")
			require.Less(t, time.Since(poor.lastServed()), time.Second)
			for _, u := range w.users {
				u.keepFor(0)
				u.want(0)
			}
			time.Sleep(time.Hour)
			w.end()
		})
	}
}

// Who was asked for connections that do not come back is not kept from more, when others have
// more by then.
func TestWhatIsOverdueIsForgottenWhenOthersHaveMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 12, MaxOpening: 12})
		long, a, b := w.join("long", 12), w.join("a", 12), w.join("b", 12)
		w.join("poor", 12)
		long.keepFor(time.Hour)
		long.want(5)
		a.want(4)
		b.want(3)
		time.Sleep(10 * holdTime)
		require.Equal(t, []int{5, 4, 3, 0}, holds(w.users...))
		for _, u := range w.users[1:] {
			u.want(12)
		}
		time.Sleep(5 * time.Second)
		require.Equal(t, 5, holds(long)[0])
		a.want(0)
		b.want(0)
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{5, 0, 0, 7}, holds(w.users...))
		long.want(8)
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{6, 0, 0, 6}, holds(w.users...))
		for _, u := range w.users {
			u.keepFor(0)
			u.want(0)
		}
		time.Sleep(time.Hour)
		w.end()
	})
}

// The pool of a member tells of the end of every open, and not whether it had a slot.
func TestAnOpenThatWasNeverAdmittedEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 3, MaxOpening: 1})
		a, b, c := w.join("a", 3), w.join("b", 3), w.join("c", 3)
		release, err := a.Admit(t.Context())
		require.NoError(t, err)
		late := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		_, err = b.Admit(late())
		require.ErrorAs(t, err, new(fairshare.NotAdmittedError))
		b.NotOpened()
		_, err = c.Admit(late())
		require.ErrorAs(t, err, new(fairshare.NotAdmittedError), "a's open is under way")
		c.NotOpened()
		a.NotOpened()
		release()
		for _, u := range w.users {
			again, err := u.Admit(t.Context())
			require.NoError(t, err)
			again()
			u.NotOpened()
		}
		w.end()
	})
}

// Who is to give up all that it has keeps none of it, also where it was first asked for all but
// one: no pool is smaller than one, and what came back last stayed there, out of count.
func TestWhoGivesUpAllKeepsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fairshare.Bounds{Max: 3, MaxOpening: 3})
		rich, poor := w.join("rich", 3), w.join("poor", 3)
		rich.keepFor(2 * time.Second)
		rich.want(2)
		time.Sleep(holdTime)
		rich.keepFor(100 * time.Millisecond)
		rich.want(3)
		time.Sleep(holdTime)
		w.set(fairshare.Bounds{Max: 1, MaxOpening: 3}, func() int { return 3 })
		synctest.Wait()
		require.Equal(t, 1, rich.size, "it is asked for two that are in use")
		rich.want(0)
		rich.setSize(3)
		poor.want(1)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, []int{2, 0}, holds(rich, poor), "the third was idle, and is taken as well")
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{0, 1}, holds(rich, poor))
		require.Less(t, time.Since(poor.lastServed()), time.Second)
		w.end()
	})
}
