//go:build invariants

package reservoir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The race detector allows for 8,000 goroutines, and slows down what it watches.
const (
	manyWaiters     = 100_000
	manyConnections = 10_000 - 8_000*underRace
	longestSection  = (1 + 4*underRace) * time.Millisecond
)

// Holds measures sections under the lock by the processor time of their thread:
// what the machine does besides does not count.
type holds struct {
	since   time.Duration
	longest time.Duration
	where   string
	number  int
}

func (h *holds) locked() {
	runtime.LockOSThread() // whatever else runs meanwhile runs on another
	h.since = threadTime()
}

func (h *holds) unlocking() {
	took := threadTime() - h.since
	runtime.UnlockOSThread()
	h.number++
	if took > h.longest {
		var pcs [6]uintptr
		h.longest, h.where = took, ""
		frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
		for f, more := frames.Next(); more; f, more = frames.Next() {
			h.where += fmt.Sprintf(" %s:%d", f.Function, f.Line)
		}
	}
}

func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var at syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(at.Nano())
}

// Whatever happens to all connections or all waiters at once, no section under
// the lock takes longer than a millisecond of the processor.
func TestNoSectionUnderTheLockIsLong(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // its work may fall to who has the lock
	for name, happen := range map[string]func(t *testing.T, r *Reservoir[int]){
		"life":        live,
		"Reset":       func(_ *testing.T, r *Reservoir[int]) { r.Reset() },
		"EvictIdle":   func(_ *testing.T, r *Reservoir[int]) { r.EvictIdle() },
		"Resize":      func(t *testing.T, r *Reservoir[int]) { require.NoError(t, r.Resize(1)) },
		"Connections": func(_ *testing.T, r *Reservoir[int]) { r.Connections() },
		"Tune": func(t *testing.T, r *Reservoir[int]) {
			require.NoError(t, r.Reconfigure(Config[int]{MaxSize: 10, IdleTTL: time.Minute}))
		},
		"Close": func(*testing.T, *Reservoir[int]) {}, // at the end of each
		"Expiry": func(_ *testing.T, r *Reservoir[int]) {
			age(r, func(e *entry[int], now int64) { e.lifetime = lifetime{now, now} })
		},
		"IdleTTL": func(_ *testing.T, r *Reservoir[int]) {
			age(r, func(e *entry[int], now int64) { e.idleSince = now - r.idleTTL })
		},
		"Replacement": func(_ *testing.T, r *Reservoir[int]) {
			age(r, func(e *entry[int], now int64) { e.lifetime.replaceAt = now })
		},
	} {
		t.Run(name, func(t *testing.T) {
			judge(t, func(h *holds) {
				r := filled(t, h)
				happen(t, r)
				require.NoError(t, r.Close(t.Context()))
			})
		})
	}
}

func TestNoSectionUnderTheLockIsLongWithManyWaiters(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, happen := range map[string]func(t *testing.T, r *Reservoir[int], held Loan[int], waiting []*waiter[int]){
		"FailWaiters": func(_ *testing.T, r *Reservoir[int], _ Loan[int], _ []*waiter[int]) { r.FailWaiters(nil) },
		"Close":       func(*testing.T, *Reservoir[int], Loan[int], []*waiter[int]) {},
		"they leave": func(_ *testing.T, r *Reservoir[int], _ Loan[int], waiting []*waiter[int]) {
			for _, w := range waiting {
				require.True(t, r.leaveQueue(w))
				_, err := r.endWaitOfLeaver(w, context.DeadlineExceeded, timedOut)
				require.ErrorIs(t, err, ErrExhausted)
			}
		},
		"they leave together": func(t *testing.T, r *Reservoir[int], held Loan[int], waiting []*waiter[int]) {
			r.mu.Mutex.Lock() // a section of the test's own
			first := make(chan bool)
			go func() { first <- r.leaveQueue(waiting[0]) }()
			for r.leavers.head.Load() == nil {
				runtime.Gosched()
			}
			for _, w := range waiting[1:] {
				r.leaveQueue(w)
			}
			r.mu.Mutex.Unlock()
			require.True(t, <-first)
			require.NoError(t, held.Release())
		},
		"AcquireTimeout": func(t *testing.T, r *Reservoir[int], _ Loan[int], _ []*waiter[int]) {
			require.NoError(t, r.Reconfigure(Config[int]{MaxSize: 1, AcquireTimeout: time.Millisecond}))
		},
		"a failed open": func(t *testing.T, r *Reservoir[int], _ Loan[int], _ []*waiter[int]) {
			var fx effects[int]
			r.mu.Lock()
			r.failWaitersUpTo(r.mu.lastWaiter, errNoReason, false, &fx)
			r.unlock(&fx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			judge(t, func(h *holds) {
				r := quiet(t, 1)
				held, err := r.Acquire(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				waiting := make([]*waiter[int], manyWaiters)
				r.mu.Mutex.Lock()
				for i := range waiting {
					waiting[i] = r.newWaiter(ctx)
					r.enqueue(waiting[i])
				}
				r.mu.observer = h
				r.mu.Mutex.Unlock()
				happen(t, r, held, waiting)
				cancel()
				_ = r.Close(ctx) // takes the loan back
				require.Zero(t, r.mu.waiters.n)
			})
		})
	}
}

// judge measures up to five times. What is long by itself is so every time; what
// was interrupted is not.
func judge(t *testing.T, run func(h *holds)) {
	t.Helper()
	for range 5 {
		var h holds
		run(&h)
		t.Logf("%d sections, the longest %v in%s", h.number, h.longest, h.where)
		require.Positive(t, h.number)
		if h.longest <= longestSection {
			return
		}
	}
	t.Error("a section under the lock is too long")
}

// quiet is a reservoir to which time brings nothing by itself.
func quiet(t *testing.T, size int) *Reservoir[int] {
	t.Helper()
	r, err := New(Config[int]{
		Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) error { return nil },
		MaxSize: size, MaxConcurrentOpens: 64, AcquireTimeout: time.Hour,
	})
	require.NoError(t, err)
	return r
}

// filled has all its connections idle, and is watched from then on.
func filled(t *testing.T, h *holds) *Reservoir[int] {
	t.Helper()
	r := quiet(t, manyConnections)
	require.NoError(t, r.WaitReady(t.Context(), manyConnections))
	r.mu.Lock()
	r.mu.observer = h
	r.mu.Mutex.Unlock()
	return r
}

// live borrows and returns in no order.
func live(t *testing.T, r *Reservoir[int]) {
	var loans []Loan[int]
	for range 2 * manyConnections {
		n := len(loans)
		if n == manyConnections || n > 0 && rand.IntN(5) < 2 {
			i := rand.IntN(n)
			loans[i], loans[n-1] = loans[n-1], loans[i]
			require.NoError(t, loans[n-1].Release())
			loans = loans[:n-1]
			continue
		}
		l, err := r.Acquire(t.Context())
		require.NoError(t, err)
		loans = append(loans, l)
	}
	for _, l := range loans {
		require.NoError(t, l.Release())
	}
}

// age changes the ages of all connections at one moment and has time bring what
// follows.
func age(r *Reservoir[int], change func(e *entry[int], now int64)) {
	r.mu.Mutex.Lock()
	now := r.clock.read()
	for _, e := range r.mu.all {
		change(e, now)
		e.fastPathUntil = -never
		e.dueAt = now
	}
	r.mu.sweepAt = never
	r.mu.Mutex.Unlock()
	r.sweep()
}
