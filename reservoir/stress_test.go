package reservoir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// An owned connection knows who has it: two owners at a time are a failure.
type owned struct {
	owner  atomic.Int64
	closed atomic.Bool
}

// A stress is one life of a reservoir under everything at once, in real time.
type stress struct {
	t    *testing.T
	r    *reservoir.Reservoir[*owned]
	live atomic.Int64
	held atomic.Int64 // permissions of Admit
	made atomic.Uint64
	stop atomic.Bool
	set  atomic.Bool // r is
}

// TestStress mixes callers who wait, leave, release twice and discard, or whose
// contexts panic, with all that an owner can do, hooks that call the reservoir,
// failing opens and checks, losses, short lives and Close.
// STRESS=10m makes it long. On a busy machine it goes on until it has lent often
// enough to mean something.
func TestStress(t *testing.T) {
	length := 2 * time.Second
	if s := os.Getenv("STRESS"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	lives, acquired := 0, uint64(0)
	for began := time.Now(); (time.Since(began) < length || acquired < 1000) && !t.Failed(); lives++ {
		acquired += stressOneLife(t, 50*time.Millisecond+rand.N(100*time.Millisecond))
	}
	t.Logf("%d reservoirs, %d loans", lives, acquired)
}

func stressOneLife(t *testing.T, length time.Duration) uint64 {
	s := &stress{t: t}
	r, err := reservoir.New(s.config())
	require.NoError(t, err)
	s.r = r
	s.set.Store(true)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			for !s.stop.Load() {
				s.act(random)
			}
		})
	}
	<-time.After(length)
	s.stop.Store(random(2) == 0) // half of the closes come in full traffic
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random(20))*time.Millisecond)
	defer cancel()
	err = r.Close(ctx)
	var closeErr *reservoir.CloseError
	if errors.As(err, &closeErr) {
		require.Zero(t, closeErr.Remaining)
	} else {
		require.NoError(t, err)
	}
	require.Zero(t, s.live.Load(), "connections left open after Close")
	require.Zero(t, s.held.Load(), "permissions not given back after Close")
	s.stop.Store(true)
	workers.Wait()
	stats := r.Stats()
	require.Zero(t, stats.Total+stats.Waiting)
	var closed uint64
	for _, n := range stats.Closed {
		closed += n
	}
	require.Equal(t, s.made.Load(), closed)
	require.LessOrEqual(t, closed+stats.OpenFailures, stats.Opens, "Admit never fails here")
	require.LessOrEqual(t, stats.Opens, closed+stats.OpenFailures+stats.OpensSkipped, "some were ended by Close")
	require.Zero(t, stats.HookFailures)
	return stats.Acquired
}

func random(n int) int { return rand.IntN(n) }

func (s *stress) config() reservoir.Config[*owned] {
	short := func(n int) time.Duration { return time.Duration(random(n)-n/4) * time.Millisecond } // often off
	cfg := reservoir.Config[*owned]{
		Open: s.open, Close: s.close, Check: s.check, Admit: s.admit,
		MaxSize: 2 + random(10), MinIdle: random(3), MaxConcurrentOpens: random(4),
		IdleTTL: short(8), MaxLifetime: 30 * time.Millisecond, LifetimeJitter: 10 * time.Millisecond, GuardWindow: time.Millisecond,
		CheckInterval: short(10), CheckOnAcquire: random(3) == 0, CheckOnRelease: random(3) == 0, IdleBeforeCheck: short(4),
		OnExhausted: reservoir.Exhaustion(random(4) - 1),
		OpenRetry:   reservoir.OpenRetry(random(3)), MaxWaiters: random(3) * 4,
		LeakAfter: short(10),
		Hooks: reservoir.Hooks{
			Leaked: func(reservoir.Leak) {}, Closed: func(reservoir.Reason, error) { s.steer(random(60)) },
			Acquired: func(time.Duration) { s.steer(random(300)) }, Released: func(time.Duration) { s.steer(random(300)) },
			WaitStart: func() { s.steer(random(100)) }, WaitEnd: func(time.Duration, error) { s.steer(random(300)) },
			Rejected: func() { s.steer(random(100)) }, OpenFailed: func(error, time.Duration) { s.steer(random(20)) },
		},
	}
	if random(2) == 0 {
		cfg.Reset = s.check
	}
	if random(2) == 0 {
		cfg.Watch = s.watch
	}
	return cfg
}

