package fairshare_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/flightpool/flightpool/internal/fairshare"
)

const (
	holdTime    = 10 * time.Millisecond
	longestHold = 3 * time.Second
	openTime    = 2 * time.Millisecond
	closeTime   = time.Millisecond
)

// A world is a share, its users' pools, and what a model of them knows. Nothing of the
// share is looked at but what its methods say.
type world struct {
	t     *testing.T
	share *fairshare.Share

	rnd    *rand.Rand // of the one goroutine that changes things
	mu     sync.Mutex
	luck   *rand.Rand // of the opens
	bounds fairshare.Bounds
	live   int  // slots that were granted and not released
	opens  *int // of them, connections that are being opened, of the present share
	closes int  // of them, connections that are being closed
	grants int
	named  map[string]int // by user: of the present share, pools that were removed included
	shut   bool
	passes *user // while shut: one of its opens may pass, or as many as bring no connection
	passed bool  // one is under way, or has brought a connection
	failed int   // of a hundred opens, so many fail
	asked  int   // calls of Pool's methods
	users  []*user
	before []*fairshare.Share // those that share succeeds

	closeTime, late time.Duration // a close takes so long; a wait is told so late
	changed         time.Time     // when the bounds were last changed in the midst of a pass
	resized         time.Time     // when bounds or sizes were last changed by anybody but the share
}

// user is a user's pool: it opens for callers who wait, and keeps what they give back.
type user struct {
	*fairshare.Member
	w      *world
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	// guarded by w.mu
	bound, size         int // what the member may have, and what the pool may now
	demand, callers     int // callers who should run, and do
	used, opening, held int // held: slots
	version             int // raised by Replace
	hold, dial          time.Duration
	barred              bool               // its opens fail
	underWay            map[*open]struct{} // of opening, those that have a slot
	crossing            func()             // called once, before the share next sets the size
	named               map[string]int
	opens               *int
	idle                []conn
	waiters             []chan conn
	waitsSince          time.Time // for as long somebody has waited
	served              time.Time
	longest             time.Duration // wait of a caller
}

// open is one that has a slot.
type open struct{ since time.Time }

type conn struct {
	release func()
	version int
	since   time.Time
}

func newWorld(t *testing.T, seed uint64, b fairshare.Bounds) *world {
	return &world{t: t, share: fairshare.New(b), bounds: b, opens: new(int), named: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2))}
}

// join adds a user with a bound of their own.
func (w *world) join(name string, bound int) *user {
	u := &user{w: w, named: w.named, opens: w.opens, name: name, bound: bound, size: bound, served: time.Now(), underWay: map[*open]struct{}{}}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	u.Member = w.share.NewMember(name, u, bound)
	u.Join()
	w.mu.Lock()
	w.users = append(w.users, u)
	w.mu.Unlock()
	w.share.Dispatch()
	return u
}

// leave removes a user; what callers have comes back later.
func (w *world) leave(i int) {
	u := w.users[i]
	u.want(0)
	w.mu.Lock()
	w.users = append(w.users[:i:i], w.users[i+1:]...)
	w.mu.Unlock()
	u.Leave()
	w.share.Dispatch()
	u.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	u.size = 0
	u.shrink()
	u.failWaiters()
}

// succeed has all users leave and begins anew with another share, in which what is
// still held of the first one counts.
func (w *world) succeed() {
	old := w.share
	for len(w.users) > 0 {
		w.leave(0)
	}
	w.share = fairshare.New(w.bounds)
	w.before = append(w.before, old)
	for _, o := range w.before {
		w.share.Succeed(o)
	}
	w.named, w.opens = map[string]int{}, new(int) // a user's bound is of one share, and so is that of opens
	w.share.Gate(func() bool { return w.shut })
	old.Stop()
}

// floor is what every user can have whatever the others do.
func (w *world) floor() int { return min(w.bounds.Reserved, w.bounds.Max/max(1, len(w.users))) }

// set changes the bounds, as a registry does: the share's, the members', the pools'.
func (w *world) set(b fairshare.Bounds, own func() int) {
	for _, u := range w.users {
		w.setCrossing(u, nil) // one change of the bounds comes after the other
	}
	w.setBounds(b)
	for _, u := range w.users {
		w.resize(u, own())
	}
	w.share.Dispatch()
}

// resize changes what a user may have. What was granted before a bound is lowered is counted
// before it holds in the model: admitted looks a moment after the grant.
func (w *world) resize(u *user, n int) {
	if n > u.bound {
		u.setBound(n)
	}
	u.Member.Resize(n)
	if n < u.bound {
		synctest.Wait()
		u.setBound(n)
	}
	u.setSize(n)
}

func (w *world) setBounds(b fairshare.Bounds) {
	w.mu.Lock()
	w.bounds, w.resized = b, time.Now()
	w.mu.Unlock()
	w.share.Set(b)
}

func (u *user) setBound(n int) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.bound, u.w.resized = n, time.Now()
}

