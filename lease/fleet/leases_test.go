package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
)

// logbook is a buffer for a logger and a reader at once.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestLeasesOfAKilledProcessAreBackWithinLeaseAndGrace(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			victim, p := join(t, w, 1, Config{Limit: 12, Shards: shards, Batch: 1})
			take(t, victim, 12)
			survivor, _ := join(t, w, 2, Config{Limit: 12, Batch: 1})
			time.Sleep(33 * time.Second)
			kill(victim, p)
			killed := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for range 12 {
				_, err := survivor.Acquire(ctx)
				require.NoError(t, err)
			}
			back := time.Since(killed)
			require.LessOrEqual(t, back, survivor.cfg.Lease+survivor.cfg.Grace)
			require.Greater(t, back, survivor.state.terms.validity(), "freed before the victim could have stopped")
			require.EqualValues(t, 1, survivor.Stats().Reaped)
			survivor.stopGoroutines()
			victim.stopGoroutines()
		})
	}
}

func TestCloseGivesEverythingBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 1000})
		releases := take(t, l, 3)
		require.EqualValues(t, 10, w.used(), "a batch")
		for _, release := range releases {
			release()
		}
		require.NoError(t, l.Close(t.Context()))
		require.Zero(t, w.used())

		l, _ = join(t, w, 2, Config{Limit: 1000})
		take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		require.ErrorIs(t, err, lease.ErrInUse)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotZero(t, w.used(), "a connection may exist")
	})
}

// A select between two channels that are both ready takes either: with an
// ended context Close must look at what is in use all the same.
func TestCloseWithAnEndedContextGivesBackWhatIsNotInUse(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			l, _ := join(t, w, 1, Config{Limit: 1000})
			take(t, l, 1)[0]()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.NoError(t, l.Close(ended))
			require.Zero(t, w.used())
		})
	}
}

// Others watch while it closes: none of them may take it for dead, or say so.
func TestAProcessThatClosesIsNotReportedDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		w := newWorld()
		cfg := Config{Limit: 1000, Logger: log.logger()}
		other, _ := join(t, w, 1, cfg)
		take(t, other, 1)
		for i := range 20 {
			leaver, _ := join(t, w, uint64(2+i), cfg)
			for _, release := range take(t, leaver, 60) {
				release()
			}
			time.Sleep(20 * time.Second)
			require.NoError(t, leaver.Close(t.Context()))
			require.Zero(t, leaver.Stats().Reaped)
		}
		require.EqualValues(t, 10, w.used())
		require.Zero(t, other.Stats().Reaped)
		require.NotContains(t, log.String(), "dead")
		other.stopGoroutines()
	})
}

// A closing process whose first step comes once more, late, leaves an entry
// that nobody owns: it misses the next round.
func TestALateDuplicateOfAProcessThatClosedIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		leaver, p := join(t, w, 1, Config{Limit: 1000})
		take(t, leaver, 1)[0]()
		var first Owner
		for _, o := range mustRead(t, w, shardKey("b", 0)).Owners {
			first = o
		}
		require.NoError(t, leaver.Close(t.Context()))
		require.Zero(t, w.used())
		answer, err := w.write(Change{
			Key: shardKey("b", 0), NoOwner: leaver.id, Put: map[string]Owner{leaver.id: first},
			AtMost: map[string]int64{"used": 900}, Add: map[string]int64{"used": first.Leases},
		})
		require.NoError(t, err)
		require.True(t, answer.Done)
		require.NotZero(t, w.used())
		other, _ := join(t, w, 2, Config{Limit: 1000})
		time.Sleep(other.cfg.Lease + other.cfg.Grace)
		require.Zero(t, w.used())
		other.stopGoroutines()
		_ = p
	})
}

func mustRead(t *testing.T, w *world, key string) *Record {
	t.Helper()
	snapshot, err := w.mem.Read(t.Context(), key)
	require.NoError(t, err)
	return snapshot.Records[key]
}

func TestSurplusGoesBackAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 1000})
		defer l.stopGoroutines()
		for _, release := range take(t, l, 50) {
			release()
		}
		time.Sleep(58 * time.Second)
		require.EqualValues(t, 50, w.used())
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 10, w.used())
	})
}

