//go:build invariants

package reservoir

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A schedule lets one goroutine at a time have the lock, in an order that is given: the
// choices say which of those that are about to take it is next. Other than by the lock,
// goroutines of a reservoir meet only in waiter.status and the list of leavers.
type schedule struct {
	choices []int      // made so far, or given
	widths  []int      // how many there were to choose from
	random  *rand.Rand // chooses where nothing is given; nil: the first

	mu   sync.Mutex
	held []heldUp
	free bool // nobody is held up any more

	ending []func()
}

type heldUp struct {
	where string
	gate  chan struct{}
}

// locking holds the goroutine up until it is chosen.
func (s *schedule) locking() {
	var pcs [12]uintptr
	var where strings.Builder
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&where, "%s:%d ", f.Function[strings.LastIndexByte(f.Function, '.')+1:], f.Line)
	}
	gate := make(chan struct{})
	s.mu.Lock()
	free := s.free
	if !free {
		s.held = append(s.held, heldUp{where.String(), gate})
	}
	s.mu.Unlock()
	if !free {
		<-gate
	}
}

// end lets everybody go on.
func (s *schedule) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = true
	for _, h := range s.held {
		close(h.gate)
	}
	s.held = nil
}

func (*schedule) locked() {}

// unlocking ends the contexts that are to end when a result may have been decided
// and its caller not been woken.
func (s *schedule) unlocking() {
	s.mu.Lock()
	ending := s.ending
	s.ending = nil
	s.mu.Unlock()
	for _, cancel := range ending {
		cancel()
	}
}

// endIn has a context end in the next section under the lock.
func (s *schedule) endIn(cancel func()) {
	s.locking()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = append(s.ending, cancel)
}

// step lets the next goroutine go on. It returns false when none is held up.
func (s *schedule) step(at int) bool {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return false
	}
	slices.SortStableFunc(s.held, func(a, b heldUp) int { return strings.Compare(a.where, b.where) })
	if at == len(s.choices) {
		n := 0
		if s.random != nil {
			n = s.random.IntN(len(s.held))
		}
		s.choices = append(s.choices, n)
	}
	n := min(s.choices[at], len(s.held)-1)
	s.widths = append(s.widths[:at], len(s.held))
	close(s.held[n].gate)
	s.held = slices.Delete(s.held, n, n+1)
	return true
}

// next is the next schedule, at random or in the order of a search in depth; false:
// that was the last.
func (s *schedule) next() bool {
	s.free = false
	if s.random != nil {
		s.choices = s.choices[:0]
		return true
	}
	for i := len(s.widths) - 1; i >= 0; i-- {
		if s.choices[i]+1 < s.widths[i] {
			s.choices = append(s.choices[:i:i], s.choices[i]+1)
			return true
		}
	}
	return false
}

// A scene is some actors on one reservoir.
type scene struct {
	r      *Reservoir[int]
	s      *schedule
	refuse atomic.Int64 // so many opens fail
	wrong  atomic.Pointer[string]

	mu     sync.Mutex
	open   map[int]bool
	last   int
	lent   map[int]bool
	losses map[int]func(error)
}

func (c *scene) failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.wrong.CompareAndSwap(nil, &text)
}

var errScene = errors.New("refused")

func (c *scene) config(base Config[int]) Config[int] {
	base.Open = func(context.Context) (int, error) {
		if c.refuse.Add(-1) >= 0 {
			return 0, errScene
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last++
		c.open[c.last] = true
		return c.last, nil
	}
	base.Close = func(n int) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.open[n] {
			c.failf("%d is closed twice", n)
		}
		delete(c.open, n)
		return nil
	}
	base.Watch = func(n int, lost func(error)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.losses[n] = lost
	}
	base.Check = func(context.Context, int) error { return nil }
	return base
}

