package registry_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/registry"
)

// TestProveRegistry runs random programs on a registry in virtual time: DDL and
// definitions, users with deadlines, servers that fail, Kinds, drivers and hooks that
// hang and panic. A model judges that
//
//   - a call ends with its context, and a change at most 5s later;
//   - the connections of a server are never more than the largest bound that held,
//     nor are those of a user, but for a server that was registered again;
//   - a definition is what the statements that succeeded made of it;
//   - once everything works again, nobody who can wait is refused;
//   - what the statistics count is what has happened;
//   - everything is closed, once, and no goroutine is left.
//
// PROVE is for how long (default: a few programs), PROVE_SEED which program is the first;
// without PROVE it is the only one.
func TestProveRegistry(t *testing.T) {
	length, seed, programs := time.Duration(0), uint64(time.Now().UnixNano()), 3 //nolint:gosec // any number will do
	if s := os.Getenv("PROVE"); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err)
	} else {
		seed = 1
	}
	if s := os.Getenv("PROVE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seed, programs = n, 1
	}
	ran, calls, violations := 0, 0, 0
	for began := time.Now(); ran < programs || time.Since(began) < length; ran++ {
		n := seed + uint64(ran) //nolint:gosec // not negative
		synctest.Test(t, func(t *testing.T) {
			p := &proof{rnd: rand.New(rand.NewPCG(n, 9)), seed: n, now: map[string]registry.ServerDefinition{}, bounds: map[string]*bounds{}}
			p.run(t)
			calls += p.calls
			if len(p.wrong) > 0 {
				violations++
				t.Errorf("PROVE_SEED=%d: %q", n, p.wrong)
			}
		})
		if violations > 0 {
			break
		}
	}
	fmt.Printf("PROVE registry calls=%d programs=%d violations=%d seed=%d\n", calls, ran, violations, seed)
}

// proof is one program and its model.
type proof struct {
	*rig
	rnd  *rand.Rand
	seed uint64

	mu         sync.Mutex
	now        map[string]registry.ServerDefinition // as the program wrote them
	bounds     map[string]*bounds                   // by server
	calm       bool
	kindHangs  chan struct{} // not nil: Kinds wait for it
	kindPanics bool
	hook       int
	hooked     chan struct{}
	calls      int
	got, gave  uint64 // of server t
	wrong      []string
}

// bounds are the largest that held.
type bounds struct{ all, user int }

