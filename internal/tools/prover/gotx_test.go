package prover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// TestRandomUsesOfTransactions uses Tx and InTx as Go programs may, and may not: from
// several goroutines, ended by their functions, after their end, nested, left by panics
// and Goexit, beside faults and beside the pool's Close. What the calls said is held
// against the server's data. PROVE and PROVE_SEED are as for TestProveSessions. Where InTx
// does not count the commits of its function, 102 of 2,000 programs from seed 80000 on
// break a promise.
func TestRandomUsesOfTransactions(t *testing.T) {
	first, err := strconv.ParseUint(envOr("PROVE_SEED", "1"), 10, 64)
	require.NoError(t, err)
	much, err := amountOf(envOr("PROVE", "150x"))
	require.NoError(t, err)
	began := time.Now()
	for n := uint64(0); !much.reached(n, time.Since(began)); n++ {
		var w *world
		synctest.Test(t, func(t *testing.T) { w = useTransactions(t, first+n) })
		if len(w.broken) > 0 {
			t.Errorf("seed %d, %s %s %s: %v\n%s", first+n, w.profile.Name, w.program.backend, w.program.prepare, w.broken, strings.Join(w.trace, "\n"))
		}
	}
}

// goTxProfiles have transactions.
var goTxProfiles = []string{"strict", "swanlake", "side-by-side", "failures-do-not-abort", "forgiving", "cookie"}

// user is one goroutine of the program, with what it has been told.
type user struct {
	*world
	*rand.Rand
	name   string
	calm   bool
	shared *goTxShared
}

type goTxShared struct {
	sync.Mutex
	last     int64
	uses     []*use
	alone    map[int64]*stray // rows outside of transactions
	strays   sync.WaitGroup
	closing  bool // the pool's Close has begun
	outcomes []*inTx
}

// stray is a row, and what its call said.
type stray struct {
	err    error
	undone bool // it may be, by a savepoint
}

// use is one transaction: an attempt of InTx, or one of BeginTx.
type use struct {
	who     string
	tx      *flightpool.Tx
	rows    map[int64]*stray
	commits []error // what each Commit of it said
	loose   bool    // savepoints beside other goroutines: which rows are undone is not known
	ended   bool    // Commit or Rollback has returned, and was not busy
}

// inTx is a call of InTx.
type inTx struct {
	who      string
	attempts []*use
	ended    time.Time // when its function has ended last
	err      error
	over     bool // it has returned an error, which a panic or Goexit does not
}

func useTransactions(t *testing.T, seed uint64) *world {
	goroutines := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(seed, 2))
	p := program{profile: goTxProfiles[r.IntN(len(goTxProfiles))], auth: "none", max: 1 + r.IntN(3), min: r.IntN(2) - 1, check: -1}
	r2 := rand.New(rand.NewPCG(seed, 4)) // the rest of a seed's program is the same without
	p.prepare = oneOf(r2, "", "plain", "begun", "row", "prepared")
	p.backend = oneOf(r2, "", "grpc", "open", "new")
	if profile, _ := profileOf(p.profile); !hasBackend(profile, p.backend) {
		p.backend = ""
	}
	w, err := newWorld(t, p)
	require.NoError(t, err)
	shared := &goTxShared{alone: map[int64]*stray{}}
	calm := r.IntN(3) == 0
	w.calm = calm
	closer := time.Duration(-1)
	if r.IntN(3) == 0 {
		closer = oneOf(r, 0, time.Millisecond, 100*time.Millisecond, 2*time.Second)
	}
	var all sync.WaitGroup
	for i := range 1 + r.IntN(3) {
		u := &user{world: w, Rand: rand.New(rand.NewPCG(seed, uint64(10+i))), name: string(rune('a' + i)), calm: calm, shared: shared} //nolint:gosec // small
		all.Go(u.run)
	}
	if closer >= 0 {
		u := &user{world: w, Rand: rand.New(rand.NewPCG(seed, 3)), name: "closer", calm: calm, shared: shared}
		all.Go(func() { time.Sleep(closer); u.closePool() })
	}
	all.Wait()
	shared.strays.Wait()
	u := &user{world: w, Rand: r, name: "end", shared: shared}
	u.closePool()
	w.srv.Faults().Clear()
	w.srv.Faults().ThawConns()
	for _, f := range w.closers {
		_ = f()
	}
	w.leaks()
	shared.judge(w)
	w.unprepared()
	for _, timer := range w.timers {
		timer.Stop()
	}
	if err := w.srv.Close(); err != nil {
		w.breaks("server", "Close: %v", err)
	}
	synctest.Wait()
	if runtime.NumGoroutine() > goroutines {
		if left := leftBehind(); len(left) > 0 {
			w.breaks("goroutines left", "%s", strings.Join(left, "\n\n"))
		}
	}
	return w
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (u *user) says(format string, args ...any) {
	u.mu.Lock()
	u.trace = append(u.trace, time.Now().Format("15:04:05.000 ")+u.name+" "+fmt.Sprintf(format, args...))
	u.mu.Unlock()
}

