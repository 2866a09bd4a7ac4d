package dynamolease

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/lease/leasetest"
)

var calm = faults{delay: 8 * time.Millisecond}

func join(t *testing.T, db *fakeDB, cfg Config) (*Leases, *fakeClient) {
	t.Helper()
	c := newFakeClient(db, seeded(1), calm)
	cfg.Table, cfg.Budget = "t", "b"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := newLeases(t.Context(), c, cfg)
	require.NoError(t, err)
	return l, c
}

func take(t *testing.T, l *Leases, n int) (releases []func()) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		release, err := l.Acquire(ctx)
		require.NoError(t, err)
		releases = append(releases, release)
	}
	return releases
}

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

func used(db *fakeDB) int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return decodeAlloc(db.items[allocKey("b", 0)]).used
}

func TestLeasesConform(t *testing.T) {
	leasetest.Leases(t, func(t *testing.T, limit int) lease.Leases {
		l, _ := join(t, newFakeDB(), Config{Limit: limit})
		return l
	})
}

func TestLimiterConforms(t *testing.T) {
	leasetest.Limiter(t, func(t *testing.T, rate float64, burst int) lease.Limiter {
		l, err := newLimiter(t.Context(), newFakeClient(newFakeDB(), seeded(1), calm), LimiterConfig{
			Table: "t", Budget: "b", Rate: rate, Burst: burst, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		return l
	})
}

func TestLeasesOfAKilledProcessAreBackWithinLeaseAndGrace(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB()
			victim, c := join(t, db, Config{Limit: 12, Shards: shards, Batch: 1})
			take(t, victim, 12)
			survivor, _ := join(t, db, Config{Limit: 12, Shards: shards, Batch: 1})
			time.Sleep(33 * time.Second)
			c.set(func(c *fakeClient) { c.dead = true })
			victim.stop()
			killed := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			for range 12 {
				_, err := survivor.Acquire(ctx)
				require.NoError(t, err)
			}
			back := time.Since(killed)
			require.LessOrEqual(t, back, survivor.cfg.Lease+survivor.cfg.Grace)
			require.Greater(t, back, survivor.validity/2, "freed before the victim could have stopped")
			require.EqualValues(t, 1, survivor.Stats().Reaped)
			survivor.halt()
			victim.halt()
		})
	}
}

func TestLeasesOfAKilledProcessAreBackThoughNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		victim, c := join(t, db, Config{Limit: 100})
		take(t, victim, 7)
		other, _ := join(t, db, Config{Limit: 100})
		defer other.halt()
		take(t, other, 1)
		c.set(func(c *fakeClient) { c.dead = true })
		victim.stop()
		time.Sleep(other.cfg.Lease + other.cfg.Grace)
		require.EqualValues(t, 1, used(db))
		victim.halt()
	})
}

func TestCloseGivesEverythingBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		l, _ := join(t, db, Config{Limit: 1000})
		releases := take(t, l, 3)
		require.EqualValues(t, 10, used(db), "a batch")
		for _, release := range releases {
			release()
		}
		require.NoError(t, l.Close(t.Context()))
		require.Zero(t, used(db))

		l, _ = join(t, db, Config{Limit: 1000})
		take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		require.ErrorIs(t, err, lease.ErrInUse)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotZero(t, used(db), "a connection may exist")
	})
}

// Others watch while it closes: none of them may take it for dead, or say so.
func TestAProcessThatClosesIsNotReportedDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logbook
		db := newFakeDB()
		cfg := Config{Limit: 1000, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		other, _ := join(t, db, cfg)
		take(t, other, 1)
		for range 20 {
			leaver, c := join(t, db, cfg)
			for _, release := range take(t, leaver, 60) {
				release()
			}
			time.Sleep(20 * time.Second) // and another watcher's look at any time
			c.set(func(c *fakeClient) { c.faults.delay = 10 * time.Second })
			leaver.cfg.RequestTimeout, leaver.table.timeout = 30*time.Second, 30*time.Second
			require.NoError(t, leaver.Close(t.Context()))
			require.Zero(t, leaver.Stats().Reaped)
		}
		require.EqualValues(t, 10, used(db))
		require.Zero(t, other.Stats().Reaped)
		require.NotContains(t, log.String(), "dead")
		other.halt()
	})
}