// borrow is one Acquire and its Release.
func (c *scene) borrow(ctx context.Context) error {
	l, err := c.r.Acquire(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.lent[l.Value()] || !c.open[l.Value()] {
		c.failf("%d is lent twice (%v), or closed", l.Value(), c.lent)
	}
	c.lent[l.Value()] = true
	c.mu.Unlock()
	c.s.locking() // the use: others may act
	c.mu.Lock()
	delete(c.lent, l.Value())
	c.mu.Unlock()
	return l.Release()
}

// actors are what may happen beside each other.
var actors = map[string]func(c *scene){
	"borrow": func(c *scene) {
		if err := c.borrow(context.Background()); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, errScene) && !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrReleased) {
			c.failf("borrow: %v", err)
		}
	},
	"leave": func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { c.s.locking(); cancel() }()
		if err := c.borrow(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) && !errors.Is(err, errScene) && !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrReleased) {
			c.failf("leave: %v", err)
		}
	},
	"leave in a section": func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		go c.s.endIn(cancel)
		if err := c.borrow(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) && !errors.Is(err, errScene) && !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrReleased) {
			c.failf("leave in a section: %v", err)
		}
	},
	"late": func(c *scene) {
		ctx, cancel := newManualDeadline(context.Background())
		go func() { c.s.locking(); cancel() }()
		if err := c.borrow(ctx); err != nil && !errors.Is(err, ErrExhausted) && !errors.Is(err, ErrClosed) && !errors.Is(err, errScene) && !errors.Is(err, ErrReleased) &&
			!errors.Is(err, context.DeadlineExceeded) {
			c.failf("late: %v", err)
		}
	},
	"lose": func(c *scene) {
		c.s.locking()
		c.mu.Lock()
		lost := c.losses[c.last]
		c.mu.Unlock()
		if lost != nil {
			lost(errScene)
		}
	},
	"refuse": func(c *scene) { c.refuse.Store(1) },
	"close": func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { c.s.locking(); cancel() }()
		_ = c.r.Close(ctx)
	},
	"reset":  func(c *scene) { c.r.Reset() },
	"evict":  func(c *scene) { c.r.CloseIdle(1, 0) },
	"fail":   func(c *scene) { c.r.FailWaiters(ErrExhausted) },
	"resize": func(c *scene) { _ = c.r.Resize(1); _ = c.r.Resize(2) },
	"tune": func(c *scene) {
		_ = c.r.Reconfigure(Config[int]{MaxSize: 1, OpenRetry: OpenRetryNever, AcquireTimeout: time.Minute, OnExhausted: FailFast})
	},
	"ready": func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { c.s.locking(); cancel() }()
		_ = c.r.WaitReady(ctx, 1)
	},
}

// play runs the actors as s says and judges what is left.
func play(t *testing.T, base Config[int], names []string, s *schedule) (wrong string) {
	synctest.Test(t, func(*testing.T) {
		c := &scene{s: s, open: map[int]bool{}, lent: map[int]bool{}, losses: map[int]func(error){}}
		var err error
		if c.r, err = New(c.config(base)); err != nil {
			wrong = err.Error()
			return
		}
		synctest.Wait() // New may have begun to open
		c.r.mu.observer, c.r.mu.beforeLock = s, s.locking
		var acting sync.WaitGroup
		done := make(chan struct{})
		for _, name := range names {
			acting.Go(func() { actors[name](c) })
		}
		go func() { acting.Wait(); close(done) }()
		at, slept := 0, 0
		for {
			if s.step(at) {
				at++
				continue
			}
			select {
			case <-done:
			default:
				if slept++; slept < 100 {
					time.Sleep(time.Second)
					continue
				}
				buf := make([]byte, 1<<16)
				c.failf("an actor hangs:\n%s", buf[:runtime.Stack(buf, true)])
			}
			break
		}
		s.end()
		c.judge()
		if w := c.wrong.Load(); w != nil {
			wrong = *w
		}
	})
	return wrong
}

// judge looks at a reservoir in which nothing moves any more.
func (c *scene) judge() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	c.refuse.Store(0)
	time.Sleep(2 * time.Second) // the pause after a failed open, in which FailFast refuses
	if err := c.borrow(ctx); err != nil && !errors.Is(err, ErrClosed) {
		c.failf("a later caller: %v", err)
	}
	if err := c.r.Close(ctx); err != nil && !errors.Is(err, ErrClosed) {
		c.failf("close: %v", err)
	}
	time.Sleep(time.Second)
	s := c.r.Stats()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) > 0 || s.Total > 0 || s.Waiting > 0 {
		c.failf("left: %v %+v", c.open, s)
	}
	if n := c.r.leavers.inQueue.Load(); n != 0 || c.r.leavers.head.Load() != nil {
		c.failf("%d who have left are in the queue", n)
	}
}

