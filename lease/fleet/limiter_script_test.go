package fleet

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// stage is a scripted fleet of limiters, rate 100 and burst 500, on a network
// without faults but those of the script.
type stage struct {
	t       *testing.T
	members []*Limiter
	clients []*process
	start   time.Time

	mu     sync.Mutex
	opens  opens
	crowds sync.WaitGroup
}

func newStage(t *testing.T, members int, knobs testFaults) *stage {
	s := &stage{t: t, start: time.Now()}
	db := newWorld()
	for i := range members {
		c := newProcess(db, uint64(i), faults{delay: 8 * time.Millisecond})
		l, err := openLimiter(t.Context(), c, LimiterConfig{
			Budget: "b", Burst: 500, RequestTimeout: 20 * time.Second, Patience: time.Minute,
			Logger: slog.New(slog.DiscardHandler),
		}, knobs)
		require.NoError(t, err)
		s.members, s.clients = append(s.members, l), append(s.clients, c)
	}
	return s
}

// crowd lets n callers wait for a member at once, for at most d.
func (s *stage) crowd(member, n int, d time.Duration) {
	for range n {
		s.crowds.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), d)
			defer cancel()
			if s.members[member].Wait(ctx) == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.opens.times = append(s.opens.times, time.Since(s.start))
			}
		})
	}
}

func (s *stage) excess() float64 {
	s.crowds.Wait()
	for _, l := range s.members {
		require.NoError(s.t, l.Close(s.t.Context()))
	}
	slices.Sort(s.opens.times)
	return s.opens.excess(100, 500)
}

// Two members that have known the full budget for a minute use it one after
// the other. A minute's credit must not be paid after the first has used it.
func bursts(t *testing.T, knobs testFaults) (excess float64) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2, knobs)
		s.crowd(0, 1, time.Second)
		s.crowd(1, 1, time.Second)
		time.Sleep(time.Minute)
		s.crowd(0, 600, 2*time.Second)
		time.Sleep(500 * time.Millisecond)
		s.crowd(1, 600, 2*time.Second)
		excess = s.excess()
	})
	return excess
}

func TestCreditIsBoundedByATick(t *testing.T) {
	require.Zero(t, bursts(t, testFaults{}))
	require.Greater(t, bursts(t, testFaults{unboundedCredit: true}), 100.0)
}

// Three hundred members reserve a permit each, and stand still before they
// learn of it. When they wake up the budget has been refilled for another.
func wakers(t *testing.T, knobs testFaults) (excess float64) {
	synctest.Test(t, func(t *testing.T) {
		const many = 300
		s := newStage(t, many+1, knobs)
		for i := range many {
			s.crowd(i, 1, 30*time.Second)
		}
		synctest.Wait() // they are on their way
		for i := range many {
			s.clients[i].set(func(p *process) { p.paused = time.Now().Add(10 * time.Second) })
		}
		time.Sleep(time.Second)
		s.crowd(many, 1, time.Second) // which sees to the refilling
		time.Sleep(8990 * time.Millisecond)
		s.crowd(many, 600, time.Second)
		excess = s.excess()
	})
	return excess
}

func TestLatePermitsAreNotUsed(t *testing.T) {
	require.Zero(t, wakers(t, testFaults{}))
	require.Greater(t, wakers(t, testFaults{useLatePermits: true}), 50.0)
}

// A burst that was used in part is there again later, though nobody needed to
// wait for it.
func TestTheBurstComesBackWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2, testFaults{})
		s.crowd(0, 300, time.Second)
		time.Sleep(10 * time.Second)
		s.crowd(1, 400, 300*time.Millisecond)
		require.Zero(t, s.excess())
		require.Greater(t, len(s.opens.times), 300+360)
	})
}

// The usual way, one arrival time in the item compared with each member's wall clock,
// does not hold at different clocks: this is why sharedBucket has none.
func TestAnArrivalTimeInTheItemOverrunsAtDifferentClocks(t *testing.T) {
	const rate, burst = 100.0, 500.0
	overrun := func(skew float64) float64 {
		var o opens
		arrival := 0.0 // in seconds of whoever wrote it last
		take := func(at, clock float64) {
			now := at + clock
			if next := max(arrival, now) + 1/rate; next-now <= burst/rate {
				arrival = next
				o.times = append(o.times, seconds(at))
			}
		}
		for i := range 3000 { // the slow one has all of it for 3 s, then the fast one comes
			take(100+float64(i)/1000, -skew)
		}
		for i := range 3000 {
			take(103+float64(i)/1000, +skew)
		}
		return o.excess(rate, burst)
	}
	require.Less(t, overrun(0), 2.0)
	require.Greater(t, overrun(1), 100.0)
	require.Greater(t, overrun(10), 400.0)
}