// The holder of spare leases learns by its beat that others are short.
func TestSpareLeasesGoBackSoonWhenTheFleetIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		rich, _ := join(t, w, 1, Config{Limit: 20, Want: 20})
		defer rich.stopGoroutines()
		releases := take(t, rich, 20)
		for _, release := range releases[1:] {
			release()
		}
		poor, _ := join(t, w, 2, Config{Limit: 20})
		defer poor.stopGoroutines()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for range 19 {
			_, err := poor.Acquire(ctx)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, time.Since(start), time.Minute)
	})
}

func TestFallbackDecidesAndIsToldWhenTheStoreIsUnreachable(t *testing.T) {
	for _, variant := range []struct {
		fallback lease.Fallback
		strict   bool
		grants   int // beyond the three held
	}{
		{lease.Pessimistic(), false, 0}, {lease.Share(5), false, 2}, {lease.Optimistic(), false, 20},
		{lease.Pessimistic(), true, 0},
	} {
		t.Run(variant.fallback.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logbook
				w := newWorld()
				l, p := join(t, w, 1, Config{
					Limit: 10, Batch: 1, Fallback: variant.fallback, Strict: variant.strict, Logger: log.logger(),
				})
				releases := take(t, l, 3)
				p.set(func(p *process) { p.outage = time.Now().Add(10 * time.Minute) })
				time.Sleep(time.Minute)
				require.True(t, l.Stats().Degraded)
				require.Error(t, l.Stats().Cause)
				require.Contains(t, log.String(), "fallback="+variant.fallback.String())

				if !variant.strict { // one for one, whatever the fallback
					releases[0]()
					releases = append(releases[1:], take(t, l, 1)...)
				}
				releases = append(releases, take(t, l, variant.grants)...)
				require.Equal(t, variant.grants, l.Stats().Unbacked)
				require.EqualValues(t, variant.grants, l.Stats().Fallbacks)
				if variant.fallback != lease.Optimistic() {
					_, err := l.Acquire(t.Context())
					require.ErrorIs(t, err, lease.ErrUnavailable)
				}
				time.Sleep(10 * time.Minute)
				require.False(t, l.Stats().Degraded)
				require.Contains(t, log.String(), "renewed again")
				require.EqualValues(t, len(releases), w.used(), "what exists is in the store again")
				require.Zero(t, l.Stats().Unbacked)
				l.stopGoroutines()
			})
		})
	}
}

func TestAProcessTakenForDeadKeepsItsConnectionsIfThereIsRoom(t *testing.T) {
	for _, room := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			l, p := join(t, w, 1, Config{Limit: 10, Batch: 1})
			defer l.stopGoroutines()
			take(t, l, 4)
			revoked := make(chan lease.Revocation, 1)
			stop := l.OnRevoke(func(r lease.Revocation) { revoked <- r })
			defer stop()
			other, _ := join(t, w, 2, Config{Limit: 10, Batch: 1})
			defer other.stopGoroutines()
			p.set(func(p *process) { p.outage = time.Now().Add(3 * time.Minute) })
			time.Sleep(2 * time.Minute)
			if room {
				take(t, other, 6)
			} else {
				take(t, other, 8)
			}
			time.Sleep(2 * time.Minute)
			require.EqualValues(t, 1, l.Stats().Losses)
			require.Equal(t, 4, l.Stats().InUse)
			select {
			case r := <-revoked:
				require.False(t, room)
				require.ErrorIs(t, r.Cause, errOverrun)
				require.EqualValues(t, 12, w.used(), "the sum stays honest")
			default:
				require.True(t, room)
				require.EqualValues(t, 10, w.used())
			}
		})
	}
}

func TestStrictRevokesWhenTheValidityLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := join(t, newWorld(), 1, Config{Limit: 10, Strict: true})
		releases := take(t, l, 2)
		revoked := make(chan lease.Revocation, 1)
		l.OnRevoke(func(r lease.Revocation) { revoked <- r })
		start := time.Now()
		p.set(func(p *process) { p.outage = time.Now().Add(10 * time.Minute) })
		r := <-revoked
		require.LessOrEqual(t, r.Deadline.Sub(start), l.state.terms.validity()+l.cfg.Grace)
		require.Positive(t, time.Until(r.Deadline), "there is time left to close")
		require.ErrorIs(t, l.Valid(), lease.ErrUnavailable)
		for _, release := range releases {
			release()
		}
		l.stopGoroutines()
	})
}