func (p *proof) bad(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 10 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

// kind is what a Kind's function does.
func (p *proof) kind() {
	p.mu.Lock()
	hangs, panics := p.kindHangs, p.kindPanics
	p.mu.Unlock()
	if panics {
		panic("the Kind's")
	}
	if hangs != nil {
		<-hangs
	}
}

func (p *proof) health(server string, down *registry.UnhealthyError) {
	p.mu.Lock()
	hook, hooked := p.hook, p.hooked
	p.mu.Unlock()
	switch hook {
	case 1:
		panic("the hook's")
	case 2:
		runtime.Goexit()
	case 3:
		<-hooked
	case 4:
		_, _ = p.EvictIdle(server)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.CheckNow(ctx, server)
	}
}

func (p *proof) run(t *testing.T) {
	p.rig, p.hooked = &rig{servers: map[string]*fake{}}, make(chan struct{})
	r, err := registry.NewWith(registry.Config{Health: p.health, Kinds: []registry.Kind{{
		Name: "fake", Validate: func(registry.ConnectParams) error { p.kind(); return nil },
		Connector: func(r registry.ConnectParams) (driver.Connector, error) {
			p.kind()
			return sqlConnector{p.fake(r.Server), r.User}, nil
		},
	}}})
	require.NoError(t, err)
	p.Registry = r
	for _, name := range []string{"s", "t"} {
		require.NoError(t, r.Register(t.Context(), p.define(name)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 10 {
		rnd := rand.New(rand.NewPCG(p.seed, uint64(i)+100)) //nolint:gosec // not negative
		callers.Go(func() {
			for ctx.Err() == nil {
				p.call(ctx, rnd)
			}
		})
	}
	for range 2 {
		p.setCalm(false)
		for range 15 {
			p.step(ctx)
			time.Sleep(time.Duration(p.rnd.IntN(400)) * time.Millisecond)
		}
		p.mend(t)
		time.Sleep(25 * time.Second)
		p.setCalm(true)
		time.Sleep(12 * time.Second)
	}
	cancel()
	callers.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
	p.judge(t)
	if err := r.Close(t.Context()); err != nil {
		p.bad("close: %v", err)
	}
	close(p.hooked)
	synctest.Wait()
	for name, f := range p.servers {
		if f.live != 0 || f.twice != 0 {
			p.bad("%s: %d connections left open, %d closed twice", name, f.live, f.twice)
		}
	}
}

func (p *proof) setCalm(calm bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calm = calm
}

// define makes a definition, and keeps the bounds, before it holds.
func (p *proof) define(name string) registry.ServerDefinition {
	r := p.rnd
	size := 1 + r.IntN(6)
	d := registry.ServerDefinition{
		Name: name, Kind: "fake", MaxSize: size, UserMaxSize: 1 + r.IntN(size), MinIdle: -1, WarmupConnections: r.IntN(2)*2 - 1, UserReserved: r.IntN(3),
		AcquireTimeout: []time.Duration{-1, 5 * time.Second, 100 * time.Millisecond}[r.IntN(3)], OpenTimeout: time.Second, KeepSession: r.IntN(2) == 0,
		OnExhausted: []flightpool.Exhaustion{flightpool.Wait, flightpool.FailFast, flightpool.Overflow(2)}[r.IntN(3)], MaxConcurrentOpens: 1 + r.IntN(4),
		HealthCheck: registry.HealthCheck{Interval: time.Second, Timeout: time.Second}, UserIdleTimeout: time.Duration(1+r.IntN(5)) * time.Second,
		ValidateOnAcquire: r.IntN(4) == 0, ValidateAfter: time.Millisecond, Users: map[string]registry.UserMapping{},
	}
	for _, user := range []string{"a", "b", "c"} {
		d.Users[user] = registry.UserMapping{User: fmt.Sprint(user, r.IntN(3))}
	}
	p.holds(d)
	return d
}

// holds takes note of bounds.
func (p *proof) holds(d registry.ServerDefinition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bounds[d.Name]
	if b == nil {
		b = &bounds{}
		p.bounds[d.Name] = b
	}
	over := max(0, int(d.OnExhausted))
	b.all, b.user = max(b.all, d.MaxSize+over), max(b.user, d.UserMaxSize+over)
	p.now[d.Name] = d
}

// bounded makes a change that its context bounds, and looks whether it did.
func (p *proof) bounded(ctx context.Context, what string, change func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+p.rnd.IntN(3000))*time.Millisecond)
	defer cancel()
	end, _ := ctx.Deadline()
	err := change(ctx)
	if late := time.Since(end); late > 5100*time.Millisecond {
		p.bad("%s ended %v after its context: %v", what, late, err)
	}
	return err
}

// step does one thing.
func (p *proof) step(ctx context.Context) {
	name := []string{"s", "t"}[p.rnd.IntN(2)]
	f := p.fake(name)
	switch p.rnd.IntN(16) {
	case 0:
		_ = p.bounded(ctx, "Update", func(ctx context.Context) error { return p.Update(ctx, p.define(name)) })
	case 1:
		_ = p.bounded(ctx, "Unregister", func(ctx context.Context) error { return p.Unregister(ctx, "s") })
		_ = p.bounded(ctx, "Register", func(ctx context.Context) error { return p.Register(ctx, p.define("s")) })
	case 2, 3, 4:
		p.ddl(ctx, name)
	case 5:
		f.set(func() { f.down = !f.down })
	case 6:
		f.set(func() { f.stuck = !f.stuck })
	case 7:
		f.set(func() { f.restarts++ })
	case 8:
		p.mu.Lock()
		if p.kindHangs == nil {
			p.kindHangs = make(chan struct{})
		}
		p.mu.Unlock()
	case 9:
		p.mu.Lock()
		p.kindPanics = !p.kindPanics
		p.mu.Unlock()
	case 10:
		p.mu.Lock()
		p.hook = p.rnd.IntN(5)
		p.mu.Unlock()
	case 11:
		_ = p.bounded(ctx, "CloseAll", func(ctx context.Context) error { return p.CloseAll(ctx, name) })
	case 12:
		_ = p.bounded(ctx, "Warmup", func(ctx context.Context) error { return p.Warmup(ctx, name, 1) })
		_ = p.bounded(ctx, "CheckNow", func(ctx context.Context) error { return p.CheckNow(ctx, name) })
	case 13:
		_, _ = p.Connections(name)
		_, _ = p.UserStats(name)
		_, _ = p.EvictIdle(name)
		_ = p.Stats()
	case 14:
		f.set(func() { f.wild = !f.wild })
	case 15:
		_ = p.bounded(ctx, "DROP SERVER", func(ctx context.Context) error {
			return p.ApplyDDL(ctx, "DROP SERVER IF EXISTS nothing, s CASCADE")
		})
		_ = p.bounded(ctx, "Register", func(ctx context.Context) error { return p.Register(ctx, p.define("s")) })
	}
}

// ddl changes a server by text, and looks what came of it.
func (p *proof) ddl(ctx context.Context, name string) {
	before, err := p.Definition(name)
	if err != nil {
		return // it could not be registered
	}
	want, user := before, []string{"a", "b", "c"}[p.rnd.IntN(3)]
	text := ""
	switch p.rnd.IntN(4) {
	case 0:
		want.MaxSize = 1 + p.rnd.IntN(6)
		want.UserMaxSize = min(before.UserMaxSize, want.MaxSize)
		text = fmt.Sprintf("ALTER SERVER %s OPTIONS (SET max_connections '%d', SET user_max_connections '%d')", name, want.MaxSize, want.UserMaxSize)
	case 1:
		want.Options = map[string]string{"o": fmt.Sprint(p.rnd.IntN(100))}
		action := "ADD"
		if before.Options["o"] != "" {
			action = "SET"
		}
		text = fmt.Sprintf("ALTER SERVER %s OPTIONS (%s o '%s')", name, action, want.Options["o"])
	case 2:
		text = fmt.Sprintf("ALTER SERVER %s OPTIONS (DROP nothing)", name)
	case 3:
		text = fmt.Sprintf("DROP USER MAPPING IF EXISTS FOR %s SERVER %s; CREATE USER MAPPING FOR %s SERVER %s OPTIONS (user '%s%d')", user, name, user, name, user, p.rnd.IntN(3))
	}
	p.holds(want)
	err = p.bounded(ctx, "DDL", func(ctx context.Context) error { return p.ApplyDDL(ctx, text) })
	after, gone := p.Definition(name)
	if gone != nil {
		p.bad("%s has gone: %v", name, gone)
		return
	}
	if err != nil {
		want = before
	}
	if after.MaxSize != want.MaxSize || after.Options["o"] != want.Options["o"] {
		p.bad("%s: %v: it is %v %v, not %v %v", text, err, after.MaxSize, after.Options, want.MaxSize, want.Options)
	}
}

// mend makes everything work again, with definitions under which nobody who can
// wait has to be refused.
func (p *proof) mend(t *testing.T) {
	p.mu.Lock()
	if p.kindHangs != nil {
		close(p.kindHangs)
	}
	if p.hook == 3 {
		p.hook = 0
	}
	p.kindHangs, p.kindPanics = nil, false
	p.mu.Unlock()
	for _, name := range []string{"s", "t"} {
		f := p.fake(name)
		f.set(func() {
			f.down, f.stuck, f.wild = false, false, false
			f.dial, f.slow = time.Duration(p.rnd.IntN(40))*time.Millisecond, time.Duration(p.rnd.IntN(40))*time.Millisecond
		})
		d := p.define(name)
		d.OnExhausted, d.AcquireTimeout = flightpool.Wait, -1
		err := p.Update(t.Context(), d)
		if errors.Is(err, registry.ErrUnknownServer) {
			err = p.Register(t.Context(), d)
		}
		if err != nil {
			p.bad("nothing is wrong, but a definition is refused: %v", err)
		}
	}
}

// call borrows, works and gives back.
func (p *proof) call(ctx context.Context, rnd *rand.Rand) {
	server, user := []string{"s", "t"}[rnd.IntN(2)], []string{"a", "b", "c"}[rnd.IntN(3)]
	patient := rnd.IntN(2) == 0
	wait := time.Duration(1+rnd.IntN(1000)) * time.Millisecond
	if patient {
		wait = 10 * time.Second
	}
	p.mu.Lock()
	calm := p.calm
	p.calls++
	p.mu.Unlock()
	mine, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	began := time.Now()
	c, err := p.Acquire(mine, server, user)
	if took := time.Since(began); took > wait+time.Millisecond {
		p.bad("a call with %v took %v: %v", wait, took, err)
	}
	if err != nil {
		p.mu.Lock()
		calm = calm && p.calm
		p.mu.Unlock()
		if ctx.Err() == nil && calm && (patient || !errors.Is(err, registry.ErrExhausted)) {
			st, _ := p.ServerStats(server)
			p.bad("refused although everything works: %s of %s after %v: %v; %+v", user, server, time.Since(began), err, st)
		}
		_ = sleep(ctx, time.Duration(1+rnd.IntN(100))*time.Millisecond)
		return
	}
	var who string
	if c.SQL().QueryRowContext(ctx, "whoami").Scan(&who) == nil && who[:1] != user {
		p.bad("user %s got a connection of %s", user, who)
	}
	p.limits(server)
	_ = sleep(ctx, time.Duration(rnd.IntN(100))*time.Millisecond)
	if rnd.IntN(8) == 0 {
		_ = c.Fail(errors.New("so it is"))
	} else {
		_ = c.Release()
	}
	if server == "t" {
		p.mu.Lock()
		p.got++
		p.gave++
		p.mu.Unlock()
	}
	_ = sleep(ctx, time.Duration(1+rnd.IntN(200))*time.Millisecond)
}

// limits looks at the server whose connections there are.
func (p *proof) limits(server string) {
	f := p.fake(server)
	p.mu.Lock()
	b, calm := *p.bounds[server], p.calm
	p.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mostLive > b.all {
		p.bad("%s has had %d connections, more than %d", server, f.mostLive, b.all)
	}
	for _, user := range []string{"a", "b", "c"} {
		if n := f.byUser[user+"0"] + f.byUser[user+"1"] + f.byUser[user+"2"]; (calm || server == "t") && n > b.user {
			p.bad("user %s of %s has %d connections, more than %d", user, server, n, b.user)
		}
	}
}

// judge compares the statistics with what has happened. All callers are gone.
func (p *proof) judge(t *testing.T) {
	for _, name := range []string{"s", "t"} {
		st, err := p.ServerStats(name)
		require.NoError(t, err)
		if !st.Healthy || st.Active+st.Waiting+st.Opening+st.Closing != 0 || st.Total != p.fake(name).live || int(st.Created-st.Destroyed) != st.Total || st.Acquires != st.Releases { //nolint:gosec // small
			p.bad("%s at rest, with %d connections: %+v", name, p.fake(name).live, st)
		}
		if name == "t" && (st.Acquires != p.got || st.Releases != p.gave) {
			p.bad("t: %d loans and %d returns are counted, %d and %d were", st.Acquires, st.Releases, p.got, p.gave)
		}
	}
}