// A process that was late may pay for more than a tick only if as much was
// owed when the time began, and what others reserved later does not count.
func TestMoreThanATickIsPaidOnlyForADebtThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = 100 * time.Millisecond // ten permits' worth
		db := newWorld()
		cfg := LimiterConfig{Budget: "b", Burst: 100, Tick: tick}
		require.NoError(t, cfg.validate())
		newcomer := func() *sharedBucket {
			p := newSharedBucket(newMeter(newProcess(db, 1, faults{}), time.Second), &cfg, testFaults{})
			require.NoError(t, p.read(t.Context()))
			return p
		}
		late := func(p *sharedBucket) (permits int64) {
			time.Sleep(time.Second)
			before := p.earned
			require.NoError(t, p.writeTick(t.Context()))
			require.True(t, p.isRefiller)
			return (p.earned - before) / permitUnits
		}
		p, other := newcomer(), newcomer()
		reserve := func(permits int) {
			_, ok, err := other.reserve(t.Context(), permits)
			require.NoError(t, err)
			require.True(t, ok)
		}
		reserve(10)
		p.granted = other.granted // as an answer tells
		reserve(45)
		require.EqualValues(t, 10, late(p)) // it knew the budget as full when the time began
		require.EqualValues(t, 10, late(p)) // and did not know of the 45 when this time began
		require.EqualValues(t, 20, late(p)) // now it saw 35 owed
		require.EqualValues(t, 15, late(p)) // the rest: the budget is full
		reserve(45)
		p.granted = other.granted
		require.EqualValues(t, 10, late(p))
	})
}

// Who waits for the rate of its own process in an outage does not wait for it when the
// store is back: there is room, and what the process grants by itself would come on top
// of the fleet's rate.
func TestTheFallbackOfARateEndsWithTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newWorld(), 1, calm)
		l, err := NewLimiter(t.Context(), p, LimiterConfig{Budget: "b", Fallback: lease.Share(1), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		back := time.Now().Add(40 * time.Second)
		p.set(func(p *process) { p.outage = back })
		time.Sleep(10 * time.Second)
		var callers sync.WaitGroup
		var served atomic.Int64
		for range 100 {
			callers.Go(func() {
				if err := l.Wait(t.Context()); err == nil {
					served.Add(1)
				}
			})
		}
		time.Sleep(time.Until(back))
		alone := served.Load()
		require.InDelta(t, 30, alone, 10, "one a second")
		require.EqualValues(t, 100-alone, l.Stats().Waiting)
		callers.Wait()
		require.LessOrEqual(t, time.Since(back), 5*time.Second)
		s := l.Stats()
		require.EqualValues(t, 100, s.Granted)
		require.LessOrEqual(t, s.Fallbacks, uint64(alone)+5)
		require.Zero(t, s.Waiting)
		require.Zero(t, s.Denied)

		// Those who wait when the Limiter is closed, or their context ends, are told so.
		p.set(func(p *process) { p.outage = time.Now().Add(time.Hour) })
		ended := make(chan error, 60)
		for i := range cap(ended) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%2*3599)*time.Second*10)
				defer cancel()
				ended <- l.Wait(ctx)
			}()
		}
		time.Sleep(15 * time.Second)
		require.NoError(t, l.Close(t.Context()))
		limit, closed := 0, 0
		for range cap(ended) {
			switch err := <-ended; {
			case errors.Is(err, lease.ErrLimit):
				require.ErrorIs(t, err, context.DeadlineExceeded)
				limit++
			case errors.Is(err, lease.ErrClosed):
				closed++
			}
		}
		require.Positive(t, limit)
		require.Positive(t, closed)
	})
}

// Callers who come one after the other, and leave before Patience is over, are told of an
// outage too: that nobody waits between them says nothing of the store.
func TestAnOutageIsNoticedThoughNobodyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newWorld(), 1, calm)
		l, err := NewLimiter(t.Context(), p, LimiterConfig{Budget: "b", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close(t.Context())) }()
		p.set(func(p *process) { p.outage = time.Now().Add(time.Hour) })
		start := time.Now()
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			err := l.Wait(ctx)
			cancel()
			if errors.Is(err, lease.ErrUnavailable) {
				break
			}
			require.ErrorIs(t, err, lease.ErrLimit)
			require.Less(t, time.Since(start), 15*time.Second, "%v", err)
			time.Sleep(2 * time.Second)
		}
		require.ErrorIs(t, l.Stats().Cause, context.DeadlineExceeded)
	})
}