// A limit that an operator changed is used by processes that run, by one that
// was taken for dead, and by one that starts with another limit configured.
func TestAChangedLimitIsAdoptedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		w := newWorld()
		l, p := join(t, w, 1, Config{Limit: 100, Batch: 1, Logger: log.logger()})
		defer l.stopGoroutines()
		take(t, l, 10)
		other, _ := join(t, w, 2, Config{Limit: 100, Batch: 1})
		defer other.stopGoroutines()
		take(t, other, 1)
		p.set(func(p *process) { p.outage = time.Now().Add(3 * time.Minute) })
		time.Sleep(time.Minute)
		require.NoError(t, SetLimit(t.Context(), w.mem, "b", 120))
		time.Sleep(time.Hour)
		require.Equal(t, 120, l.Stats().Limit)
		require.Equal(t, 120, other.Stats().Limit)
		require.False(t, l.Stats().Degraded)
		require.EqualValues(t, 11, w.used(), "what exists is counted")
		take(t, l, 100)
		require.Contains(t, log.String(), "limit was changed")
		started, _ := join(t, w, 3, Config{Limit: 100, Batch: 1, Logger: log.logger()})
		defer started.stopGoroutines()
		require.Equal(t, 120, started.Stats().Limit)
		require.Contains(t, log.String(), "setting=Limit")
		take(t, started, 9)
		require.NoError(t, SetLimit(t.Context(), w.mem, "b", 50))
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := started.Acquire(ctx)
		var full *lease.Error
		require.ErrorAs(t, err, &full)
		require.Equal(t, 50, full.Limit)
	})
}

// The reply of a beat, or of a check-in, gets lost, and an outage follows. The
// first answer after it must be enough.
func TestLeasesAreValidWithTheFirstAnswerAfterAnOutage(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			l, p := join(t, w, seed, Config{Limit: 100, Batch: 1})
			defer l.stopGoroutines()
			take(t, l, 3)
			time.Sleep(time.Duration(seed) * 1500 * time.Millisecond)
			p.set(func(p *process) { p.faults.lostReply = 1 })
			time.Sleep(12 * time.Second)
			up := time.Now().Add(2 * time.Minute)
			p.set(func(p *process) { p.faults.lostReply, p.outage = 0, up })
			time.Sleep(time.Until(up))
			for l.Valid() != nil || l.Stats().Degraded {
				time.Sleep(10 * time.Millisecond)
			}
			require.Less(t, time.Since(up), 3500*time.Millisecond)
		})
	}
}

// Whichever clock says that the validity has passed is right: a suspended
// machine's monotonic clock may stand still, and a wall clock may be set back.
func TestValidityEndsByWhicheverClockIsAhead(t *testing.T) {
	for _, ahead := range []instant{{mono: time.Minute}, {wall: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			real := processClock()
			var mu sync.Mutex
			var jump instant
			clock := func() instant {
				mu.Lock()
				defer mu.Unlock()
				now := real()
				return instant{now.mono + jump.mono, now.wall + jump.wall}
			}
			w := newWorld()
			p := newProcess(w, 1, calm)
			l, err := open(t.Context(), p, Config{Budget: "b", Limit: 10, Logger: silence}, clock)
			require.NoError(t, err)
			defer l.stopGoroutines()
			take(t, l, 2)
			require.NoError(t, l.Valid())
			p.set(func(p *process) { p.outage = time.Now().Add(time.Hour) })
			mu.Lock()
			jump = ahead
			mu.Unlock()
			require.ErrorIs(t, l.Valid(), lease.ErrUnavailable)
			require.NoError(t, errors.Join())
		})
	}
}

// A table that was deleted, or restored from a backup: what exists is counted
// in again.
func TestABudgetThatIsMadeAnewGetsWhatExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l, _ := join(t, w, 1, Config{Limit: 100, Shards: 3, Batch: 1})
		defer l.stopGoroutines()
		take(t, l, 40)
		time.Sleep(3 * time.Minute)
		w.mem.mu.Lock()
		clear(w.mem.records)
		w.mem.mu.Unlock()
		time.Sleep(time.Minute)
		require.EqualValues(t, 40, w.used())
		require.NoError(t, l.Valid())
		take(t, l, 60)
		require.EqualValues(t, 100, w.used())
	})
}

func TestStarvedCallersAreToldTheStateOfTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a, _ := join(t, w, 1, Config{Limit: 10})
		defer a.stopGoroutines()
		take(t, a, 8)
		b, _ := join(t, w, 2, Config{Limit: 10})
		defer b.stopGoroutines()
		take(t, b, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := b.Acquire(ctx)
		require.ErrorIs(t, err, lease.ErrLimit)
		require.ErrorContains(t, err, "10 of 10; 2 of them here")
		require.Equal(t, 2, b.Stats().Owners)
	})
}

