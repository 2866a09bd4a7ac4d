package reservoir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
)

// A model says what a reservoir must be after each operation, written without
// regard to concurrency: everything that an operation causes happens at once.
type model struct {
	max, min, minIdle, overflow, atATime int
	failFast                             bool

	closed     bool
	generation int
	failures   int
	ids        int         // of connections opened
	arrivals   int         // of callers in the queue
	idle       []held      // hottest last
	waiters    []*caller   // first in front
	opening    []beginning // oldest first
	loans      int
}

type held struct{ id, generation int }

type beginning struct{ generation, arrivals int }

func (m *model) total() int { return len(m.idle) + len(m.opening) + m.loans }

func (m *model) pump() {
	defer m.failExcess(false)
	for !m.closed {
		waiters, begun, atATime := len(m.waiters), len(m.opening), m.atATime
		if m.failures > 0 {
			atATime = 1
		}
		room := m.total() < m.max || m.total() < m.max+m.overflow && begun < waiters
		if begun >= waiters+max(0, m.minIdle-len(m.idle)) || begun >= atATime || !room {
			return
		}
		m.opening = append(m.opening, beginning{m.generation, m.arrivals})
	}
}

// settle is told of a connection that counts in no list.
func (m *model) settle(h held) {
	live := m.total() + 1
	switch {
	case m.closed, h.generation != m.generation, live > m.max+m.overflow:
	case len(m.waiters) > 0:
		m.waiters[0].expect(h, nil)
		m.waiters = m.waiters[1:]
		m.loans++
	case live > m.max && m.overflow == 0:
	default:
		m.idle = append(m.idle, h)
	}
}

// linger is over: what is idle beyond max goes.
func (m *model) closeSurplus() {
	for len(m.idle) > 0 && m.total() > m.max {
		m.idle = m.idle[1:]
	}
}

// failExcess: under FailFast nobody waits for what does not come.
func (m *model) failExcess(paused bool) {
	coming := len(m.opening) + len(m.idle)
	if !paused {
		coming += max(0, m.max-m.total())
	}
	for last := len(m.waiters) - 1; m.failFast && last >= max(0, coming); last-- {
		m.waiters[last].expect(held{}, reservoir.ErrExhausted)
		m.waiters = m.waiters[:last]
	}
}

func (m *model) failAll(err error, upTo int) {
	for len(m.waiters) > 0 && m.waiters[0].arrival <= upTo {
		m.waiters[0].expect(held{}, err)
		m.waiters = m.waiters[1:]
	}
}

// A caller is one call of Acquire: what it got and what the model says.
type caller struct {
	arrival int
	cancel  context.CancelFunc
	got     <-chan outcome

	expected bool
	want     held
	wantErr  error
	loan     loan
}

func (c *caller) expect(h held, err error) { c.expected, c.want, c.wantErr = true, h, err }

// A run holds a reservoir against the model.
type run struct {
	t     *testing.T
	f     *fake
	r     *pool
	m     model
	gates []chan error
	calls []*caller // whose fate is not known
	loans []*caller
	over  []loan
}

// play runs a program: some bytes of configuration, then operations.
func play(t *testing.T, program []byte) {
	t.Helper()
	next := func() int {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return int(b)
	}
	bubble(t, func(t *testing.T, f *fake) {
		x := &run{t: t, f: f}
		m := &x.m
		m.max, m.atATime = 1+next()%4, 1+next()%3
		m.min = next() % (m.max + 1)
		m.minIdle = m.min
		policy := reservoir.Wait
		switch p := next() % 5; {
		case p == 1:
			policy, m.failFast = reservoir.FailFast, true
		case p > 2:
			policy, m.overflow = reservoir.Overflow(p-2), p-2
		}
		x.r = f.pool(t, func(c *config) {
			c.Open, c.Admit = x.open, f.admit
			c.MaxSize, c.MaxConcurrentOpens, c.MinIdle, c.OnExhausted, c.AcquireTimeout = m.max, m.atATime, m.min, policy, -1
			c.OpenTimeout = -1
		})
		m.pump()
		x.compare("new")
		for step := 0; len(program) > 0 && step < 200; step++ {
			x.compare(fmt.Sprintf("step %d: %s", step, x.step(next(), next())))
		}
		x.end()
	})
}