func (s *stress) open(ctx context.Context) (*owned, error) {
	switch n := random(20); {
	case n < 2:
		return nil, errRefused
	case n == 2:
		panic("open")
	case n == 3:
		return nil, reservoir.StillClosing(errRefused, s.closeLater())
	default:
		if err := sleep(ctx, time.Duration(random(300))*time.Microsecond); err != nil {
			return nil, err
		}
	}
	s.live.Add(1)
	s.made.Add(1)
	return &owned{}, nil
}

// closeLater is a connection that an open leaves to be closed behind it.
func (s *stress) closeLater() <-chan struct{} {
	closed := make(chan struct{})
	s.live.Add(1)
	time.AfterFunc(time.Duration(random(3000))*time.Microsecond, func() {
		s.live.Add(-1)
		close(closed)
	})
	return closed
}

func (s *stress) close(c *owned) error {
	if c.closed.Swap(true) {
		s.t.Error("closed twice")
	}
	s.live.Add(-1)
	return nil
}

// own takes a connection and expects to be alone.
func (s *stress) own(c *owned, who int64) {
	if other := c.owner.Swap(who); other != 0 {
		s.t.Errorf("%d got what %d has", who, other)
	}
}

// disown gives it back; after a forced Close it may be somebody else's no more.
func (s *stress) disown(c *owned, who int64) {
	if other := c.owner.Swap(0); other != who {
		s.t.Errorf("%d had what %d had", who, other)
	}
}

func (s *stress) check(_ context.Context, c *owned) error {
	who := 1 + rand.Int64N(1<<60)
	s.own(c, who)
	defer s.disown(c, who)
	runtime.Gosched()
	if random(50) == 0 {
		return errRefused
	}
	return nil
}

// watch ends some connections by themselves.
func (s *stress) watch(_ *owned, lost func(error)) {
	if random(3) == 0 {
		time.AfterFunc(time.Duration(random(5000))*time.Microsecond, func() { lost(errCut) })
	}
}

func (s *stress) admit(ctx context.Context) (func(), error) {
	_ = sleep(ctx, time.Duration(random(200))*time.Microsecond)
	s.held.Add(1)
	var once atomic.Bool
	return func() {
		if once.Swap(true) {
			s.t.Error("permission given back twice")
		}
		s.held.Add(-1)
	}, nil
}

// steer does something that an owner may do at any time, also in a hook, for a
// number below 9.
func (s *stress) steer(n int) {
	if !s.set.Load() { // a hook of New's first open
		return
	}
	switch n {
	case 0:
		_ = s.r.Resize(1 + random(12))
	case 1:
		s.r.Reset()
	case 2:
		s.r.EvictIdle()
	case 3:
		s.r.Stats()
		s.r.Connections()
	case 4:
		_ = s.r.Reconfigure(s.config())
	case 5:
		s.r.CloseIdle(random(3), 0)
	case 6, 7:
		s.r.FailWaiters(errRefused)
	case 8:
		if l, ok := s.r.TryAcquire(); ok {
			_ = l.Release()
		}
	}
}

func (s *stress) act(random *rand.Rand) {
	switch n := random.IntN(250); {
	case n < 9:
		s.steer(n)
	case n < 13:
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
		defer cancel()
		_ = s.r.WaitReady(ctx, random.IntN(4))
	case n < 20:
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
		defer cancel()
		_ = s.r.CheckOne(ctx)
	case n < 40:
		if l, ok := s.r.TryAcquire(); ok {
			s.use(l, random)
		}
	default:
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
		defer cancel()
		if n < 70 {
			go cancel()
		}
		if n%16 == 0 {
			defer func() { _ = recover() }()
			ctx = badContext{ctx, random}
		}
		if l, err := s.r.Acquire(ctx); err == nil {
			s.use(l, random)
		}
	}
}

// A badContext's Err panics at times, on its caller's goroutine.
type badContext struct {
	context.Context
	random *rand.Rand
}

func (c badContext) Err() error {
	if c.random.IntN(3) == 0 {
		panic("context")
	}
	return c.Context.Err()
}

func (s *stress) use(l reservoir.Loan[*owned], random *rand.Rand) {
	who := 1 + random.Int64N(1<<60)
	s.own(l.Value(), who)
	for range random.IntN(20) {
		runtime.Gosched()
	}
	s.disown(l.Value(), who)
	end := l.Release
	if random.IntN(10) == 0 {
		end = func() error { return l.Discard(errRefused) }
	}
	if err := end(); err != nil && !errors.Is(err, reservoir.ErrReleased) {
		s.t.Errorf("release: %v", err)
	}
	if random.IntN(4) == 0 {
		if err := l.Release(); !errors.Is(err, reservoir.ErrReleased) {
			s.t.Errorf("a second release gave %v", err)
		}
	}
}