// within makes a call with a context, and holds it to the end of that.
func (u *user) within(ctx *endingContext, what string, f func(ctx context.Context) error) error {
	began := time.Now()
	err := f(ctx)
	u.says("%s: %v (after %v)", what, err, time.Since(began))
	u.overdue(ctx, began, what)
	return err
}

// overdue finds calls that outlast their context.
func (u *user) overdue(ctx *endingContext, began time.Time, what string) {
	if end, ended := ctx.end(); ended {
		if began.After(end) {
			end = began
		}
		if over := time.Since(end); over > overtime {
			u.breaks("late return", "%s %s: %v after the end of its context", u.name, what, over)
		}
	}
}

// endingContext is a context that knows when it has ended.
type endingContext struct {
	context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	at     time.Time
}

func (u *user) context(parent context.Context) *endingContext {
	limit := longCall
	if u.IntN(3) == 0 {
		limit = oneOf(u.Rand, 0, time.Millisecond, 300*time.Millisecond, 3*time.Second, time.Minute)
	}
	c := &endingContext{}
	var cause error
	if u.IntN(4) == 0 { // of an errgroup, for example
		cause = &foreign{causes[oneOf(u.Rand, slices.Sorted(maps.Keys(causes))...)]}
	}
	outer, cancel := context.WithCancelCause(parent)
	inner, stop := context.WithTimeoutCause(outer, limit, cause)
	c.Context, c.cancel = inner, func() { cancel(cause); stop() }
	c.at = time.Now().Add(limit)
	if at, ok := parent.Deadline(); ok && at.Before(c.at) {
		c.at = at
	}
	return c
}

func (c *endingContext) stop() {
	c.mu.Lock()
	if now := time.Now(); now.Before(c.at) {
		c.at = now
	}
	c.mu.Unlock()
	c.cancel()
}

func (c *endingContext) end() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, !time.Now().Before(c.at)
}

func (u *user) key() int64 {
	u.shared.Lock()
	defer u.shared.Unlock()
	u.shared.last++
	return u.shared.last
}

func (u *user) run() {
	for range 1 + u.IntN(4) {
		ctx := u.context(u.t.Context())
		switch u.IntN(8) {
		case 0:
			u.alone(ctx)
		case 1:
			if !u.calm {
				u.disturb()
			}
		case 2, 3:
			u.manual(ctx)
		default:
			_ = u.inTx(ctx, 0)
		}
		ctx.stop()
	}
}

func (u *user) disturb() {
	g := &generator{Rand: u.Rand, profile: u.profile, held: map[string]bool{}, inTx: map[string]bool{}, ready: map[string]bool{}}
	if u.IntN(4) == 0 {
		u.says("restart")
		u.restart()
		return
	}
	for {
		s := g.fault()
		if u.IntN(5) == 0 {
			s.args[0], s.args[3] = "restart", "-"
		}
		if s.args[0] == "freeze" || s.args[1] == "CloseSession" || s.args[0] == "evict" && losesUnseen(u.profile) { // what they hold up, or hide, is for TestProveSessions
			continue
		}
		u.says("%s", s)
		u.fault(s)
		return
	}
}