// open waits for the program to say how it ends.
func (x *run) open(ctx context.Context) (*conn, error) {
	gate := make(chan error, 1)
	x.f.set(func() { x.gates = append(x.gates, gate) })
	select {
	case err := <-gate:
		if err != nil {
			return nil, err
		}
		return x.f.open(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (x *run) step(op, arg int) string {
	ops := []struct {
		name string
		do   func(arg int)
	}{
		{"acquire", x.acquire}, {"acquire", x.acquire}, {"acquire", x.acquire},
		{"release", x.release}, {"release", x.release}, {"discard", x.discard}, {"release again", x.releaseAgain},
		{"cancel", x.cancel}, {"cancel, release", x.cancelThenRelease}, {"release, cancel", x.releaseThenCancel},
		{"open ok", x.openOK}, {"open ok", x.openOK}, {"open fails", x.openFails},
		{"resize", x.resize}, {"reset", x.reset}, {"evict", x.evict}, {"close", x.close},
	}
	o := ops[op%len(ops)]
	if o.name == "close" && arg%4 != 0 {
		return "nothing" // programs should have a life before
	}
	o.do(arg)
	return o.name
}

func (x *run) acquire(int) {
	ctx, cancel := context.WithCancel(x.t.Context())
	c := &caller{cancel: cancel}
	m := &x.m
	switch last := len(m.idle) - 1; {
	case m.closed:
		c.expect(held{}, reservoir.ErrClosed)
	case last >= 0:
		c.expect(m.idle[last], nil)
		m.idle = m.idle[:last]
		m.loans++
	case m.failFast && len(m.waiters) >= len(m.opening)+max(0, m.max-m.total()):
		c.expect(held{}, reservoir.ErrExhausted)
	default:
		m.arrivals++
		c.arrival = m.arrivals
		m.waiters = append(m.waiters, c)
	}
	m.pump()
	c.got = call(ctx, x.r)
	x.calls = append(x.calls, c)
}

// pick takes one of the loans; nil when there is none.
func (x *run) pick(arg int) *caller {
	if len(x.loans) == 0 {
		return nil
	}
	i := arg % len(x.loans)
	c := x.loans[i]
	x.loans = slices.Delete(x.loans, i, i+1)
	x.over = append(x.over, c.loan)
	return c
}

func (x *run) release(arg int) {
	if c := x.pick(arg); c != nil {
		x.m.loans--
		x.m.settle(c.want)
		x.m.pump()
		require.NoError(x.t, c.loan.Release())
	}
}

func (x *run) discard(arg int) {
	if c := x.pick(arg); c != nil {
		x.m.loans--
		x.m.pump()
		require.NoError(x.t, c.loan.Discard(errRefused))
	}
}

func (x *run) releaseAgain(arg int) {
	if len(x.over) > 0 {
		l := x.over[arg%len(x.over)]
		require.ErrorIs(x.t, l.Release(), reservoir.ErrReleased)
		require.ErrorIs(x.t, l.Discard(nil), reservoir.ErrReleased)
	}
}

// leave takes a caller out of the model's queue.
func (x *run) leave(arg int) *caller {
	if len(x.m.waiters) == 0 {
		return nil
	}
	i := arg % len(x.m.waiters)
	c := x.m.waiters[i]
	x.m.waiters = slices.Delete(x.m.waiters, i, i+1)
	c.expect(held{}, context.Canceled)
	return c
}

func (x *run) cancel(arg int) {
	if c := x.leave(arg); c != nil {
		c.cancel()
	}
}

// handsOff says whether releasing that loan serves a waiter. Where it does not,
// an open may begin for a caller who is about to leave: rightly, either way.
func (x *run) handsOff(arg int) bool {
	if len(x.loans) == 0 || len(x.m.waiters) == 0 {
		return false
	}
	fit := x.loans[arg%len(x.loans)].want.generation == x.m.generation
	return fit && x.m.total() <= x.m.max+x.m.overflow
}

// cancelThenRelease: the caller has not noticed yet when its turn comes.
func (x *run) cancelThenRelease(arg int) {
	if x.handsOff(arg) {
		x.leave(0).cancel()
		x.release(arg)
	}
}

// releaseThenCancel: the caller has the connection when its ctx ends. Whether
// it notices is up to the scheduler, so the model learns it from the caller.
func (x *run) releaseThenCancel(arg int) {
	if !x.handsOff(arg) {
		return
	}
	first := x.m.waiters[0]
	x.release(arg)
	first.cancel()
	o := <-first.got
	again := make(chan outcome, 1)
	again <- o
	first.got = again
	if o.err != nil {
		h := first.want
		first.expect(held{}, context.Canceled)
		x.m.loans--
		x.m.settle(h)
		x.m.pump()
	}
}

func (x *run) gate(err error) (beginning, bool) {
	if len(x.m.opening) == 0 || x.m.closed {
		return beginning{}, false
	}
	b := x.m.opening[0]
	x.m.opening = x.m.opening[1:]
	x.f.set(func() {
		x.gates[0] <- err
		x.gates = x.gates[1:]
	})
	return b, true
}

func (x *run) openOK(int) {
	if b, ok := x.gate(nil); ok {
		x.m.ids++
		x.m.failures = 0
		x.m.settle(held{x.m.ids, b.generation})
		x.m.pump()
	}
}

func (x *run) openFails(int) {
	if b, ok := x.gate(errRefused); ok {
		x.m.failures++
		if x.m.total() == 0 {
			x.m.failAll(errRefused, b.arrivals)
		}
		x.m.failExcess(true)
		synctest.Wait()
		time.Sleep(2 * time.Second) // longer than any pause
		x.m.closeSurplus()
		x.m.pump()
	}
}

func (x *run) resize(arg int) {
	n := 1 + arg%5
	err := x.r.Resize(n)
	if x.m.closed {
		require.ErrorIs(x.t, err, reservoir.ErrClosed)
		return
	}
	x.m.max, x.m.minIdle = n, min(n, x.m.min)
	for len(x.m.idle) > 0 && x.m.total() > n {
		x.m.idle = x.m.idle[1:]
	}
	x.m.pump()
}

func (x *run) reset(int) {
	x.r.Reset()
	x.m.generation++
	x.m.failures = 0
	x.m.idle = nil
	x.m.pump()
}

func (x *run) evict(int) {
	surplus := max(0, len(x.m.idle)-x.m.minIdle)
	x.m.idle = x.m.idle[surplus:]
	require.Equal(x.t, surplus, x.r.EvictIdle())
}

func (x *run) close(int) {
	if x.m.closed {
		return
	}
	x.m.closed = true
	x.m.idle, x.m.opening = nil, nil
	x.m.failAll(reservoir.ErrClosed, x.m.arrivals)
	go func() {
		err := x.r.Close(x.t.Context()) // end releases the loans
		if err != nil && !errors.Is(err, context.Canceled) {
			x.t.Errorf("close: %v", err)
		}
	}()
}

// compare waits for everything to come to rest and holds it against the model.
func (x *run) compare(step string) {
	x.t.Helper()
	synctest.Wait()
	rest := x.calls[:0]
	for _, c := range x.calls {
		select {
		case o := <-c.got:
			require.True(x.t, c.expected, "%s: caller %d got %v too early", step, c.arrival, o.err)
			require.ErrorIs(x.t, o.err, c.wantErr, step)
			c.cancel()
			if o.err == nil {
				require.Equal(x.t, c.want.id, o.loan.Value().id, "%s: the wrong connection", step)
				c.loan = o.loan
				x.loans = append(x.loans, c)
			}
		default:
			require.False(x.t, c.expected, "%s: caller %d is still waiting for %v, %v", step, c.arrival, c.want, c.wantErr)
			rest = append(rest, c)
		}
	}
	x.calls = rest
	type counts struct{ idle, inUse, opening, waiting, total, leases int }
	s := x.r.Stats()
	require.Equal(x.t,
		counts{len(x.m.idle), x.m.loans, len(x.m.opening), len(x.m.waiters), x.m.total(), x.m.total()},
		counts{s.Idle, s.InUse, s.Opening, s.Waiting, s.Total, x.f.read(&x.f.leases)}, step)
}

func (x *run) end() {
	x.close(0)
	x.compare("close")
	for len(x.loans) > 0 {
		x.release(0)
	}
	x.compare("end")
	require.ErrorIs(x.t, x.r.Close(x.t.Context()), reservoir.ErrClosed)
}

func FuzzReservoir(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		program := make([]byte, 20+random.IntN(300))
		for i := range program {
			program[i] = byte(random.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(play)
}
