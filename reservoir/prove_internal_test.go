package reservoir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestProveReservoir runs random programs of everything that can happen to a
// reservoir, in virtual time, and compares it after each operation with what
// follows from its entries alone, looked at one by one, and with what the fake
// server has seen. PROVE is for how long (default: some seconds), PROVE_SEED
// repeats a run.
func TestProveReservoir(t *testing.T) {
	length := 2 * time.Second
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(1)
	if s := os.Getenv("PROVE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	} else if os.Getenv("PROVE") != "" {
		seed = uint64(time.Now().UnixNano()) >> 8 << 8
	}
	if os.Getenv("PROVE") != "" {
		// The heap is small: by default a third of the time goes into collecting it. Above 600
		// it would grow without bound: a sync.Pool keeps what has it, here each program's
		// reservoir, a seventh of what is allocated, until the collection after the next.
		defer debug.SetGCPercent(debug.SetGCPercent(300))
	}
	var ops, programs, violations atomic.Int64
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for worker := range uint64(runtime.GOMAXPROCS(0)) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for n := seed + worker<<40; time.Since(began) < length && violations.Load() == 0; n++ {
					ran, wrong := proveProgram(t, n)
					ops.Add(int64(ran))
					programs.Add(1)
					if wrong != "" {
						violations.Add(1)
						t.Errorf("program %d (repeat with PROVE_SEED=%d): %s", n, n, wrong)
					}
				}
			})
		}
	})
	fmt.Printf("PROVE reservoir ops=%d programs=%d violations=%d seed=%d\n", ops.Load(), programs.Load(), violations.Load(), seed)
}

// FuzzProve is the same for a fuzzer.
func FuzzProve(f *testing.F) {
	for n := range uint64(50) {
		f.Add(n)
	}
	f.Add(uint64(1795791050439362082)) // lent by one Reconfigure, judged after the next
	f.Add(uint64(1795334461398136207)) // a successor that went before the one it was for
	f.Fuzz(func(t *testing.T, n uint64) {
		if _, wrong := proveProgram(t, n); wrong != "" {
			t.Fatal(wrong)
		}
	})
}

type provenConn struct {
	id     int
	owner  atomic.Int64
	closed atomic.Bool
	lost   atomic.Bool
	report atomic.Pointer[func(error)]
}

// A caller is one Acquire that has not been ended.
type provenCaller struct {
	arrival  int
	began    time.Time
	deadline time.Time // of its ctx; zero: none
	cancel   context.CancelFunc
	canceled bool
	done     atomic.Bool
	loan     Loan[*provenConn]
	err      error
}

// A world is one program at work.
type world struct {
	random *rand.Rand // of the program
	r      *Reservoir[*provenConn]
	cfg    Config[*provenConn]
	log    []note
	wrong  string

	mu      sync.Mutex
	dice    *rand.Rand // of the callbacks
	remains *rand.Rand // of what opens leave that fail
	outage  bool
	bad     int // out of 100: calls that end badly
	made    []*provenConn
	live    int
	leases  int
	ceiling int

	callers  []*provenCaller
	arrivals int
	loans    []Loan[*provenConn]
	over     []Loan[*provenConn]
	ops      int
	proving  atomic.Int64 // calls of CheckOne

	ending, checkedOne atomic.Bool // Close, CheckOne was called

	tunedAt atomic.Int64 // when the latest Reconfigure began; 0: there was none
	account account

	more  *rand.Rand // of the program, too
	large bool       // there are so many connections and callers that all is done in batches
	ready []*readyCall

	wide *wide // nil: the program is one of before there were wide ones
}

var errProve = errors.New("refused")

