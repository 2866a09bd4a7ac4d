package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// A sleeper is a process that stands still, the deadline of its request too.
type sleeper struct {
	*process
	until atomic.Int64
}

func (s *sleeper) sleep(ctx context.Context) (context.Context, context.CancelFunc) {
	left := time.Until(time.Unix(0, s.until.Load()))
	if left <= 0 {
		return ctx, func() {}
	}
	time.Sleep(left)
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

func (s *sleeper) Read(ctx context.Context, keys ...string) (Snapshot, error) {
	ctx, cancel := s.sleep(ctx)
	defer cancel()
	return s.process.Read(ctx, keys...)
}

func (s *sleeper) Write(ctx context.Context, c Change) (Answer, error) {
	ctx, cancel := s.sleep(ctx)
	defer cancel()
	return s.process.Write(ctx, c)
}

// After an outage of the whole store nobody takes what the shares of others
// already are, be it there all the time, started meanwhile or a moment later,
// or standing still until then: each has no more than its share, and together
// they fit.
func TestSharesHoldTheLimitOnTheWayBackFromAnOutage(t *testing.T) {
	bad := 0
	for seed := range 3 * storms(t) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			rng := seeded(seed)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			var pools []*pool
			var revoked atomic.Int32
			var last *sleeper
			start := func(want int) {
				i := uint64(len(pools))
				last = &sleeper{process: newProcess(w, i+10*seed, calm)}
				l, err := New(ctx, last, Config{Budget: "b", Limit: 40, Fallback: lease.Share(10), Logger: silence})
				require.NoError(t, err)
				pools = append(pools, newPool(ctx, l, i, want, 0, &running))
				l.OnRevoke(func(lease.Revocation) { revoked.Add(1) })
			}
			for _, want := range []int{10, 2, 2} {
				start(want)
			}
			late, still := seed%3 == 1, seed%3 == 2
			if !late {
				start(2)
			}
			time.Sleep(time.Minute)
			end := time.Now().Add(100*time.Second + upTo(rng, 50*time.Second))
			around := end.Add(upTo(rng, 8*time.Second) - 6*time.Second)
			w.mu.Lock()
			w.outage = end
			w.mu.Unlock()
			if still {
				last.until.Store(around.UnixNano())
			}
			time.Sleep(80 * time.Second)
			most := 0
			more := func(p *pool) {
				p.mu.Lock()
				p.want = 30
				p.mu.Unlock()
				for j := range 28 {
					running.Go(func() { p.keep(ctx, 30-j-1, seeded(uint64(j))) })
				}
			}
			for _, p := range pools { // now all want more
				more(p)
			}
			if late {
				time.Sleep(time.Until(around))
				start(2)
				more(pools[3])
			}
			for range 400 {
				time.Sleep(250 * time.Millisecond)
				most = max(most, connections(pools))
			}
			cancel()
			running.Wait()
			for _, p := range pools {
				p.leases.stopGoroutines()
			}
			if most > 40 || revoked.Load() > 0 {
				bad++
				t.Logf("seed %d: %d connections, %d revocations", seed, most, revoked.Load())
			}
		})
	}
	require.Zero(t, bad)
}
