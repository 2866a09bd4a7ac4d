package dsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/lease"
	"github.com/flightpool/flightpool/reservoir"
)

func TestPausesDoubleWithTheStreakAndEndWithASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for v, want := range pauses {
			var b openBreaker
			bound := want.first
			for range 20 {
				b.failed(v, errGone)
				left := b.pauseLeft()
				require.LessOrEqual(t, left, bound)
				require.GreaterOrEqual(t, left, bound/2)
				b.failed(v, errGone)
				require.Equal(t, left, b.pauseLeft(), "what fails together is one failure")
				require.NoError(t, b.waitPause(t.Context()))
				bound = min(2*bound, want.longest)
			}
			b.succeeded()
			b.failed(v, errGone)
			require.LessOrEqual(t, b.pauseLeft(), want.first)
		}
		var b openBreaker
		b.failed(transient, errGone)
		require.Zero(t, b.pauseLeft(), "the reservoir's own back-off is enough")
		for range 6 {
			b.failed(rateLimited, errGone)
			require.NoError(t, b.waitPause(t.Context()))
		}
		b.failed(connLimited, errGone)
		require.LessOrEqual(t, b.pauseLeft(), pauses[connLimited].first, "refusals of another kind are no part of the streak")
	})
}

func TestAWaitAtTheBrakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b openBreaker
		b.failed(connLimited, errGone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.waitPause(ctx), context.DeadlineExceeded)
	})
}

func TestWatchersHearOfHopelessnessUntilTheyStop(t *testing.T) {
	var b openBreaker
	var heard []error
	hear := func(err error) { heard = append(heard, err) }
	stop := b.onPermanent(hear)
	b.failed(rateLimited, errors.New("not that"))
	b.failed(permanent, errGone)
	stop()
	b.failed(permanent, errGone)
	b.onPermanent(hear)()
	b.succeeded()
	b.onPermanent(hear)()
	require.Equal(t, []error{errGone, errGone}, heard, "once when it happened, once at once while it lasts")
}

// A fakeDial answers opens with one failureKind after the other.
type fakeDial struct {
	verdicts []failureKind
	times    []time.Duration
	began    time.Time
}

var errServed = errors.New("served")

func (f *fakeDial) open(context.Context) (*physical, error) {
	f.times = append(f.times, time.Since(f.began))
	if len(f.verdicts) == 0 {
		return &physical{}, nil
	}
	v := f.verdicts[0]
	f.verdicts = f.verdicts[1:]
	return nil, &OpenError{kind: v, Err: errServed}
}

func bare(limiter lease.Limiter) *Cluster {
	return &Cluster{
		budgets: &budgets{limiter: limiter}, log: slog.New(slog.DiscardHandler), openConns: map[*physical]struct{}{},
		cfg: Config{OpenTimeout: 5 * time.Second},
	}
}

func TestAnOpenOutlastsRefusalsWithAPermitForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := lease.NewLimiter("x", 1, 1)
		c, dial := bare(limiter), &fakeDial{verdicts: []failureKind{rateLimited, rateLimited, connLimited}, began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.openRetrying(ctx, dial.open)
		require.NoError(t, err)
		require.Len(t, dial.times, 4)
		require.EqualValues(t, 2, limiter.Stats().Refusals, "53300 says nothing of the rate")
		require.EqualValues(t, 3, limiter.Stats().Granted)
		for i := 2; i < 4; i++ {
			require.GreaterOrEqual(t, dial.times[i]-dial.times[i-1], time.Second, "the limiter's pace, after it was told")
		}
	})
}

func TestAnOpenGivesUpWhenThePauseOutlastsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dial := bare(lease.NewLimiter("x", 100, 100)), &fakeDial{verdicts: []failureKind{connLimited, connLimited, connLimited, connLimited, connLimited, connLimited}, began: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.openRetrying(ctx, dial.open)
		require.ErrorIs(t, err, errServed, "the refusal, not the end of the context")
		require.Less(t, time.Since(dial.began), 3*time.Second)
	})
}

// Many opens are refused together; then one asks again, pause after pause, and
// when it is let in, all others are at once.
func TestOnlyOneOpenFindsOutWhetherTheClusterStillRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bare(lease.NewLimiter("x", 1000, 1000))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var attempts []time.Duration // read when all wait
		began, refuses, opened := time.Now(), true, 0
		var mu sync.Mutex
		dial := func(context.Context) (*physical, error) {
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, time.Since(began))
			if refuses {
				return nil, &OpenError{kind: connLimited, Err: errServed}
			}
			opened++
			return &physical{}, nil
		}
		for range 8 {
			go func() { _, _ = c.openRetrying(ctx, dial) }()
		}
		time.Sleep(12 * time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, len(attempts), 8+2, "pauses of at most 1, 2, 4, 8 s")
		require.LessOrEqual(t, len(attempts), 8+4, "of at least 0.5, 1, 2, 4, 8 s")
		for i := 9; i < len(attempts); i++ {
			require.GreaterOrEqual(t, attempts[i]-attempts[i-1], time.Second, "one after the other")
		}
		mu.Lock()
		attempts, refuses = nil, false
		mu.Unlock()
		time.Sleep(16 * time.Second)
		synctest.Wait()
		require.Len(t, attempts, 8)
		require.Equal(t, 8, opened)
		require.Less(t, attempts[7]-attempts[0], 100*time.Millisecond)
	})
}

