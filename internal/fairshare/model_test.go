package fairshare_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/fairshare"
)

// Users come and go, and want more or less; they keep connections for long; bounds change,
// also in the midst of a pass; opens fail, and the gate is shut but for one that may pass. Every grant is within the bounds (user.admitted), and once nothing has changed
// for a while, the division is max-min fair.
func TestTheDivisionIsMaxMinFairWhateverWentBefore(t *testing.T) {
	for seed := range uint64(16) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			w := newWorld(t, seed, fairshare.Bounds{Max: 4, MaxOpening: 4})
			w.set(w.randomBounds(), w.randomSize)
			for range 3 {
				for range 10 {
					w.change()
					time.Sleep(time.Duration(w.rnd.IntN(50)) * time.Millisecond)
				}
				w.gate(false)
				w.fail(0)
				w.calm()
				time.Sleep(longestHold + 2200*time.Millisecond)
				for range 10 {
					time.Sleep(7 * time.Millisecond)
					synctest.Wait()
					w.checkDivision()
				}
			}
			w.end()
		})
	}
}

func (w *world) randomBounds() fairshare.Bounds {
	r := w.rnd
	return fairshare.Bounds{Max: 1 + r.IntN(9), Overflow: max(0, r.IntN(5)-2), Reserved: max(0, r.IntN(4)-1), MaxOpening: 1 + r.IntN(4), FailFast: r.IntN(4) == 0}
}

func (w *world) randomSize() int { return 1 + w.rnd.IntN(8) }

// change does one thing.
func (w *world) change() {
	synctest.Wait() // what has been granted is counted
	w.checkNobodyHopes()
	switch n := len(w.users); w.rnd.IntN(22) {
	case 17:
		if n > 0 {
			w.probe(w.users[w.rnd.IntN(n)])
		}
	case 0, 13:
		if w.rnd.IntN(3) == 0 {
			w.succeed()
		}
	case 1, 2, 7, 8:
		name := fmt.Sprint("user", w.rnd.IntN(6))
		if !slices.ContainsFunc(w.users, func(u *user) bool { return u.name == name }) {
			w.join(name, w.randomSize()).want(w.rnd.IntN(10))
		}
	case 9, 10: // a pool is removed, and made anew at once
		if n > 0 {
			u := w.users[w.rnd.IntN(n)]
			want := u.demand
			w.noteChange()
			w.leave(slices.Index(w.users, u))
			w.join(u.name, u.bound).want(want)
		}
	case 3:
		if n > 2 {
			w.leave(w.rnd.IntN(n))
		}
	case 4, 11, 12:
		w.set(w.randomBounds(), w.randomSize)
	case 5:
		w.fail(w.rnd.IntN(50))
	case 6:
		w.gate(w.rnd.IntN(2) == 0)
	case 14:
		if n > 0 {
			w.cross(w.users[w.rnd.IntN(n)])
		}
	case 15:
		if n > 0 {
			w.users[w.rnd.IntN(n)].keepFor(time.Duration(w.rnd.Int64N(int64(longestHold))))
		}
	case 18, 19:
		if n > 0 {
			u := w.users[w.rnd.IntN(n)]
			u.dialFor(time.Duration(w.rnd.IntN(2)*w.rnd.IntN(300)) * time.Millisecond)
			u.bar(w.rnd.IntN(4) == 0)
		}
	case 16:
		w.slow(time.Duration(w.rnd.IntN(2)*w.rnd.IntN(300))*time.Millisecond, time.Duration(w.rnd.IntN(2)*w.rnd.IntN(10))*time.Millisecond)
	default:
		if n > 0 {
			w.users[w.rnd.IntN(n)].want([]int{0, 1, 3, 20}[w.rnd.IntN(4)])
		}
	}
}

// cross has what users may have, and perhaps the bounds, changed just before a user's pool
// is next resized by the share.
func (w *world) cross(u *user) {
	b, sizes := w.randomBounds(), map[*user]int{u: w.randomSize()}
	all := w.rnd.IntN(2) == 0
	if all {
		for _, o := range w.users {
			sizes[o] = w.randomSize()
		}
	}
	w.setCrossing(u, func() {
		w.noteChange()
		if all {
			w.setBounds(b)
		}
		for o, n := range sizes {
			o.Member.Resize(n)
			o.setBound(n)
			o.setSize(n)
		}
		w.share.Dispatch()
	})
}