// TestSmallInterleavings tries orders in which a few actors can take the lock: some
// at random; with INTERLEAVE=all up to 20,000 of each scene one after another, which is
// all of the smallest; with INTERLEAVE=more a hundred of each, and one actor more.
func TestSmallInterleavings(t *testing.T) {
	most, third := 5, []string{"borrow"}
	names := slices.Sorted(maps.Keys(actors))
	random := rand.New(rand.NewPCG(1, 2))
	switch os.Getenv("INTERLEAVE") {
	case "": // some at random
	case "all": // in depth
		most, random = 20_000, nil
	default:
		most, third, random = 100, names, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))
	}
	configs := map[string]Config[int]{
		"plain":    {MaxSize: 1, AcquireTimeout: time.Minute},
		"two":      {MaxSize: 2, MinIdle: 1, AcquireTimeout: time.Minute},
		"failfast": {MaxSize: 1, OnExhausted: FailFast, AcquireTimeout: time.Minute},
		"never":    {MaxSize: 1, OpenRetry: OpenRetryNever, AcquireTimeout: time.Minute},
		"check":    {MaxSize: 1, CheckOnAcquire: true, IdleBeforeCheck: -1, AcquireTimeout: time.Minute},
		"overflow": {MaxSize: 1, OnExhausted: Overflow(1), AcquireTimeout: time.Minute},
	}
	runs, scenes, whole := 0, 0, 0
	for cn, cfg := range configs {
		for i, a := range names {
			for _, b := range names[i:] {
				for _, d := range third {
					acting := []string{"borrow", a, b, d}
					scenes++
					s := &schedule{random: random}
					for range most {
						runs++
						if wrong := play(t, cfg, acting, s); wrong != "" {
							t.Fatalf("%s %v, order %v: %s", cn, acting, s.choices, wrong)
						}
						if !s.next() {
							whole++
							break
						}
					}
				}
			}
		}
	}
	t.Logf("%d scenes, %d of them in all orders, %d runs", scenes, whole, runs)
}

// Who leaves for a deadline is told what the reservoir is like then. It looks itself, unless another
// has done so within a millisecond; while the lock is taken, what it was like of late will do.
func TestThoseWhoAreLateAreToldTheStateOfLate(t *testing.T) {
	const old, present = 99, 1 // by MaxSize
	for name, c := range map[string]struct {
		age   time.Duration // of the snapshot there is; 0: none
		taken bool          // the lock is, until the caller waits for it
		late  time.Duration // likewise, of the one that another makes while the caller waits for that one
		told  int
	}{
		"none":                     {0, false, 0, present},
		"none, taken":              {0, true, 0, present},
		"of this moment":           {time.Millisecond, false, 0, old},
		"older":                    {time.Millisecond + 1, false, 0, present},
		"as old as may be, taken":  {100 * time.Millisecond, true, 0, old},
		"too old, taken":           {100*time.Millisecond + 1, true, 0, present},
		"made while it waits":      {0, true, 100 * time.Millisecond, old},
		"made anew while it waits": {time.Second, true, time.Nanosecond, old},
		"made late, too old":       {time.Second, true, 100*time.Millisecond + 1, present},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }, MaxSize: 1})
			require.NoError(t, err)
			now := r.clock.exact() + int64(time.Hour)
			if c.age > 0 {
				r.leavers.latestSnapshot.Store(&snapshot{ExhaustedError{MaxSize: old}, now - int64(c.age)})
			}
			if c.taken {
				r.mu.Mutex.Lock()
				r.mu.beforeLock = func() { r.mu.Mutex.Unlock(); r.mu.beforeLock = nil }
				r.leavers.looking.beforeLock = func() {
					if c.late > 0 {
						r.leavers.latestSnapshot.Store(&snapshot{ExhaustedError{MaxSize: old}, now - int64(c.late)})
					}
				}
			}
			require.Equal(t, c.told, r.snapshotAt(now).MaxSize)
			if c.taken && r.mu.beforeLock != nil { // nobody has waited for it
				r.mu.Mutex.Unlock()
				r.mu.beforeLock = nil
			}
			if c.told == present {
				require.Equal(t, now, r.leavers.latestSnapshot.Load().takenAt, "the next one has it")
			}
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

// However many are late while another has the lock, one of them waits for it, and those who need it are behind that one alone.
func TestOneOfThoseWhoAreLateWaitsForTheLock(t *testing.T) {
	const late = 50
	r, err := New(Config[int]{Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil }})
	require.NoError(t, err)
	came := make(chan struct{}, 2*late)
	var forLock atomic.Int64
	r.leavers.looking.beforeLock = func() { came <- struct{}{} }
	r.mu.Mutex.Lock()
	r.mu.beforeLock = func() { forLock.Add(1); came <- struct{}{} }
	var callers sync.WaitGroup
	now := r.clock.exact()
	for range late {
		callers.Go(func() { _ = r.snapshotAt(now) })
	}
	for range late {
		<-came
	}
	require.LessOrEqual(t, forLock.Load(), int64(1))
	r.mu.Mutex.Unlock()
	callers.Wait()
	require.EqualValues(t, 1, forLock.Load())
	r.mu.beforeLock = nil
	require.NoError(t, r.Close(t.Context()))
}