// alone stores a row outside of a transaction.
func (u *user) alone(ctx *endingContext) {
	k := u.key()
	err := u.within(ctx, fmt.Sprintf("Update %d", k), func(ctx context.Context) error {
		_, err := u.pool.Update(ctx, u.insertOf(k))
		return err
	})
	u.shared.Lock()
	u.shared.alone[k] = &stray{err: err}
	u.shared.Unlock()
}

func (u *user) insertOf(k int64) string { return fmt.Sprintf("INSERT INTO %s VALUES (%d)", u.table, k) }

// closePool closes the pool, after which every call answers ErrClosed at once.
func (u *user) closePool() {
	ctx := u.context(u.t.Context())
	defer ctx.stop()
	u.shared.Lock()
	second := u.shared.closing
	u.shared.closing = true
	u.shared.Unlock()
	began := time.Now()
	err := u.pool.Close(ctx)
	u.says("Close: %v (after %v)", err, time.Since(began))
	if err != nil && !second {
		u.late = true // a transaction that was cut off may stay on the server
	}
	if second && !errors.Is(err, flightpool.ErrClosed) {
		u.breaks("closed twice", "%v, after %v", err, time.Since(began))
	}
	for name, call := range map[string]func() error{
		"Ping":           func() error { return u.pool.Ping(ctx) },
		"BeginTx":        func() error { _, err := u.pool.BeginTx(ctx, flightpool.TxOptions{}); return err },
		"AcquireSession": func() error { _, err := u.pool.AcquireSession(ctx); return err },
		"WaitReady":      func() error { return u.pool.WaitReady(ctx, 1) },
		"InTx": func() error {
			return u.pool.InTx(ctx, flightpool.TxOptions{}, func(context.Context, *flightpool.Tx) error { return nil })
		},
		"QueryRow": func() error { var n int; return u.pool.QueryRow(ctx, "SELECT 1").Scan(&n) },
		"IngestRows": func() error {
			type row struct{ K int64 }
			_, err := flightpool.IngestRows(ctx, u.pool, "log", func(yield func(row) bool) {
				for yield(row{1}) {
				}
			}, flightpool.IngestOptions{})
			return err
		},
		"Close": func() error { return u.pool.Close(ctx) },
	} {
		began := time.Now()
		if err := call(); !errors.Is(err, flightpool.ErrClosed) || time.Since(began) > 0 {
			u.breaks("call after Close", "%s: %v, after %v", name, err, time.Since(began))
		}
	}
}

// manual is a transaction of BeginTx.
func (u *user) manual(ctx *endingContext) {
	var tx *flightpool.Tx
	if u.within(ctx, "BeginTx", func(ctx context.Context) (err error) {
		tx, err = u.pool.BeginTx(ctx, flightpool.TxOptions{})
		return err
	}) != nil {
		return
	}
	o := u.newUse(tx)
	done := make(chan struct{})
	go func() { // which a panic or Goexit ends
		defer close(done)
		defer func() { _ = recover() }()
		defer u.rollback(ctx, o)
		if u.body(ctx, ctx, o, 0) == nil {
			_ = u.commit(ctx, o)
		}
	}()
	<-done
	u.after(ctx, o)
}

func (u *user) newUse(tx *flightpool.Tx) *use {
	o := &use{who: u.name, tx: tx, rows: map[int64]*stray{}}
	u.shared.Lock()
	u.shared.uses = append(u.shared.uses, o)
	u.shared.Unlock()
	return o
}

func (u *user) commit(ctx *endingContext, o *use) error {
	err := u.within(ctx, "Commit", o.tx.Commit)
	u.shared.Lock()
	o.commits = append(o.commits, err)
	o.ended = o.ended || !errors.Is(own{err}, flightpool.ErrBusy)
	u.shared.Unlock()
	return err
}

func (u *user) rollback(ctx *endingContext, o *use) {
	_ = u.within(ctx, "Rollback", o.tx.Rollback)
	u.shared.Lock()
	o.ended = true
	u.shared.Unlock()
}

const (
	thePanic = "the panic of its function"
	retries  = 6
)

