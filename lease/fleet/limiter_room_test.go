package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever has reserved all that may be reserved ahead has died. Who comes next gets a
// permit once that is paid for.
func TestPermitsOfTheDeadHoldNobodyUp(t *testing.T) {
	for _, rate := range []float64{0.5, 5, 100} {
		synctest.Test(t, func(t *testing.T) {
			db := newWorld()
			cfg := LimiterConfig{Budget: "b", Rate: rate, Burst: 300, Logger: silence}
			require.NoError(t, cfg.validate())
			dead := newSharedBucket(newMeter(newProcess(db, 1, calm), time.Second), &cfg, testFaults{})
			require.NoError(t, dead.read(t.Context()))
			for ok := true; ok; {
				var err error
				_, ok, err = dead.reserve(t.Context(), 1)
				require.NoError(t, err)
			}
			l, err := NewLimiter(t.Context(), newProcess(db, 2, calm), cfg)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*cfg.MaxWait)
			defer cancel()
			assert.NoError(t, l.Wait(ctx), "rate %v", rate)
			assert.NoError(t, l.Close(t.Context()))
		})
	}
}

// More callers wait than may be reserved for ahead, and a tick pays for less than the
// thousandth of a permit.
func TestARateOfFewPermitsIsUsedByManyCallers(t *testing.T) {
	for _, rate := range []float64{0.001, 0.1, 1} {
		for _, members := range []int{1, 3} {
			r := rush{rate: rate, burst: 10, members: members, callers: 12, faults: calm, lasts: max(20*time.Minute, seconds(30/rate))}
			o := r.run(t, 1)
			require.Zero(t, o.excess(r.rate, r.burst))
			require.GreaterOrEqual(t, float64(len(o.times)), 0.9*r.rate*r.lasts.Seconds()+5, "rate %v, members %v", rate, members)
		}
	}
}

// More callers wait in the whole fleet than may be reserved for ahead.
func TestTheRateIsUsedWhileAllThatMayBeIsReserved(t *testing.T) {
	r := rush{rate: 10, burst: 100, members: 60, callers: 10, faults: calm, lasts: 5 * time.Minute}
	o := r.run(t, 1)
	require.Zero(t, o.excess(r.rate, r.burst))
	require.GreaterOrEqual(t, float64(len(o.times)), 0.95*(r.rate*r.lasts.Seconds()+float64(r.burst)))
}

// A drought is a fleet whose members fail and die while callers wait, and then no more.
type drought struct {
	rate             float64
	burst, members   int
	callers          int
	kills            time.Duration
	faults           faults
	outages          time.Duration
	storms, calmTime time.Duration
}

func randomDrought(rng *rand.Rand) drought {
	d := drought{
		rate: []float64{0.05, 0.5, 3, 20}[rng.IntN(4)], burst: 10 << rng.IntN(5), members: 1 + rng.IntN(5), callers: 1 + rng.IntN(15),
		kills: time.Duration(rng.IntN(3)) * 20 * time.Second, outages: time.Duration(rng.IntN(3)) * time.Minute, storms: 5 * time.Minute,
		faults: faults{lostRequest: rng.Float64() / 4, lostReply: rng.Float64() / 4, throttle: rng.Float64() / 4, delay: 20 * time.Millisecond},
	}
	d.calmTime = max(5*time.Minute, seconds(30/d.rate))
	return d
}

