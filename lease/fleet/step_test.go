package fleet

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hand takes the steps of one process by hand, and keeps what it sent.
type hand struct {
	t    *testing.T
	w    *world
	l    *Leases
	p    *process
	sent []Change
}

func newHand(t *testing.T, w *world, limit int) *hand {
	h := &hand{t: t, w: w}
	h.l, h.p = join(t, w, 1, Config{Limit: limit, Shards: 1})
	h.l.stopGoroutines()
	h.p.set(func(p *process) { p.edit = func(c *Change) { h.sent = append(h.sent, *c) } })
	return h
}

// step changes the entry by delta leases and sends it until its outcome is
// known.
func (h *hand) step(delta int) outcome {
	h.l.mu.Lock()
	s := h.l.newStep(0, delta)
	h.l.mu.Unlock()
	s.removeEntry = !s.join && s.to.Leases == 0
	result := h.l.send(h.t.Context(), *s)
	for result == unknown {
		time.Sleep(time.Second)
		result = h.l.send(h.t.Context(), h.l.work.pending[0].step)
	}
	return result
}

// again is a late duplicate of a write.
func (h *hand) again(i int) {
	_, err := h.w.mem.Write(h.t.Context(), h.sent[i])
	require.NoError(h.t, err)
}

func (h *hand) stored() (Owner, bool) {
	snapshot, err := h.w.mem.Read(h.t.Context(), shardKey("b", 0))
	require.NoError(h.t, err)
	r := snapshot.Records[shardKey("b", 0)]
	if r == nil {
		return Owner{}, false
	}
	o, there := r.Owners[h.l.id]
	return o, there
}

// A late duplicate of the write that made an entry brings the entry back once it
// was removed. The duplicate of its removal would then take the leases that the
// process counts on.
func TestALateRemovalTakesNoLeasesThatCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHand(t, newWorld(), 10)
		h.w.mem.records[shardKey("b", 0)] = &Record{Numbers: map[string]int64{"used": 0}}
		h.l.state.shards[0].exists = true
		require.Equal(t, applied, h.step(+1))
		require.Equal(t, applied, h.step(-1))
		h.again(0)
		require.Equal(t, applied, h.step(+1))
		h.again(1)
		_, there := h.stored()
		require.True(t, there, "the entry whose leases count is gone")
		require.EqualValues(t, h.l.state.held(), h.w.used())
	})
}

// Whatever was sent before is done again at any time, others take the room or
// take the process for dead: what it counts on is in the store, and what the
// store has of it is not less than that.
func TestNoLateWriteTakesLeasesThatCount(t *testing.T) {
	for seed := range 200 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			h := newHand(t, newWorld(), 6)
			h.p.set(func(p *process) { p.faults = faults{lostRequest: 0.05, lostReply: 0.2} })
			dead := false // removed by others, which it has not heard yet
			for range 40 {
				held := h.l.state.held()
				switch rng.IntN(6) {
				case 0, 1:
					h.outcome(rng.IntN(4), &dead)
				case 2:
					h.outcome(-rng.IntN(held+1), &dead)
				case 3, 4:
					if len(h.sent) > 0 {
						h.again(rng.IntN(len(h.sent)))
					}
				case 5:
					if o, there := h.stored(); there && rng.IntN(4) == 0 {
						_, err := h.w.mem.Write(t.Context(), Change{
							Key: shardKey("b", 0), OwnerAt: map[string]int64{h.l.id: o.Seq}, Remove: []string{h.l.id},
							Add: map[string]int64{"used": -o.Leases},
						})
						require.NoError(t, err)
						dead = true
					}
				}
				h.sums()
				entry := h.l.state.shards[0].entry
				if o, there := h.stored(); !dead && h.l.state.shards[0].joined {
					require.True(t, there, "seed %d: an entry with %d leases is gone", seed, entry.Leases)
					require.GreaterOrEqual(t, o.Leases, entry.Leases, "seed %d", seed)
				}
			}
		})
	}
}

// sums holds the shard against its invariant.
func (h *hand) sums() {
	f := &fleet{}
	snapshot, err := h.w.mem.Read(h.t.Context(), shardKey("b", 0))
	require.NoError(h.t, err)
	if r := snapshot.Records[shardKey("b", 0)]; r != nil {
		f.checkSum(shardKey("b", 0), r)
	}
	require.Empty(h.t, f.sumBad)
}

// outcome is a step after which the process knows what became of it.
func (h *hand) outcome(delta int, dead *bool) {
	h.step(delta)
	*dead = false
}