// noteChange says that something changes now while grants may be under way: admitted, which
// looks a moment after the grant, would hold them against the new bounds.
func (w *world) noteChange() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = time.Now()
}

func (w *world) setCrossing(u *user, change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u.crossing = change
}

// slow sets how long closes take, and how late the share hears of a caller who waits.
func (w *world) slow(closing, late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeTime, w.late = closing, late
}

// dialFor sets how long the user's opens take from now on. The share hears of openTime all the
// same, as if it had not measured them yet: turns and checks stay short beside them.
func (u *user) dialFor(d time.Duration) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.dial = d
}

// bar has the user's opens fail, or not any more.
func (u *user) bar(barred bool) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.barred = barred
}

// keepFor sets how long callers keep a connection from now on.
func (u *user) keepFor(d time.Duration) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.hold = d
}

func (u *user) keepTime() time.Duration {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	return max(u.hold, holdTime)
}

func (u *user) lastServed() time.Time {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	return u.served
}

// want sets how many callers of the user there are.
func (u *user) want(n int) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.demand = n
	for u.callers < n {
		u.callers++
		go u.call()
	}
}

// fail lets so many of a hundred opens fail.
func (w *world) fail(percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = percent
}

func (w *world) granted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants
}

func (u *user) waited() time.Duration {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	return u.longest
}

// holds is how many slots users have.
func holds(users ...*user) (all []int) {
	for _, u := range users {
		u.w.mu.Lock()
		all = append(all, u.held)
		u.w.mu.Unlock()
	}
	return all
}

// call is a caller: all the time, it waits for a connection, uses it, and gives it back.
func (u *user) call() {
	for {
		u.w.mu.Lock()
		if u.callers > u.demand {
			u.callers--
			u.w.mu.Unlock()
			return
		}
		u.w.mu.Unlock()
		if c, ok := u.get(); ok {
			time.Sleep(u.keepTime())
			u.put(c)
		} else {
			time.Sleep(openTime) // refused: it comes again
		}
	}
}

func (u *user) get() (conn, bool) {
	began := time.Now()
	u.w.mu.Lock()
	if n := len(u.idle); n > 0 {
		c := u.idle[n-1]
		u.idle = u.idle[:n-1]
		u.lend(began)
		u.w.mu.Unlock()
		return c, true
	}
	got := make(chan conn, 1)
	if len(u.waiters) == 0 {
		u.waitsSince = began
	}
	u.waiters = append(u.waiters, got)
	late := u.w.late
	if late > 0 {
		u.open()
	}
	u.w.mu.Unlock()
	time.Sleep(late)
	u.AddWaiting(1)
	u.w.mu.Lock()
	u.open()
	u.w.mu.Unlock()
	c := <-got
	u.AddWaiting(-1)
	if c.release == nil {
		return c, false
	}
	u.w.mu.Lock()
	u.longest = max(u.longest, time.Since(began))
	u.w.mu.Unlock()
	return c, true
}

// lend counts a loan. The caller holds w.mu, as of those that follow.
func (u *user) lend(began time.Time) {
	u.used++
	u.served = time.Now()
	u.longest = max(u.longest, time.Since(began))
}

// total is what the pool counts before it opens one more, existing what it has more of than
// its size: opens without a slot give way.
func (u *user) total() int    { return u.used + u.opening + len(u.idle) }
func (u *user) existing() int { return u.used + len(u.underWay) + len(u.idle) }

// open begins the opens that callers wait for.
func (u *user) open() {
	for u.opening < len(u.waiters) && u.total() < u.size {
		u.opening++
		go u.connect()
	}
}

func (u *user) connect() {
	release, err := u.Admit(u.ctx)
	if err != nil {
		u.NotOpened()
		u.w.mu.Lock()
		defer u.w.mu.Unlock()
		u.opening--
		return
	}
	o, dial, fails, version := u.admitted()
	c := conn{release: release, version: version}
	u.w.mu.Lock()
	unwanted := u.existing() > u.size || u.opening > len(u.waiters)
	if !unwanted {
		u.w.mu.Unlock()
		time.Sleep(dial)
		u.w.mu.Lock()
	}
	*u.opens--
	fails = fails || unwanted
	if fails && u.w.passes == u {
		u.w.passed = false
	}
	u.opening--
	delete(u.underWay, o)
	if fails {
		u.end(c)
	} else {
		u.checkServes(o, c)
		u.keep(c)
	}
	u.w.mu.Unlock()
	if fails {
		u.NotOpened()
	} else {
		u.Opened(openTime)
	}
}