// A closing process whose first step comes once more, late, leaves an entry
// that nobody owns: the tombstone gives it away.
func TestALateDuplicateOfAProcessThatClosedIsFreedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		leaver, c := join(t, db, Config{Limit: 1000})
		c.set(func(c *fakeClient) { c.faults.duplicate, c.faults.duplicateDelay = 1, time.Minute })
		take(t, leaver, 1)[0]()
		c.set(func(c *fakeClient) { c.faults.duplicate = 0 })
		require.NoError(t, leaver.Close(t.Context()))
		require.Zero(t, used(db))
		for used(db) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		came := time.Now()
		other, _ := join(t, db, Config{Limit: 1000})
		for used(db) != 0 {
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(came), 2*other.cfg.Lease/8)
		other.halt()
	})
}

func TestSurplusGoesBackAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		l, _ := join(t, db, Config{Limit: 1000})
		defer l.halt()
		for _, release := range take(t, l, 50) {
			release()
		}
		time.Sleep(59 * time.Second)
		require.EqualValues(t, 50, used(db))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 10, used(db))
	})
}

func TestSpareLeasesGoBackSoonWhenTheFleetIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		rich, _ := join(t, db, Config{Limit: 20, Batch: 10})
		defer rich.halt()
		releases := take(t, rich, 20)
		for _, release := range releases[1:] {
			release()
		}
		poor, _ := join(t, db, Config{Limit: 20, Batch: 10})
		defer poor.halt()
		take(t, poor, 19)
	})
}

// The holder of spare leases learns from its watch alone that others wait.
func TestSpareLeasesGoBackThoughTheFleetRunsShortLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		rich, _ := join(t, db, Config{Limit: 40, Batch: 10})
		defer rich.halt()
		take(t, rich, 1)[0]()
		time.Sleep(10 * time.Minute) // one batch is no surplus
		require.EqualValues(t, 10, used(db))
		poor, _ := join(t, db, Config{Limit: 40, Batch: 10})
		defer poor.halt()
		take(t, poor, 30)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := poor.Acquire(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 15*time.Second)
	})
}

func TestFallbackDecidesAndIsToldWhenTheTableIsUnreachable(t *testing.T) {
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
				db := newFakeDB()
				l, c := join(t, db, Config{
					Limit: 10, Batch: 1, Fallback: variant.fallback, Strict: variant.strict,
					Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				releases := take(t, l, 3)
				c.set(func(c *fakeClient) { c.outage = time.Now().Add(10 * time.Minute) })
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
				require.EqualValues(t, len(releases), used(db), "what exists is in the table again")
				require.Zero(t, l.Stats().Unbacked)
				l.halt()
			})
		})
	}
}

func TestAProcessTakenForDeadKeepsItsConnectionsIfThereIsRoom(t *testing.T) {
	for _, room := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			db := newFakeDB()
			l, c := join(t, db, Config{Limit: 10, Batch: 1})
			defer l.halt()
			take(t, l, 4)
			revoked := make(chan lease.Revocation, 1)
			stop := l.OnRevoke(func(r lease.Revocation) { revoked <- r })
			defer stop()
			other, _ := join(t, db, Config{Limit: 10, Batch: 1})
			defer other.halt()
			c.set(func(c *fakeClient) { c.outage = time.Now().Add(3 * time.Minute) })
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
				require.EqualValues(t, 12, used(db), "the sum stays honest")
			default:
				require.True(t, room)
				require.EqualValues(t, 10, used(db))
			}
		})
	}
}

func TestStrictRevokesWhenTheValidityLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := join(t, newFakeDB(), Config{Limit: 10, Strict: true})
		releases := take(t, l, 2)
		revoked := make(chan lease.Revocation, 1)
		l.OnRevoke(func(r lease.Revocation) { revoked <- r })
		start := time.Now()
		c.set(func(c *fakeClient) { c.outage = time.Now().Add(10 * time.Minute) })
		r := <-revoked
		require.LessOrEqual(t, r.Deadline.Sub(start), l.validity+l.cfg.Grace)
		require.Positive(t, time.Until(r.Deadline), "there is time left to close")
		require.ErrorIs(t, l.Valid(), lease.ErrUnavailable)
		for _, release := range releases {
			release()
		}
		l.halt()
	})
}