func proveProgram(t *testing.T, seed uint64) (ops int, wrong string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{random: rand.New(rand.NewPCG(seed, 1)), dice: rand.New(rand.NewPCG(seed, 2)), more: rand.New(rand.NewPCG(seed, 3)), remains: rand.New(rand.NewPCG(seed, 4))}
		w.large, w.account.began = w.more.IntN(6) == 0, time.Now()
		if seed%3 == 2 { // the others are what they were
			w.wide = &wide{random: rand.New(rand.NewPCG(seed, 5)), dice: rand.New(rand.NewPCG(seed, 6))}
		}
		w.run(t.Context())
		ops, wrong = w.ops, w.wrong
		if wrong != "" {
			for _, n := range w.log {
				wrong += "\n" + fmt.Sprintf(n.format, n.args...)
			}
		}
	})
	return ops, wrong
}

func (w *world) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// roll is a number below n for a callback.
func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dice.IntN(n)
}

// act is what every callback may do instead of its work: fail, panic, end its
// goroutine, or take long.
func (w *world) act(ctx context.Context) error {
	if ctx != nil {
		wait := [...]time.Duration{0, 0, 0, time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second, time.Hour}[w.roll(8)]
		if wait >= time.Second && w.roll(10) > 0 {
			wait = time.Millisecond
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	w.mu.Lock()
	outage, bad := w.outage, w.bad
	w.mu.Unlock()
	switch n := w.roll(300); {
	case outage && ctx != nil, n < bad:
		return errProve
	case n == 298 && bad > 0:
		panic(errProve)
	case n == 299 && bad > 0:
		runtime.Goexit()
	}
	return nil
}

func (w *world) open(ctx context.Context) (*provenConn, error) {
	w.account.opens.Add(1)
	if err := w.act(ctx); err != nil {
		return nil, w.perhapsPermanent(w.perhapsStillClosing(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &provenConn{id: len(w.made)}
	w.made = append(w.made, c)
	w.live++
	return c, nil
}

// perhapsStillClosing is the error of an open, which may have made a connection that is closed behind it.
func (w *world) perhapsStillClosing(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.remains.IntN(6) > 0 {
		return err
	}
	lasts := [...]time.Duration{0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[w.remains.IntN(4)]
	w.live++
	closed := make(chan struct{})
	time.AfterFunc(lasts, func() {
		w.mu.Lock()
		w.live--
		w.mu.Unlock()
		close(closed)
	})
	return StillClosing(err, closed)
}

// anyMade is one of the connections that were ever opened, or nil. Others may be
// opened meanwhile.
func (w *world) anyMade() *provenConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.made) == 0 {
		return nil
	}
	return w.made[w.random.IntN(len(w.made))]
}

func (w *world) close(c *provenConn) error {
	if w.roll(10) == 0 {
		time.Sleep(time.Duration(w.roll(2000)) * time.Millisecond)
	}
	if c.closed.Swap(true) {
		w.failf("%d was closed twice", c.id)
	}
	w.mu.Lock()
	w.live--
	w.mu.Unlock()
	return w.act(nil) //nolint:staticcheck // without a wait
}

func (w *world) check(ctx context.Context, c *provenConn) error {
	w.account.checks.Add(1)
	fine := false
	defer func() {
		if !fine {
			w.account.checkFailures.Add(1)
		}
	}()
	err := w.reset(ctx, c)
	fine = err == nil
	return err
}

func (w *world) reset(ctx context.Context, c *provenConn) error {
	takenBack := (w.ending.Load() || w.wide.hasForced()) && w.checkedOne.Load() // force may take it from CheckOne, which is a borrower
	if c.closed.Load() && !takenBack || c.owner.Load() > 0 {
		w.failf("%d is checked although closed (%v) or lent to %d", c.id, c.closed.Load(), c.owner.Load())
	}
	return w.act(ctx)
}

func (w *world) admit(ctx context.Context) (func(), error) {
	w.account.admits.Add(1)
	if w.roll(30) == 0 {
		return nil, fmt.Errorf("budget: %w", ErrExhausted)
	}
	if err := w.act(ctx); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases++
	var once atomic.Bool
	return func() {
		if once.Swap(true) {
			w.failf("a permission was given back twice")
		}
		w.mu.Lock()
		w.leases--
		w.mu.Unlock()
		_ = w.act(nil) //nolint:staticcheck // may panic
	}, nil
}

func (w *world) watch(c *provenConn, lost func(error)) {
	c.report.Store(&lost)
	if w.roll(20) == 0 {
		c.lost.Store(true)
		lost(errProve)
	}
}

// config draws the parts that Reconfigure may change, and with all the others too.
func (w *world) config(all bool) Config[*provenConn] {
	pick := func(d ...time.Duration) time.Duration { return d[w.random.IntN(len(d))] }
	c := Config[*provenConn]{Open: w.open, Close: w.close, Check: w.check}
	c.MaxSize = 1 + w.random.IntN(9)
	c.MinIdle = w.random.IntN(c.MaxSize + 1)
	c.MaxConcurrentOpens = w.random.IntN(4)
	c.MaxWaiters = w.random.IntN(3) * 3
	c.OnExhausted = [...]Exhaustion{Wait, Wait, Wait, FailFast, Overflow(1), Overflow(3)}[w.random.IntN(6)]
	c.OpenRetry = OpenRetry(w.random.IntN(3))
	c.AcquireTimeout = pick(0, -1, time.Second, time.Minute)
	c.IdleTTL = pick(0, -1, 3*time.Second, time.Minute)
	c.MaxLifetime = pick(0, -1, 20*time.Second, 10*time.Minute)
	c.LifetimeJitter = pick(0, -1)
	c.CheckInterval = pick(0, -1, -1, 10*time.Second)
	c.CheckOnAcquire = w.random.IntN(3) == 0
	c.IdleBeforeCheck = pick(0, -1, 100*time.Millisecond)
	if w.large {
		c.MaxSize += 60 + w.more.IntN(140)
		c.MinIdle = w.more.IntN(c.MaxSize + 1)
		c.MaxConcurrentOpens = 1 + w.more.IntN(150)
		c.MaxWaiters = 0
	}
	w.wide.ages(&c)
	if !all {
		return c
	}
	c.OpenTimeout, c.CheckTimeout, c.CloseTimeout = pick(0, time.Second), pick(0, time.Second), pick(0, time.Second)
	c.CheckOnRelease = w.random.IntN(4) == 0
	c.LeakAfter = pick(0, 5*time.Second)
	if w.random.IntN(2) == 0 {
		c.Admit = w.admit
	}
	if w.random.IntN(3) == 0 {
		c.Reset = w.reset
	}
	if w.random.IntN(2) == 0 {
		c.Watch = w.watch
	}
	if w.random.IntN(3) == 0 {
		c.ExpiresAt = func(*provenConn) time.Time {
			if n := w.roll(5); n > 0 {
				return time.Now().Add(time.Duration(n) * 25 * time.Second)
			}
			return time.Time{}
		}
	}
	if w.random.IntN(2) == 0 { // those on the reservoir's goroutines
		c.Hooks = w.account.hooks(func() { _ = w.act(nil) }) //nolint:staticcheck // may panic
	}
	if w.more.IntN(2) == 0 {
		w.account.callerHooks(&c.Hooks)
	}
	return c
}

func (w *world) run(ctx context.Context) {
	w.bad = [...]int{0, 10, 60}[w.random.IntN(3)]
	w.cfg = w.config(true)
	r, err := New(w.cfg)
	if err != nil {
		w.failf("New: %v", err)
		return
	}
	w.r = r
	w.bound()
	w.compare()
	steps := 50 + w.random.IntN(200)
	if w.large {
		steps /= 4
	}
	for ; w.ops < steps && w.wrong == ""; w.ops++ {
		arrivals := w.arrivals
		w.step(ctx)
		w.bound()
		// Callers come one after the other; else the next operation may come
		// while this one is at work.
		if w.arrivals > arrivals || w.random.IntN(3) == 0 {
			w.compare()
		}
	}
	w.compare()
	w.end(ctx)
}

// bound notes how many connections there may be: after Resize and Reconfigure more than
// the limit for a while.
func (w *world) bound() {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.ceiling = max(w.r.limit(), min(w.ceiling, len(w.r.mu.all)))
}

// A note says what the program did; it is formatted only when it is wanted.
type note struct {
	format string
	args   []any
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, note{format, args}) }

func (w *world) step(ctx context.Context) {
	if w.wide != nil && w.wide.random.IntN(8) == 0 {
		w.wideStep(ctx)
		return
	}
	switch n := w.random.IntN(100); {
	case n < 30:
		w.arrivals++
		for range w.burst() {
			w.acquire(ctx)
		}
	case n < 36:
		w.tryAcquire()
	case n < 58:
		for range w.burst() {
			w.giveBack(n)
		}
	case n < 62 && len(w.over) > 0:
		l := w.over[w.random.IntN(len(w.over))]
		if l.Release() == nil || l.Discard(nil) == nil {
			w.failf("a loan ended twice")
		}
	case n < 68 && len(w.callers) > 0:
		for range w.burst() {
			c := w.callers[w.random.IntN(len(w.callers))]
			w.note("cancel %d", c.arrival)
			c.canceled = true
			c.cancel()
		}
	case n < 88:
		d := [...]time.Duration{1, time.Millisecond, 50 * time.Millisecond, time.Second, time.Second, 5 * time.Second, 20 * time.Second, 2 * time.Minute}[w.random.IntN(1+w.random.IntN(8))]
		w.note("sleep %v", d)
		time.Sleep(d)
	case n < 91:
		c := w.anyMade()
		if c == nil {
			w.steer(ctx, n)
		} else if report := c.report.Load(); report != nil {
			w.note("lose %d", c.id)
			c.lost.Store(true)
			(*report)(errProve)
		}
	default:
		w.steer(ctx, n)
	}
}

func (w *world) steer(ctx context.Context, n int) {
	switch n {
	case 91:
		size := 1 + w.random.IntN(9)
		if w.large {
			size = 1 + w.more.IntN(200)
		}
		w.note("resize %d", size)
		_ = w.r.Resize(size)
	case 92:
		w.note("reset")
		w.r.Reset()
	case 93:
		w.note("evict %d", w.r.EvictIdle())
	case 94:
		cfg := w.config(false)
		w.note("tune MaxSize %d MinIdle %d", cfg.MaxSize, cfg.MinIdle)
		w.tunedAt.Store(w.r.clock.exact())
		if err := w.r.Reconfigure(cfg); err != nil {
			w.failf("tune: %v", err)
		}
	case 95:
		if w.wide != nil && w.wide.random.IntN(2) == 0 {
			w.giveUp()
			return
		}
		w.note("yield %d", w.r.CloseIdle((1+w.random.IntN(3))*w.burst(), time.Duration(w.random.IntN(3))*time.Second))
	case 96:
		w.note("fail waiters %d", w.r.FailWaiters(errProve))
	case 97:
		w.note("prove")
		w.account.proved = true
		w.proving.Add(1)
		w.checkedOne.Store(true)
		go func() {
			_ = w.r.CheckOne(ctx)
			w.proving.Add(-1)
		}()
	case 98:
		w.waitReady(ctx)
	default:
		w.mu.Lock()
		w.outage = !w.outage
		w.mu.Unlock()
		w.note("outage %v", w.outage)
	}
}

func (w *world) acquire(ctx context.Context) {
	c := &provenCaller{arrival: w.arrivals, began: time.Now()}
	ctx, c.cancel = context.WithCancel(ctx)
	if w.random.IntN(2) == 0 {
		c.deadline = time.Now().Add([...]time.Duration{1, 100 * time.Millisecond, 20 * time.Second}[w.random.IntN(3)])
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.deadline)
		context.AfterFunc(ctx, cancel)
	}
	w.note("acquire %d, deadline %v", c.arrival, c.deadline)
	w.callers = append(w.callers, c)
	go func() {
		c.loan, c.err = w.r.Acquire(ctx)
		w.account.ended(c.err)
		if c.err == nil {
			w.lent(c.loan)
		}
		c.done.Store(true)
	}()
}

func (w *world) tryAcquire() {
	if l, ok := w.r.TryAcquire(); ok {
		w.note("try got %d", l.Value().id)
		w.account.ended(nil)
		w.lent(l)
		w.loans = append(w.loans, l)
	}
}

// lent judges a loan at the moment at which it was lent.
func (w *world) lent(l Loan[*provenConn]) {
	c, e := l.Value(), l.entry
	now := w.r.clock.exact()
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	switch {
	case w.r.mu.closed, !w.r.isOut(l): // Close, or force, may have taken it back already
	case c.closed.Load():
		w.failf("%d was lent closed", c.id)
	case c.owner.Swap(int64(l.number)) != 0:
		w.failf("%d was lent twice", c.id)
	case now >= e.lifetime.expireAt:
		w.failf("%d was lent %v after its end", c.id, time.Duration(now-e.lifetime.expireAt))
	case e.borrowedAt <= w.tunedAt.Load(): // perhaps before Reconfigure, which may have asked for checks
	case w.r.cfg.CheckOnAcquire && w.r.cfg.IdleBeforeCheck == off && e.knownGoodAt < now-int64(time.Second) && e.loanNumber > 1:
		w.failf("%d was lent unchecked", c.id)
	}
}

func (w *world) giveBack(n int) {
	if len(w.loans) == 0 {
		return
	}
	i := w.random.IntN(len(w.loans))
	l := w.loans[i]
	w.loans[i] = w.loans[len(w.loans)-1]
	w.loans = w.loans[:len(w.loans)-1]
	w.over = append(w.over[max(0, len(w.over)-20):], l)
	l.Value().owner.Store(0)
	if n%5 == 0 {
		w.note("discard %d", l.Value().id)
		if err := l.Discard(errProve); err != nil {
			w.failf("discard: %v", err)
		}
		return
	}
	w.note("release %d", l.Value().id)
	if w.wide != nil && w.wide.random.IntN(3) == 0 {
		w.over = w.over[:len(w.over)-1] // it is not over yet
		w.releaseBehind(l)
		return
	}
	released := make(chan error, 1)
	go func() { // Reset may end the goroutine
		defer close(released)
		released <- l.Release()
	}()
	if err := <-released; err != nil {
		w.failf("release: %v", err)
	}
}

// compare waits until nothing moves and judges what there is.
func (w *world) compare() {
	synctest.Wait()
	served, waiting := 0, 1<<62
	rest := w.callers[:0]
	now := time.Now()
	for _, c := range w.callers {
		if !c.done.Load() {
			waiting = min(waiting, c.arrival)
			if c.canceled || !c.deadline.IsZero() && !now.Before(c.deadline) {
				w.failf("caller %d waits although its context has ended", c.arrival)
			}
			rest = append(rest, c)
			continue
		}
		c.cancel()
		if c.err == nil {
			served = max(served, c.arrival)
			if w.wide == nil || w.isOut(c.loan) {
				w.loans = append(w.loans, c.loan)
			}
		}
	}
	w.callers = rest
	if served > waiting {
		w.failf("caller %d was served before caller %d", served, waiting)
	}
	w.r.mu.Lock()
	wrong := w.naive()
	w.r.mu.Unlock()
	if wrong == "" && w.more.IntN(3) == 0 {
		wrong = w.described()
	}
	if wrong != "" {
		w.failf("%s", wrong)
	}
}

// naive looks at every entry and says what is not as it has to be at rest.
func (w *world) naive() string {
	r, m, now := w.r, &w.r.mu, w.r.clock.exact()
	var idles, aged, stale, unaged, usable, withValue, slow int
	first := never
	for _, e := range m.all {
		if e.state != opening {
			withValue++
		}
		if e.timerIndex >= 0 {
			first = min(first, e.dueAt)
		}
		if e.stale {
			stale++
		}
		if e.state == checking && !e.keepalive && e.slow {
			slow++
		}
		if e.nextEffect != nil {
			return "an effect is kept that was carried out"
		}
		if e.state != idle {
			continue
		}
		idles++
		if !r.mustCheck(e, now) {
			usable++
		}
		soon := e.dueAt <= now+1 // after Reconfigure
		switch {
		case e.lost != nil || e.value.lost.Load():
			return fmt.Sprintf("%d is idle although lost", e.value.id)
		case e.generation != m.generation:
			return fmt.Sprintf("%d is idle of an old generation", e.value.id)
		case now >= e.lifetime.expireAt:
			return fmt.Sprintf("%d is idle after its end", e.value.id)
		case now >= e.lifetime.replaceAt && !e.stale:
			return fmt.Sprintf("%d is not stale after its replacement time", e.value.id)
		case now >= addSaturating(e.idleSince, r.idleTTL) && !e.pastIdleTTL && !soon:
			return fmt.Sprintf("%d is not aged", e.value.id)
		case now >= addSaturating(e.knownGoodAt, r.checkInterval) && !e.dueLink.linked() && !soon:
			return fmt.Sprintf("the check of %d was missed", e.value.id)
		}
		if e.pastIdleTTL {
			aged++
		} else {
			unaged++
		}
	}
	if wrong := w.missing(now); wrong != "" {
		return wrong
	}
	for _, call := range w.ready {
		if open := r.established(); !call.done.Load() && open >= min(call.n, m.maxSize) {
			return fmt.Sprintf("WaitReady waits for %d, and %d of %d are open", call.n, open, m.maxSize)
		}
	}
	switch waiters := m.waiters.n; {
	case idles != m.count[idle]:
		return fmt.Sprintf("%d idle, counted %d", idles, m.count[idle])
	case stale != m.stale:
		return fmt.Sprintf("%d stale, counted %d", stale, m.stale)
	case slow != m.slowChecks:
		return fmt.Sprintf("%d checks are slow, counted %d", slow, m.slowChecks)
	case m.reconfiguring != 0:
		return fmt.Sprintf("%d calls of Tune have not ended", m.reconfiguring)
	case aged > m.minIdle && unaged == 0 && m.keepalives == 0:
		return fmt.Sprintf("%d idle for IdleTTL, MinIdle is %d", aged, m.minIdle)
	case m.dueChecks.n > 0 && m.keepalives < r.keepaliveLimit():
		return fmt.Sprintf("%d checks are due, %d run", m.dueChecks.n, m.keepalives)
	case waiters > 0 && usable > 0:
		return fmt.Sprintf("%d wait, %d are idle", waiters, usable)
	case waiters != len(w.callers) && waiters < len(w.callers):
		return fmt.Sprintf("%d callers wait, %d are in the queue", len(w.callers), waiters)
	case r.cfg.OnExhausted == FailFast && waiters > max(0, r.counts().soonAvailable()):
		return fmt.Sprintf("%d wait under FailFast for %+v", waiters, r.counts())
	case m.sweepAt > min(first, r.firstDeadline()) || min(first, r.firstDeadline()) < now:
		return fmt.Sprintf("the alarm is at %d, it is %d, what is due is at %d and %d", m.sweepAt, now, first, r.firstDeadline())
	case m.superseded > m.stale:
		return fmt.Sprintf("%d superseded of %d", m.superseded, m.stale)
	}
	proofs := int(w.proving.Load()) - (m.waiters.n - len(w.callers) - w.strangersWaiting()) // those that have a connection
	if m.tasks != m.count[opening]+m.count[checking]+m.count[closing]+proofs {
		return fmt.Sprintf("%d tasks, %v and %d proofs", m.tasks, m.count, proofs)
	}
	if len(m.all) > w.ceiling {
		return fmt.Sprintf("%d connections, more than %d", len(m.all), w.ceiling)
	}
	return w.ledger(withValue)
}

// missing says which opens and replacements are missing. It looks at every entry
// and knows nothing of demand.
func (w *world) missing(now int64) string {
	r, m := w.r, &w.r.mu
	var opens, open, waitedFor, spare, old, oldIdle, young, leaving int
	for _, e := range m.all {
		switch e.state {
		case opening:
			opens++
			continue
		case closing:
			leaving++
			continue
		case checking:
			if !e.keepalive && !e.slow && !m.lastCheckFailed {
				waitedFor++
			}
			if e.keepalive && e.link.linked() {
				spare++
			}
		case idle:
			spare++
			if e.stale {
				oldIdle++
			}
		default:
		}
		open++
		if e.stale {
			old++
		} else {
			young++
		}
	}
	inNeed := max(0, len(w.callers)+w.strangersWaiting()-waitedFor) // callers for whom nothing is on its way
	without := max(0, old-min(m.superseded, young))
	spares := max(0, m.minIdle-spare)
	for _, t := range m.readyWaits {
		spares = max(spares, min(t.n, m.maxSize)-open)
	}
	all := open + opens + leaving
	refusing := m.failures > 0
	resting := refusing && now < m.retryAt
	most := r.cfg.MaxConcurrentOpens
	if refusing {
		most = 1
	}
	within := all < m.maxSize
	beyond := all < m.maxSize+r.cfg.OnExhausted.overflow() && opens < inNeed
	want := inNeed + spares + without
	switch {
	case opens < want && opens < most && (within || beyond) && !resting:
		return fmt.Sprintf("%d callers are in need, %d spares and %d successors are missing, but %d of %d opens run, %d of %d exist", inNeed, spares, without, opens, most, all, m.maxSize)
	case opens < want && (within || beyond) && resting && m.sweepAt > m.retryAt:
		return "no alarm for the next open"
	case inNeed == 0 && m.superseded > 0 && oldIdle > 0:
		return fmt.Sprintf("%d stale ones have a successor, and %d are idle", m.superseded, oldIdle)
	case all >= m.maxSize && !refusing && without > 0 && oldIdle > 0 && opens+leaving == 0:
		return fmt.Sprintf("full, and nobody replaces %d stale ones", old)
	case m.superseded > young:
		return fmt.Sprintf("%d successors, but only %d young ones", m.superseded, young)
	}
	return ""
}

// ledger compares with what the server has seen.
func (w *world) ledger(withValue int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := &w.r.mu; {
	case w.live > withValue:
		return fmt.Sprintf("the server has %d connections, the reservoir knows of %d", w.live, withValue)
	case w.live < withValue-m.count[closing]:
		return fmt.Sprintf("the server has %d connections, the reservoir believes in %d", w.live, withValue)
	case w.leases > len(m.all):
		return fmt.Sprintf("%d permissions for %d connections", w.leases, len(m.all))
	}
	return ""
}

func (w *world) end(ctx context.Context) {
	w.note("end")
	w.ending.Store(true)
	closing, cancel := context.WithTimeout(ctx, time.Duration(w.random.IntN(3))*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.r.Close(closing) }()
	w.besideClose(ctx)
	if w.random.IntN(2) == 0 {
		for len(w.loans) > 0 {
			w.giveBackLate()
		}
	}
	err := <-ended
	synctest.Wait()
	for _, c := range w.callers {
		if !c.done.Load() {
			w.failf("caller %d waits after Close", c.arrival)
		}
		c.cancel()
		if c.err == nil {
			_ = c.loan.Release()
		}
	}
	for len(w.loans) > 0 {
		w.giveBackLate()
	}
	if err != nil {
		var left *CloseError
		if !errors.As(err, &left) {
			w.failf("close: %v", err)
		}
		_ = w.r.Close(ctx) // waits for the rest
	}
	synctest.Wait()
	w.mu.Lock()
	live, leases := w.live, w.leases
	w.mu.Unlock()
	if s := w.r.Stats(); s.Total != 0 || s.Waiting != 0 || live != 0 || leases != 0 {
		w.failf("after Close: %d connections, %d waiting; the server has %d; %d permissions", s.Total, s.Waiting, live, leases)
	}
	if wrong := w.account.compare(w.r.Stats(), len(w.made), w.cfg); wrong != "" {
		w.failf("%s", wrong)
	}
}

// giveBackLate ends a loan that Close may have taken back.
func (w *world) giveBackLate() {
	l := w.loans[0]
	w.loans = w.loans[1:]
	l.Value().owner.Store(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Release() // ErrReleased if Close was faster
	}()
	<-done
}