// run returns how many opens there were in the calm time, and those of all the time.
func (d drought) run(t *testing.T, rng *rand.Rand) (calmOpens int, all opens) {
	synctest.Test(t, func(t *testing.T) {
		db, start := newWorld(), time.Now()
		var mu sync.Mutex
		var callers sync.WaitGroup
		calmFrom := start.Add(d.storms + 2*time.Minute)
		one := func(life context.Context, l *Limiter) {
			for life.Err() == nil {
				ctx, cancel := context.WithTimeout(life, time.Minute)
				err := l.Wait(ctx)
				cancel()
				if err != nil {
					pause(life, time.Second, nil)
					continue
				}
				mu.Lock()
				all.times = append(all.times, time.Since(start))
				if time.Now().After(calmFrom) {
					calmOpens++
				}
				mu.Unlock()
			}
		}
		type living struct {
			l    *Limiter
			p    *process
			kill context.CancelFunc
		}
		begin := func() living {
			p := newProcess(db, rng.Uint64(), d.faults)
			l, err := NewLimiter(t.Context(), p, LimiterConfig{Budget: "b", Rate: d.rate, Burst: d.burst, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			life, kill := context.WithCancel(t.Context())
			for range d.callers {
				callers.Go(func() { one(life, l) })
			}
			return living{l, p, kill}
		}
		end := func(m living) {
			m.p.set(func(p *process) { p.dead = true })
			m.kill()
			require.NoError(t, m.l.Close(t.Context()))
		}
		members := make([]living, d.members)
		for i := range members {
			members[i] = begin()
		}
		for time.Since(start) < d.storms {
			time.Sleep(5 * time.Second)
			if d.kills > 0 && rng.Int64N(int64(d.kills)) < int64(5*time.Second) {
				i := rng.IntN(len(members))
				end(members[i])
				members[i] = begin()
			}
			if d.outages > 0 && rng.Int64N(int64(d.outages)) < int64(5*time.Second) {
				db.mu.Lock()
				db.outage = time.Now().Add(upTo(rng, 30*time.Second))
				db.mu.Unlock()
			}
		}
		for _, m := range members {
			m.p.set(func(p *process) { p.faults = calm })
		}
		time.Sleep(time.Until(calmFrom) + d.calmTime)
		for _, m := range members {
			end(m)
		}
		callers.Wait()
	})
	return calmOpens, all
}

// Whatever was lost, what the rate permits is used once requests are answered again.
func TestARateIsUsedAfterWhateverHappened(t *testing.T) {
	for seed := range 5 * storms(t) {
		rng := seeded(seed)
		d := randomDrought(rng)
		n, all := d.run(t, rng)
		require.GreaterOrEqual(t, float64(n), 0.8*d.rate*d.calmTime.Seconds()-1, "seed %d: %+v", seed, d)
		require.Zero(t, all.excess(d.rate, d.burst), "seed %d: %+v", seed, d)
	}
}

// More processes with one caller each than may reserve ahead leave room for one that has
// many: it has no less for each caller than half of what they have.
func TestWhoNeedsManyPermitsIsServedBesideManyWhoNeedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, many, few, each = 2, 70, 1, 10
		db := newWorld()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		var callers sync.WaitGroup
		var limiters []*Limiter
		start := func(n int) (served []int) {
			l, err := NewLimiter(t.Context(), newProcess(db, uint64(len(limiters)), calm), LimiterConfig{Budget: "b", Rate: rate, Burst: 100, Logger: silence})
			require.NoError(t, err)
			limiters, served = append(limiters, l), make([]int, n)
			for i := range served {
				callers.Go(func() {
					for l.Wait(ctx) == nil {
						served[i]++
					}
				})
			}
			return served
		}
		var modest [][]int
		for range many {
			modest = append(modest, start(few))
		}
		time.Sleep(5 * time.Minute) // as many as may be are reserved
		greedy := start(each)
		callers.Wait()
		sum := func(of ...[]int) (n int) {
			for _, served := range of {
				for _, k := range served {
					n += k
				}
			}
			return n
		}
		fair := float64(sum(modest...)) / many / 20 * 15 * each // in its 15 of 20 minutes
		assert.Greater(t, float64(sum(greedy)), fair/2)
		assert.GreaterOrEqual(t, sum(append(modest, greedy)...), rate*20*60*19/20)
		for _, l := range limiters {
			assert.NoError(t, l.Close(t.Context()))
		}
	})
}