// However much a process says that it wants, there is never more taken than the limit, and
// others get theirs.
func TestWhoWantsMoreThanCanBeTakesWhatThereIs(t *testing.T) {
	for _, cfg := range []Config{{Want: math.MaxInt}, {Batch: math.MaxInt}, {Want: math.MaxInt/4 + 2}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.onWrite = func(key string, r *Record) {
				if strings.HasPrefix(key, "shard#") && r.Numbers["used"] > 10 {
					t.Errorf("%+v: %d of 10 are used", cfg, r.Numbers["used"])
				}
			}
			cfg.Limit = 10
			for seed := range uint64(2) {
				l, _ := join(t, w, seed, cfg)
				defer l.stopGoroutines()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 4 {
					_, err := l.Acquire(ctx)
					require.NoError(t, err, "%+v", cfg)
				}
			}
		})
	}
}

func TestWrongSettingsAreToldByName(t *testing.T) {
	_, err := New(t.Context(), NewMemory(), Config{Limit: -1, Grace: time.Second, Strict: true, Fallback: lease.Share(1)})
	for _, text := range []string{"Config.Budget", "Config.Limit", "Config.Grace", "Config.Strict"} {
		require.ErrorContains(t, err, text)
	}
	_, err = NewLimiter(t.Context(), NewMemory(), LimiterConfig{Rate: -1, Burst: 3})
	for _, text := range []string{"LimiterConfig.Budget", "LimiterConfig.Rate", "LimiterConfig.Burst"} {
		require.ErrorContains(t, err, text)
	}
	_, err = NewLimiter(t.Context(), NewMemory(), LimiterConfig{Budget: "b", Burst: math.MaxInt})
	require.ErrorContains(t, err, "LimiterConfig.Burst")
	_, err = New(t.Context(), nil, Config{})
	require.ErrorContains(t, err, "the store is nil")
}

func TestOperatorsSeeAndFreeWhatProcessesHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		_, err := Inspect(t.Context(), w.mem, "b")
		require.ErrorIs(t, err, ErrNoBudget)
		require.ErrorContains(t, err, `budget "b"`)
		a, p := join(t, w, 1, Config{Limit: 10, Shards: 3, Batch: 1, Service: "api"})
		take(t, a, 5)
		b, _ := join(t, w, 2, Config{Limit: 10, Batch: 1, Service: "worker"})
		defer b.stopGoroutines()
		take(t, b, 2)
		time.Sleep(20 * time.Second)
		f, err := Inspect(t.Context(), w.mem, "b")
		require.NoError(t, err)
		require.Equal(t, []int{10, 7, 3, 2}, []int{f.Limit, f.Used, f.Shards, len(f.Members)})
		require.Equal(t, "api", f.Members[0].Service)
		require.Equal(t, 5, f.Members[0].Leases)
		require.NotEmpty(t, f.Members[0].Host)
		require.NotZero(t, f.Members[0].PID)
		require.False(t, f.Members[0].Started.IsZero())
		kill(a, p)
		a.stopGoroutines()
		freed, err := Free(t.Context(), w.mem, "b", f.Members[0].ID)
		require.NoError(t, err)
		require.Equal(t, 5, freed)
		require.EqualValues(t, 2, w.used())
		require.ErrorContains(t, SetLimit(t.Context(), w.mem, "b", 2), "at least the 3 shards")
	})
}

// A fleet that was short once leaves its last level in the record. Who starts
// later is not held to it.
func TestALevelOfLongAgoHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		old, _ := join(t, w, 1, Config{Limit: 20, Want: 20})
		releases := take(t, old, 20)
		poor, _ := join(t, w, 2, Config{Limit: 20})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := poor.Acquire(ctx)
		cancel()
		require.Error(t, err)
		require.EqualValues(t, 1, mustRead(t, w, budgetKey("b")).Numbers["level"])
		for _, release := range releases {
			release()
		}
		require.NoError(t, old.Close(t.Context()))
		require.NoError(t, poor.Close(t.Context()))
		time.Sleep(time.Hour)
		late, _ := join(t, w, 3, Config{Limit: 20})
		defer late.stopGoroutines()
		require.Zero(t, late.Stats().Share)
		start := time.Now()
		take(t, late, 20)
		require.Less(t, time.Since(start), 2*time.Second)
	})
}