// checkServes says that a connection that was just opened goes to those who have waited for it,
// unless somebody but the share has changed bounds or sizes meanwhile. Without FailFast they
// may have to wait for the next, but not because a turn has ended that had not begun.
func (u *user) checkServes(o *open, c conn) {
	if len(u.waiters) == 0 || !o.since.After(u.w.resized) || u.ctx.Err() != nil {
		return
	}
	assert.GreaterOrEqual(u.w.t, c.version, u.version, "%s waits, and its turn ends before its connection is there", u.name)
	if u.w.bounds.FailFast {
		assert.Less(u.w.t, u.existing(), u.size, "%s waits for an open under way, and another gets it", u.name)
	}
}

// checkRefused says that nobody is refused for whom an open is under way, but for one that was
// granted at this moment.
func (u *user) checkRefused() {
	for o := range u.underWay {
		assert.False(u.w.t, len(u.waiters) > 0 && o.since.Before(time.Now()), "%s is refused, with an open under way", u.name)
	}
}

// checkNobodyHopes says that under FailFast nobody waits for whom nothing is coming: no open is
// under way, none is about to be, and no connection is being closed.
func (w *world) checkNobodyHopes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.bounds.FailFast || w.shut || w.late > 0 || w.closes > 0 {
		return
	}
	for _, u := range w.users {
		if len(u.waiters) > 0 && u.Unadmitted() > 0 && len(u.underWay) == 0 && u.Waiting() == len(u.waiters) {
			assert.True(w.t, u.Fits(), "%s waits, and nothing is coming", u.name)
		}
	}
}

// admitted checks what every grant promises.
func (u *user) admitted() (o *open, dial time.Duration, fails bool, version int) {
	w := u.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live, w.grants = w.live+1, w.grants+1
	*u.opens++
	limit, floor, unmet := w.bounds.Max+w.bounds.Overflow, w.floor(), 0
	for _, o := range w.users {
		unmet += max(0, floor-o.held)
	}
	if u.held < floor {
		unmet = 0 // its own part
	}
	u.held++
	u.named[u.name]++
	if w.changed.Before(time.Now()) {
		assert.LessOrEqual(w.t, w.live+unmet, limit, "more connections than there may be, %d reserved", unmet)
		assert.LessOrEqual(w.t, *u.opens, w.bounds.MaxOpening, "more opens at a time")
		assert.LessOrEqual(w.t, u.named[u.name], u.bound, "more connections than the user may have")
	}
	if w.shut {
		assert.True(w.t, w.passes == u && !w.passed, "an open although the gate is shut")
		w.passed = true
	}
	o = &open{time.Now()}
	u.underWay[o] = struct{}{}
	return o, max(openTime, u.dial), w.luck.IntN(100) < w.failed || u.barred, u.version
}

// keep takes a connection that is not in use: for a caller who waits, to be idle, or to
// be closed.
func (u *user) keep(c conn) {
	switch {
	case u.existing() >= u.size || c.version < u.version:
		u.end(c)
	case len(u.waiters) > 0:
		u.waiters[0] <- c
		u.waiters, u.waitsSince = u.waiters[1:], time.Now()
		u.lend(time.Now())
	default:
		c.since = time.Now()
		u.idle = append(u.idle, c)
	}
}

// end closes a connection.
func (u *user) end(c conn) {
	u.w.closes++
	go func() {
		u.w.mu.Lock()
		takes := max(u.w.closeTime, closeTime)
		u.w.mu.Unlock()
		time.Sleep(takes)
		u.w.mu.Lock()
		u.w.live--
		u.w.closes--
		u.held--
		u.named[u.name]--
		u.w.mu.Unlock()
		c.release()
		u.w.mu.Lock()
		u.open()
		u.w.mu.Unlock()
	}()
}

func (u *user) put(c conn) {
	u.w.mu.Lock()
	u.used--
	u.keep(c)
	u.w.mu.Unlock()
	u.Returned()
}

func (u *user) shrink() {
	for len(u.idle) > 0 && u.existing() > u.size {
		c := u.idle[0]
		u.idle = u.idle[1:]
		u.end(c)
	}
}

func (u *user) failWaiters() {
	for _, got := range u.waiters {
		got <- conn{}
	}
	u.waiters = nil
}

// Resize, Yield, Replace and Refuse are what the share does to the pool.
func (u *user) Resize(n int) {
	u.w.mu.Lock()
	change := u.crossing
	u.crossing = nil
	u.w.asked++
	u.w.mu.Unlock()
	if change != nil {
		change()
	}
	u.setSize(n)
}

func (u *user) setSize(n int) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	if u.ctx.Err() == nil {
		u.size = n
		u.shrink()
		u.open()
	}
}

func (u *user) Yield(n int, unused time.Duration) (closed int) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.asked++
	for closed < n && len(u.idle) > 0 && time.Since(u.idle[0].since) >= unused {
		c := u.idle[0]
		u.idle = u.idle[1:]
		u.end(c)
		closed++
	}
	return closed
}

func (u *user) Replace() {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.asked++
	u.version++
	for _, c := range u.idle {
		u.end(c)
	}
	u.idle = nil
}

func (u *user) Refuse() {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.asked++
	u.checkRefused()
	u.failWaiters()
}