// inTx is a call of InTx in a goroutine of its own, which its function may end.
func (u *user) inTx(ctx *endingContext, depth int) error {
	c := &inTx{who: u.name, ended: time.Now()}
	u.shared.Lock()
	u.shared.outcomes = append(u.shared.outcomes, c)
	u.shared.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if fault := recover(); fault != nil {
				u.says("InTx: panic %v", fault)
				if fault != thePanic {
					panic(fault)
				}
			}
			u.overdue(ctx, c.ended, "InTx")
		}()
		err := u.pool.InTx(ctx, flightpool.TxOptions{}, func(inner context.Context, tx *flightpool.Tx) (err error) {
			o := u.newUse(tx)
			u.shared.Lock()
			c.attempts = append(c.attempts, o)
			u.shared.Unlock()
			u.says("attempt %d", len(c.attempts))
			defer func() { c.ended = time.Now() }()
			return u.body(inner, ctx, o, depth)
		})
		u.says("InTx: %v", err)
		u.shared.Lock()
		c.err, c.over = err, true
		u.shared.Unlock()
	}()
	<-done
	for _, o := range c.attempts {
		u.after(ctx, o)
	}
	return c.err
}

// after uses a transaction that is over.
func (u *user) after(ctx *endingContext, o *use) {
	began := time.Now()
	tx := o.tx
	_, prepare := tx.PrepareQuery(ctx, "SELECT 1")
	_, query := tx.Query(ctx, "SELECT 1")
	_, update := tx.Update(ctx, "SELECT 1")
	for name, err := range map[string]error{"Query": query, "Update": update, "PrepareQuery": prepare,
		"Savepoint": tx.Savepoint(ctx, "s"), "RollbackTo": tx.RollbackTo(ctx, "s"), "Commit": tx.Commit(ctx)} {
		if !errors.Is(err, flightpool.ErrHandleClosed) || !unsent(err) {
			u.breaks("transaction over", "%s: %s: %v", u.name, name, err)
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		u.breaks("transaction over", "%s: Rollback: %v", u.name, err)
	}
	if took := time.Since(began); took > 0 {
		u.breaks("transaction over", "%s: %v", u.name, took)
	}
}

// body is the function of a transaction. outer is the context of the program's.
func (u *user) body(inner context.Context, outer *endingContext, o *use, depth int) (err error) {
	for range 1 + u.IntN(5) {
		ctx := outer
		if u.IntN(4) == 0 {
			ctx = u.context(inner)
			defer ctx.stop()
		}
		if u.IntN(4) == 0 {
			err = u.endEarly(inner, outer, ctx, o, depth)
		} else {
			err = u.use(outer, ctx, o)
		}
		if err != nil && u.IntN(4) > 0 {
			return fmt.Errorf("its function: %w", err)
		}
	}
	return oneOf(u.Rand, nil, nil, nil, errStop, err)
}

// use is what functions of transactions do.
func (u *user) use(outer, ctx *endingContext, o *use) error {
	switch u.IntN(15) {
	case 0, 1, 2, 3, 4:
		return u.insertIn(ctx, o)
	case 13, 14:
		return u.ingest(ctx, o)
	case 5:
		return u.within(ctx, "clash", func(ctx context.Context) error {
			_, err := o.tx.Update(ctx, fmt.Sprintf("UPDATE %s SET v = %d", u.hot, u.key()))
			return err
		})
	case 6:
		return u.within(ctx, "leave open", func(ctx context.Context) error {
			res, err := o.tx.Query(ctx, fmt.Sprintf("SELECT * FROM generate(%d, 1)", u.IntN(5)))
			if err == nil && u.IntN(2) == 0 {
				res.Next()
			}
			if err == nil && u.IntN(2) == 0 {
				res.Release()
			}
			return err
		})
	case 7, 8:
		u.beside(outer, o)
		return u.conflictElsewhere(ctx)
	case 9:
		time.Sleep(oneOf(u.Rand, time.Millisecond, 100*time.Millisecond, 2*time.Second))
		return nil
	case 10:
		return u.savepoint(ctx, o)
	case 11:
		return u.conflict(ctx, o)
	default:
		return u.within(ctx, "slow", func(ctx context.Context) error {
			return drain(o.tx.Query(ctx, fmt.Sprintf("SELECT sleep('%s')", oneOf(u.Rand, "1ms", "200ms", "5s"))))
		})
	}
}

// endEarly is what they had better not do, or what is done beside them.
func (u *user) endEarly(inner context.Context, outer, ctx *endingContext, o *use, depth int) (err error) {
	switch u.IntN(8) {
	case 0:
		_ = u.commit(ctx, o)
		err = u.conflictElsewhere(ctx)
	case 1:
		u.rollback(ctx, o)
	case 2, 3:
		if depth < 2 {
			nested := u.context(inner)
			err = u.inTx(nested, depth+1)
			nested.stop()
		}
	case 4:
		if u.IntN(2) == 0 {
			panic(thePanic)
		}
		runtime.Goexit()
	case 5:
		outer.stop()
	case 6:
		if !u.calm {
			u.disturb()
		}
	default:
		own := u.context(inner)
		u.alone(own)
		own.stop()
	}
	return err
}

// conflict is a statement that has lost one.
func (u *user) conflict(ctx *endingContext, o *use) error {
	return u.within(ctx, "conflict", func(ctx context.Context) error { return drain(o.tx.Query(ctx, "SELECT error('conflict')")) })
}

// conflictElsewhere is what a function may fail with, that has nothing to do with its
// transaction.
func (u *user) conflictElsewhere(ctx *endingContext) error {
	if u.IntN(3) > 0 {
		return nil
	}
	return u.within(ctx, "conflict elsewhere", func(ctx context.Context) error { return drain(u.pool.Query(ctx, "SELECT error('conflict')")) })
}

func (u *user) insertIn(ctx *endingContext, o *use) error {
	k := u.key()
	row := &stray{}
	err := u.within(ctx, fmt.Sprintf("insert %d", k), func(ctx context.Context) error {
		_, err := o.tx.Update(ctx, u.insertOf(k))
		return err
	})
	u.shared.Lock()
	row.err = err
	o.rows[k] = row
	u.shared.Unlock()
	return err
}

// ingest loads rows of an iterator, which may panic, end its goroutine or not return
// before the call has.
func (u *user) ingest(ctx *endingContext, o *use) error {
	if u.profile.AppendTo != "" {
		return nil // see aside of TestProveSessions
	}
	type row struct{ K int64 }
	k, left, how := u.key(), make(chan struct{}), u.IntN(6)
	told := &stray{err: errPanicked}
	u.shared.Lock()
	o.rows[k] = told
	u.shared.Unlock()
	defer close(left)
	return u.within(ctx, fmt.Sprintf("IngestRows %d, %d", k, how), func(ctx context.Context) error {
		_, err := flightpool.IngestRows(ctx, o.tx, "log", func(yield func(row) bool) {
			if !yield(row{k}) {
				return
			}
			switch how {
			case 0:
				panic(thePanic)
			case 1:
				runtime.Goexit()
			case 2:
				select {
				case <-left:
				case <-time.After(time.Second):
				}
			}
		}, flightpool.IngestOptions{Catalog: "memory", Schema: "main"})
		u.shared.Lock()
		told.err = err
		u.shared.Unlock()
		return err
	})
}

// beside uses the transaction from another goroutine, which nobody waits for.
func (u *user) beside(outer *endingContext, o *use) {
	pause := oneOf(u.Rand, 0, time.Millisecond, 300*time.Millisecond, 3*time.Second)
	other := &user{world: u.world, Rand: rand.New(rand.NewPCG(u.Uint64(), 5)), name: u.name + "'", calm: u.calm, shared: u.shared}
	ctx := outer
	if u.IntN(2) == 0 {
		ctx = u.context(u.t.Context())
	}
	what := u.IntN(4)
	if !u.calm && u.IntN(3) == 0 {
		u.srv.Faults().Set(testserver.Fault{On: testserver.OnEnd, Times: 1, After: u.IntN(2) == 0, Do: testserver.Delay(300 * time.Millisecond)})
	}
	u.shared.Lock()
	o.loose = true
	u.shared.Unlock()
	u.shared.strays.Go(func() {
		time.Sleep(pause)
		switch what {
		case 0:
			_ = other.commit(ctx, o)
		case 1:
			other.rollback(ctx, o)
		case 2:
			_ = other.insertIn(ctx, o)
		default:
			_ = other.savepoint(ctx, o)
		}
		if ctx != outer {
			ctx.stop()
		}
	})
}

// savepoint sets one, stores a row and goes back, or not.
func (u *user) savepoint(ctx *endingContext, o *use) error {
	if err := u.within(ctx, "Savepoint", func(ctx context.Context) error { return o.tx.Savepoint(ctx, "s") }); err != nil {
		return err
	}
	u.shared.Lock()
	before := make(map[int64]bool, len(o.rows))
	for k := range o.rows {
		before[k] = true
	}
	u.shared.Unlock()
	err := u.insertIn(ctx, o)
	if u.IntN(2) == 0 {
		return err
	}
	clash := error(nil)
	if u.IntN(2) == 0 {
		clash = u.conflict(ctx, o)
	}
	back := u.within(ctx, "RollbackTo", func(ctx context.Context) error { return o.tx.RollbackTo(ctx, "s") })
	u.shared.Lock()
	defer u.shared.Unlock()
	for k, row := range o.rows {
		if !before[k] {
			row.undone = true
		}
	}
	return cmp.Or(back, clash)
}

// judge holds what the calls have told against what is stored.
func (s *goTxShared) judge(w *world) {
	count := map[int64]int{}
	for _, row := range w.admin("SELECT * FROM " + w.table) {
		count[row[0]]++
	}
	for k, n := range count {
		if n > 1 {
			w.breaks("stored twice", "%d is stored %d times", k, n)
		}
	}
	for k, row := range s.alone {
		switch {
		case row.err == nil && count[k] == 0:
			w.breaks("confirmed and not stored", "%d", k)
		case row.err != nil && count[k] > 0 && w.refusedBefore(own{row.err}):
			w.breaks("denied and stored", "%d: %v", k, row.err)
		}
	}
	within := map[*use]bool{}
	for _, c := range s.outcomes {
		s.judgeInTx(w, c, count)
		for _, o := range c.attempts {
			within[o] = true
		}
	}
	for _, o := range s.uses {
		if !within[o] {
			s.judgeUse(w, o, count)
		}
	}
}

// judgeInTx adds what InTx said of the commit of its last attempt. Those before it are
// not stored.
func (s *goTxShared) judgeInTx(w *world, c *inTx, count map[int64]int) {
	for i, o := range c.attempts {
		last := i == len(c.attempts)-1
		if !last && slices.ContainsFunc(o.commits, func(err error) bool { return err == nil || errors.Is(own{err}, flightpool.ErrCommitUnknown) }) {
			w.breaks("run again", "%s: attempt %d has been committed: %v", c.who, i+1, o.commits)
		}
		if last && c.over {
			o.commits = append(o.commits, c.err)
			if c.err != nil && slices.Contains(o.commits, nil) && (flightpool.SafeToRetry(c.err) || flightpool.IsConflict(c.err)) {
				w.breaks("safe to run again", "%s: %v, but it is stored", c.who, c.err)
			}
		}
		s.judgeUse(w, o, count)
	}
	if len(c.attempts) > retries {
		w.breaks("run too often", "%s: %d", c.who, len(c.attempts))
	}
}

func (s *goTxShared) judgeUse(w *world, o *use, count map[int64]int) {
	committed := slices.Contains(o.commits, nil)
	unknown := slices.ContainsFunc(o.commits, func(err error) bool { return errors.Is(own{err}, flightpool.ErrCommitUnknown) })
	stored, missing := 0, 0
	for k, row := range o.rows {
		n := count[k]
		switch {
		case n > 0 && !committed && !unknown:
			w.breaks("denied and stored", "%s: %d: %v", o.who, k, o.commits)
		case n > 0 && row.undone && !o.loose:
			w.breaks("undone and stored", "%s: %d", o.who, k)
		case n > 0 && committed && row.err != nil && !o.loose:
			w.breaks("denied and stored", "%s: %d, of which its call said: %v", o.who, k, row.err)
		case row.err != nil || row.undone || o.loose && len(o.rows) > 1:
		case n == 0 && committed:
			w.breaks("confirmed and not stored", "%s: %d: %v", o.who, k, o.commits)
		case n == 0:
			missing++
		default:
			stored++
		}
	}
	if stored > 0 && missing > 0 {
		w.breaks("stored in part", "%s: %v", o.who, o.rows)
	}
}