// What was permitted before a pause is too old after it.
func TestAFirstAttemptThatHadToWaitTakesAnotherPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := lease.NewLimiter("x", 100, 100)
		c, dial := bare(limiter), &fakeDial{began: time.Now()}
		_, err := c.openRetrying(t.Context(), dial.open)
		require.NoError(t, err)
		require.Zero(t, limiter.Stats().Granted)
		c.breaker.failed(connLimited, &OpenError{kind: connLimited, Err: errServed})
		_, err = c.openRetrying(t.Context(), dial.open)
		require.NoError(t, err)
		require.EqualValues(t, 1, limiter.Stats().Granted)
	})
}

func TestAnOpenThatNeverHadItsTurnFailsWithTheRefusalOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dial := bare(lease.NewLimiter("x", 100, 100)), &fakeDial{began: time.Now()}
		c.breaker.failed(rateLimited, &OpenError{kind: rateLimited, Err: errServed})
		leave, waited, err := c.breaker.beginAttempt(t.Context())
		require.NoError(t, err)
		require.True(t, waited)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.openRetrying(ctx, dial.open)
		require.ErrorIs(t, err, errServed)
		require.True(t, isLimitError(err))

		c.breaker.failed(transient, &OpenError{Err: errServed}) // the latest is not a refusal
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.openRetrying(ctx, dial.open)
		var open *OpenError
		require.ErrorAs(t, err, &open, "no caller takes it for the end of its own time")
		require.ErrorContains(t, err, "OpenTimeout")
		require.Empty(t, dial.times)
		leave()
	})
}

// After a pause the rest of an open's time may be too short for another attempt:
// that is no answer from the cluster, its refusal is.
func TestAnAttemptThatTheRefusalsLeftTooLittleTimeIsStillTheRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bare(lease.NewLimiter("x", 100, 100))
		ctx, cancel := context.WithTimeout(t.Context(), 110*time.Millisecond)
		defer cancel()
		attempts := 0
		_, err := c.openRetrying(ctx, func(ctx context.Context) (*physical, error) {
			if attempts++; attempts == 1 {
				return nil, &OpenError{kind: rateLimited, Err: errServed}
			}
			<-ctx.Done()
			return nil, &OpenError{Err: ctx.Err()}
		})
		require.Equal(t, 2, attempts)
		require.ErrorIs(t, err, errServed)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, isLimitError(err))
	})
}

func TestOtherErrorsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, v := range []failureKind{transient, permanent} {
			c, dial := bare(lease.NewLimiter("x", 100, 100)), &fakeDial{verdicts: []failureKind{v}, began: time.Now()}
			_, err := c.openRetrying(t.Context(), dial.open)
			require.ErrorIs(t, err, errServed)
			require.Len(t, dial.times, 1)
		}
	})
}

func TestAnswersAreClassified(t *testing.T) {
	for code, want := range map[string]failureKind{"53400": rateLimited, "53300": connLimited, "28000": permanent, "28P01": permanent, "3D000": permanent, "57P01": transient, "08006": transient} {
		got, _ := classify(&pgconn.PgError{Code: code, Message: "something"})
		require.Equal(t, want, got, code)
	}
	for _, message := range []string{"unable to accept connection, access denied", `IAM authentication failed for user "x"`} {
		got, _ := classify(&pgconn.PgError{Code: "08006", Message: message})
		require.Equal(t, permanent, got)
	}
}

func TestAnEmptyReservoirHidesBadConnWhateverFailed(t *testing.T) {
	err := &EmptyError{Cause: context.Canceled, LastOpen: driver.ErrBadConn}
	require.ErrorIs(t, err, ErrReservoirEmpty)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, driver.ErrBadConn)
}