// calm ends what makes the division come later.
func (w *world) calm() {
	for _, u := range w.users {
		u.keepFor(0)
		u.dialFor(0)
		u.bar(false)
		w.setCrossing(u, nil)
	}
	w.slow(0, 0)
}

// gate shuts the gate or opens it. From when it is shut until it is opened, there is
// no grant.
func (w *world) gate(shut bool) {
	if !shut {
		w.setShut(false)
	}
	w.share.Gate(func() bool { return shut })
	synctest.Wait()
	w.setShut(shut)
}

// probe shuts the gate and lets one open of a user pass, which it does at once if the user
// fits and its callers wait, also where the bounds have become smaller meanwhile.
func (w *world) probe(u *user) {
	w.gate(true)
	if w.rnd.IntN(2) == 0 {
		w.set(w.randomBounds(), w.randomSize)
	}
	time.Sleep(10 * openTime) // what was being opened is open
	synctest.Wait()
	w.mu.Lock()
	before, room := w.grants, *w.opens < w.bounds.MaxOpening
	w.passes, w.passed = u, false
	w.mu.Unlock()
	wants := u.Waiting() > 0 && u.Unadmitted() > 0 && u.Fits()
	w.share.AllowOne(u.Member)
	synctest.Wait()
	if wants && room {
		assert.Greater(w.t, w.granted(), before, "%s fits, and its open does not pass", u.name)
	}
	time.Sleep(time.Duration(w.rnd.IntN(50)) * time.Millisecond)
	w.share.AllowOne(nil)
	synctest.Wait()
	w.mu.Lock()
	w.passes = nil
	w.mu.Unlock()
}

func (w *world) setShut(shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = shut
}

// checkDivision holds what each user has against what max-min fairness, the reserves
// and the bounds say. Only the number of connections that a user has may be one more
// than another's who wants more, since they cannot be cut in two.
func (w *world) checkDivision() {
	w.mu.Lock()
	defer w.mu.Unlock()
	floor, all, unmet, wanted, waiting := w.floor(), 0, 0, 0, 0
	for _, u := range w.users {
		all += u.held
		unmet += max(0, floor-u.held)
		wanted += min(u.demand, u.bound)
		if u.held < u.bound { // else more would not help
			waiting += len(u.waiters)
		}
	}
	assert.Equal(w.t, all, w.live, "slots of users who have left come back")
	assert.Equal(w.t, all, w.share.Connections(), "what is held is what is counted")
	limit := w.bounds.Max
	assert.LessOrEqual(w.t, all, limit+w.bounds.Overflow, "a bound that was lowered is reached")
	if wanted <= limit && waiting == 0 {
		assert.LessOrEqual(w.t, all, limit, "overflow is for callers who wait")
	}
	if wanted > limit+w.bounds.Overflow {
		limit += w.bounds.Overflow
	}
	if w.bounds.FailFast {
		for _, u := range w.users {
			if len(u.waiters) > 0 && u.Unadmitted() > 0 {
				assert.Less(w.t, time.Since(u.waitsSince), 2*time.Second, "%s is served or refused", u.name)
			}
		}
		return
	}
	for _, u := range w.users {
		if u.demand > 0 {
			assert.Less(w.t, time.Since(u.served), 2*time.Second, "%s is served", u.name)
		}
		if u.held >= min(u.demand, u.bound) {
			continue
		}
		assert.True(w.t, all+unmet >= limit || *w.opens > 0, "%s wants more, and %d of %d are in use, %d reserved", u.name, all, limit, unmet)
		if all+unmet < w.bounds.Max+w.bounds.Overflow && *w.opens >= w.bounds.MaxOpening {
			continue // there is room, and the next open is its
		}
		for _, o := range w.users {
			assert.LessOrEqual(w.t, o.held, max(floor, u.held+1), "%s has %d, and %s more", u.name, u.held, o.name)
			assert.LessOrEqual(w.t, o.held, max(floor, o.demand), "%s has what %s wants", o.name, u.name)
		}
	}
}

// end removes all users; every slot must come back.
func (w *world) end() {
	for len(w.users) > 0 {
		w.leave(0)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	require.Zero(w.t, w.share.Connections())
	require.Zero(w.t, w.live)
	w.share.Stop()
}