func TestWrongSettingsAreToldByName(t *testing.T) {
	_, err := newLeases(t.Context(), nil, Config{Limit: -1, Grace: time.Second, Strict: true, Fallback: lease.Share(1)})
	for _, name := range []string{"Config.Table", "Config.Budget", "Config.Limit", "Config.Grace", "Config.Strict"} {
		require.ErrorContains(t, err, name)
	}
	_, err = newLimiter(t.Context(), nil, LimiterConfig{Rate: -1, Burst: 5})
	for _, name := range []string{"LimiterConfig.Table", "LimiterConfig.Budget", "LimiterConfig.Rate", "LimiterConfig.Burst"} {
		require.ErrorContains(t, err, name)
	}
	_, err = New(t.Context(), nil, Config{})
	require.ErrorContains(t, err, "client is nil")
}

func TestAnswersThatNoRetryChangesNameTheSetting(t *testing.T) {
	tab := newTable(nil, "leases", "Config", time.Second)
	for _, c := range []struct {
		err     error
		setting string
	}{
		{&types.ResourceNotFoundException{}, "Config.Table"},
		{&smithy.GenericAPIError{Code: "AccessDeniedException"}, "dynamodb:UpdateItem"},
		{&smithy.GenericAPIError{Code: "UnrecognizedClientException"}, "credentials"},
		{&smithy.GenericAPIError{Code: "ValidationException"}, "CreateTable"},
	} {
		err := tab.explain(c.err)
		require.True(t, isPermanent(err))
		require.ErrorContains(t, err, c.setting)
		require.ErrorIs(t, err, c.err)
	}
	require.False(t, isPermanent(tab.explain(errThrottled)))
	require.False(t, isPermanent(tab.explain(errors.New("connection reset"))))
}

func TestALimitThatDiffersFromTheTablesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFakeDB()
		l, c := join(t, db, Config{Limit: 10, Shards: 2})
		defer l.halt()
		_, err := newLeases(t.Context(), c, Config{Table: "t", Budget: "b", Limit: 11, Shards: 2})
		require.ErrorContains(t, err, "Config.Limit: use the table's, or change that with SetLimit: 11 here, 10 in the table")
		_, err = newLeases(t.Context(), c, Config{Table: "t", Budget: "b", Limit: 10})
		require.ErrorContains(t, err, "Config.Shards")
	})
}

func TestFallbackOfTheLimiterDecidesAndIsTold(t *testing.T) {
	for _, fallback := range []lease.Fallback{lease.Pessimistic(), lease.Share(10), lease.Optimistic()} {
		synctest.Test(t, func(t *testing.T) {
			var log logbook
			c := newFakeClient(newFakeDB(), seeded(1), calm)
			l, err := newLimiter(t.Context(), c, LimiterConfig{
				Table: "t", Budget: "b", Fallback: fallback, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			require.NoError(t, err)
			c.set(func(c *fakeClient) { c.outage = time.Now().Add(time.Minute) })
			start := time.Now()
			err = l.Wait(t.Context()) // finds out
			require.Less(t, time.Since(start), 10*time.Second)
			if fallback == lease.Pessimistic() {
				require.ErrorIs(t, err, lease.ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.NoError(t, err)
				start = time.Now()
				for range 30 {
					require.NoError(t, l.Wait(t.Context()))
				}
				require.EqualValues(t, 31, l.Stats().Fallbacks)
			}
			if fallback == lease.Share(10) {
				require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			}
			require.True(t, l.Stats().Degraded)
			require.Contains(t, log.String(), "fallback="+fallback.String())
			time.Sleep(2 * time.Minute)
			require.False(t, l.Stats().Degraded)
			require.NoError(t, l.Wait(t.Context()))
			require.NoError(t, l.Close(t.Context()))
		})
	}
}