// A caller's own time is what ends its wait, whether the open that is refused
// still tries again or has given up before.
func TestARefusalThatLastsIsTheCauseOfTheEmptinessAndNotItsMoment(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"given up": 400 * time.Millisecond, "still trying": time.Hour} {
		for v, attempts := range map[failureKind]int{rateLimited: 30, connLimited: 8} {
			t.Run(fmt.Sprint(name, " ", v), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := refusing(t, timeout, v)
					part, err := c.view(View{})
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					began := time.Now()
					_, err = part.acquire(ctx)
					require.Equal(t, time.Minute, time.Since(began))
					require.ErrorIs(t, err, ErrReservoirEmpty)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, errServed, "the refusal")
					s := c.Stats()
					require.Equal(t, 0, s.Queued)
					failed := map[failureKind]uint64{rateLimited: s.FailedOpens.Rate, connLimited: s.FailedOpens.Limit}[v]
					require.Positive(t, failed)
					require.LessOrEqual(t, failed, uint64(attempts))
					require.EqualValues(t, 1, s.Failures)
					require.NoError(t, c.Close(t.Context()))
				})
			})
		}
	}
}

// refusing is a cluster that refuses every open, with one connection to have.
func refusing(t *testing.T, timeout time.Duration, v failureKind) *Cluster {
	cfg, err := Config{Host: someHost, MaxSize: 1, OpenTimeout: timeout, AcquireTimeout: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
	require.NoError(t, err)
	budgets := &budgets{leases: lease.NewLeases("x", 100), limiter: lease.NewLimiter("x", 100, 100)}
	c, err := newCluster(t.Context(), cfg, budgets, func(context.Context) (*physical, error) {
		return nil, &OpenError{kind: v, Err: errServed}
	})
	require.NoError(t, err)
	return c
}

// A held limiter permits nothing, and counts who waits.
type held struct {
	lease.Limiter
	waiting atomic.Int32
	permit  chan struct{}
}

func (h *held) Wait(ctx context.Context) error {
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	select {
	case <-h.permit:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAboveTheLowWatermarkOpensAreAskedForOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := Config{Host: someHost, MaxSize: 8, MinIdle: 4, LowWatermark: 2, CheckInterval: -1}.resolve(environ(nil))
		require.NoError(t, err)
		limiter := &held{Limiter: lease.NewLimiter("x", 100, 100), permit: make(chan struct{})}
		c, err := newCluster(t.Context(), cfg, &budgets{leases: lease.NewLeases("x", 100), limiter: limiter}, func(context.Context) (*physical, error) {
			p := &physical{}
			local, _ := net.Pipe()
			p.setSocket(local)
			p.owner.Store(ownedByBorrower) // so that its close is to cut it
			return p, nil
		})
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 4, limiter.waiting.Load(), "in need, as many as it may")
		for range 4 {
			limiter.permit <- struct{}{}
		}
		synctest.Wait()
		borrow := func(n int) {
			for range n {
				_, ok := c.res.TryAcquire()
				require.True(t, ok)
			}
			synctest.Wait()
		}
		borrow(2)
		require.Equal(t, 2, c.res.Stats().Opening)
		require.EqualValues(t, 1, limiter.waiting.Load(), "others may need it more")
		borrow(2)
		require.EqualValues(t, 4, limiter.waiting.Load(), "in need again, the one that waited for its turn too")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, c.Close(ended), "loans are out")
	})
}

// A queue of the limiter of 1s, which other processes cause. Opens that wait for
// their turn while enough are ready are in a hurry when that changes: callers
// wait for one queue, not for eight.
func TestCallersDoNotWaitForOpensThatTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, low, lost = 20, 2, 8
		cfg, err := Config{Host: someHost, MaxSize: size, LowWatermark: low, CheckInterval: -1, Logger: slog.New(slog.DiscardHandler)}.resolve(environ(nil))
		require.NoError(t, err)
		c, err := newCluster(t.Context(), cfg, &budgets{leases: lease.NewLeases("x", 100), limiter: slow{lease.NewLimiter("x", 100, 100)}}, func(context.Context) (*physical, error) {
			p := &physical{}
			local, _ := net.Pipe()
			p.setSocket(local)
			p.owner.Store(ownedByBorrower) // so that its close is to cut it
			return p, nil
		})
		require.NoError(t, err)
		require.NoError(t, c.res.WaitReady(t.Context(), size))
		var out []reservoir.Loan[*physical]
		for range lost {
			l, ok := c.res.TryAcquire()
			require.True(t, ok)
			out = append(out, l)
		}
		for _, l := range out {
			require.NoError(t, l.Discard(errGone))
		}
		synctest.Wait()
		require.Equal(t, lost, c.res.Stats().Opening)
		for range size - lost { // a burst takes what is left
			_, ok := c.res.TryAcquire()
			require.True(t, ok)
		}
		began := time.Now()
		for range lost {
			_, err := c.res.Acquire(t.Context())
			require.NoError(t, err)
		}
		require.LessOrEqual(t, time.Since(began), time.Second)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, c.Close(ended), "loans are out")
	})
}

type slow struct{ lease.Limiter }

func (s slow) Wait(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return s.Limiter.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
