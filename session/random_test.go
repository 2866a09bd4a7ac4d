package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

// anySteps are what random programs are made of.
var anySteps = []step{
	insertOne, insertOne, insertOne, insertReturning, insertReturningClosed, bulk, bulk, prepared, preparedKept, withParams, letGo, ingest, catalogue, ping, options,
	begins, begins, commits, commits, rollsBack, pause, savepointStep("a"), rollbackTo,
	update("BAD"), update("SET threads = 1"), update("SET threads = 2"), update("RESET zone"), update("SET fresh = 'x'"), move("USE other", "other.main"), move("SET schema = 'own'", "own"),
	move("SET search_path = 'a.b'", "a.b"), update("CREATE TEMP TABLE a (i INT)"), update("CREATE TEMP VIEW v AS SELECT 1"), update("PREPARE a AS SELECT 1"), update("DEALLOCATE a"),
	query("PIVOT t ON a USING sum(b)", 1), update("SET threads = 1; SET zone = 'Oslo'"), update("SET threads = 1; BAD"), setOption("catalog", "far"), setOption("fresh", true), query("SELECT 3", 3),
	update("ATTACH 'x.db'"), prepareFirst, runFirst, prepareValues, runValues, runValues, pause, pause,
	update("SET SESSION threads = 3"), update("SET SESSION threads = 1"), update("RESET SESSION threads"), update("SET SESSION fresh = 'x'"), update("SET threads = 1; SET SESSION threads = 3"), update("SET SESSION zone = 'Oslo'; BAD"), update("EXPLAIN ANALYZE SET SESSION zone = 'Oslo'"),
	readInPart, insertLeftOpen, insertNoCancel, savepointStep("b"), within(insertOne, readInPart),
	within(insertOne, insertOne), within(insertOne, update("BAD")), within(insertOne, letGo, query("SELECT 2", 2)), within(insertOne, bulk), within(insertReturning),
}

// anyProgram is a random one that ends with an INSERT.
func anyProgram(r *rand.Rand) (steps []step) {
	inTx := false
	for range 2 + r.IntN(6) {
		s := anySteps[r.IntN(len(anySteps))]
		if s.name == "with transaction" && inTx {
			continue
		}
		inTx = inTx || s.name == "begin"
		steps = append(steps, s)
	}
	return append(steps, insertOne)
}

// eachSeed runs n seeds, from PROVE_SEED on, or as many as there is time for in
// PROVE (a duration).
func eachSeed(t *testing.T, n uint64, run func(t *testing.T, seed uint64)) {
	seed, _ := strconv.ParseUint(os.Getenv("PROVE_SEED"), 10, 64)
	limit, _ := time.ParseDuration(os.Getenv("PROVE"))
	start := time.Now()
	for end := seed + n; seed < end || time.Since(start) < limit; seed++ {
		run(t, seed)
	}
}

// Failures that come one after the other are met as single ones are.
func TestNoFailuresInARowBreakWhatWasSaid(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(servers))
	eachSeed(t, 250, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		sc := scene{program: fmt.Sprintf("seed %d", seed), server: kinds[r.IntN(len(kinds))], warm: r.IntN(2) == 0, reset: everyReset[max(0, r.IntN(6)-2)]}
		programs[sc.program] = anyProgram(r)
		defer delete(programs, sc.program)
		_, trips := sc.perform(t)
		sc.faults = make(map[int]worldFault)
		at := 1 + r.IntN(max(trips, 1))
		for range 1 + r.IntN(3) {
			sc.faults[at] = worldFaults[r.IntN(len(worldFaults))]
			at += 1 + r.IntN(3)
		}
		p, _ := sc.perform(t)
		p.excuse(sc.reset)
		report(t, sc, p)
	})
}

// Nor does the server, which may put another session in the place of the handle's before any round trip, or
// in a pause: see TestASessionMayBeReplacedBeforeAnyRoundTrip.
func TestNoReplacedSessionBreaksWhatWasSaid(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(servers))
	eachSeed(t, 250, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 11))
		sc := scene{program: fmt.Sprintf("replaced, seed %d", seed), server: kinds[r.IntN(len(kinds))], warm: r.IntN(2) == 0}
		programs[sc.program] = anyProgram(r)
		defer delete(programs, sc.program)
		whole, trips := sc.perform(t)
		sc.counts = r.IntN(3) > 0
		if whole.pauses > 0 && r.IntN(2) == 0 {
			sc.replace = 1 + r.IntN(whole.pauses)
		} else {
			sc.replacedBefore = []int{1 + r.IntN(max(trips, 1))}
		}
		p, _ := sc.perform(t)
		report(t, sc, p)
	})
}

// excuse leaves out what no session can do better: what the owner of the
// connections wants left, and a server that refuses twice to tell what it has
// never told.
func (p *play) excuse(reset SessionReset) {
	p.broken = slices.DeleteFunc(p.broken, func(what string) bool {
		refused := 0
		for _, f := range p.w.faults {
			if !f.after && f.kind != "cut" && f.kind != "hang" {
				refused++
			}
		}
		next := strings.HasPrefix(what, "the next borrower") && !strings.Contains(what, "transaction") && !strings.Contains(what, "streams") &&
			!strings.Contains(what, "prepared statements") && !strings.Contains(what, "options")
		unasked := strings.Contains(what, "PIVOT") || strings.Contains(what, "its own settings") || strings.Contains(what, "bulk.") && p.w.bulkMoves
		if strings.Contains(what, "nobody was told") { // of each of several
			return true
		}
		return next && (reset.mode == resetNone || reset.mode == resetSQL) || unasked && refused > 1
	})
}

// runRandom is run with contexts of any length, on a slow server, beside others.
func (p *play) runRandom(r *rand.Rand, steps []step, closer, others bool) {
	done := make(chan struct{})
	if closer {
		after := time.Duration(r.Int64N(int64(8 * time.Second)))
		go func() {
			select {
			case <-time.After(after):
				_ = p.s.Close()
			case <-done:
			}
		}()
	}
	if others {
		every := time.Duration(10+r.IntN(900)) * time.Millisecond
		which := r.IntN(3)
		go func() {
			for {
				select {
				case <-time.After(every):
				case <-done:
					return
				}
				ctx, stop := context.WithTimeout(p.policy.OwnerContext, every)
				switch which {
				case 0:
					_ = p.s.Ping(ctx)
				case 1:
					_, _ = p.s.Options(ctx)
				case 2:
					if res, err := p.s.Query(ctx, "SHOW x"); err == nil {
						res.Release()
					}
				}
				stop()
			}
		}()
	}
	for _, s := range steps {
		lasts := time.Duration(1+r.IntN(1500)) * time.Millisecond
		if r.IntN(3) == 0 {
			lasts = 20 * time.Second
		}
		ctx, stop := context.WithTimeout(p.policy.OwnerContext, lasts)
		if r.IntN(4) == 0 {
			var c func()
			ctx, c = context.WithCancel(p.policy.OwnerContext)
			tm := time.AfterFunc(lasts, c)
			stop = func() { tm.Stop(); c() }
		}
		start := time.Now()
		err := s.do(ctx, p)
		if took := time.Since(start); took > lasts && s.name != "pause" {
			p.wrong("%s took %s of %s", s.name, took, lasts)
		}
		if err != nil {
			var e *backend.Error
			switch {
			case !errors.As(err, &e), e.Op == "" && e.Stage == backend.StageNone:
				p.wrong("%s fails with no *Error of a call: %v", s.name, err)
			case ctx.Err() != nil && e.Fault == backend.FaultContext && !errors.Is(err, ctx.Err()):
				p.wrong("%s does not say that its context has ended: %v", s.name, err)
			}
		}
		stop()
		if r.IntN(6) == 0 {
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		}
	}
	close(done)
	for _, res := range p.open {
		res.Release()
	}
	start := time.Now()
	err := p.s.Close()
	if took := time.Since(start); took > p.policy.closeTimeout() {
		p.wrong("Close took %s", took)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if len(p.returned) != 1 {
		p.wrong("the connection was returned %d times", len(p.returned))
		return
	}
	reason := p.returned[0]
	if err != nil && !errors.Is(err, reason) {
		p.wrong("Close says %v, and the connection is discarded for %v", err, reason)
	}
	if left := p.w.left(); reason == nil && len(left) > 0 {
		p.wrong("the next borrower finds %q", left)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for i, ctx := range p.w.ctxs {
		if ctx.Err() == nil {
			p.wrong("the context of %q has not ended", p.w.log[i])
			break
		}
	}
	if p.w.sess.streams > 0 {
		p.wrong("%d streams are open", p.w.sess.streams)
	}
	p.count(reason == nil)
}

// A session whose statements take their time, and go on when their callers have
// left, with calls from elsewhere, Close among them.
func TestNothingThatWasSaidIsBrokenOnASlowServer(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(servers))
	eachSeed(t, 250, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 9))
		sc := scene{program: fmt.Sprintf("seed %d", seed), server: kinds[r.IntN(len(kinds))], single: r.IntN(12) == 0, reset: everyReset[max(0, r.IntN(6)-2)]}
		steps := anyProgram(r)
		if sc.single {
			steps = steps[:1]
		}
		if r.IntN(3) == 0 {
			at := 1 + r.IntN(40)
			sc.faults = map[int]worldFault{at: worldFaults[r.IntN(len(worldFaults))], at + 1 + r.IntN(3): worldFaults[r.IntN(len(worldFaults))]}
		}
		var p *play
		synctest.Test(t, func(t *testing.T) {
			life, stop := context.WithCancel(t.Context())
			defer stop()
			w := newWorld()
			servers[sc.server](w)
			w.faults, w.slow = sc.faults, anyPace(rand.New(rand.NewPCG(seed, 10)), r.IntN(3))
			p = &play{w: w, policy: &Policy{Target: "world:1", OwnerContext: life, OnReturn: sc.reset}, place: "lake.main", placed: map[int]string{}}
			handle := New
			if sc.single {
				handle = NewStateless
			}
			conn := w.conn()
			if seed%3 == 0 { // how the server takes statements has to be learned
				l := &learningWorld{world: w, sideBySide: seed%2 == 0 && !w.forgives, stops: seed%5 != 0}
				conn = l
				if l.sideBySide {
					w.queue = make(chan struct{}, 100)
				}
			}
			p.s = handle(conn, p.policy, func(err error) { p.returned = append(p.returned, err) })
			p.runRandom(r, steps, r.IntN(4) == 0, r.IntN(4) == 0)
			synctest.Wait()
		})
		p.excuse(sc.reset)
		report(t, sc, p)
	})
}

// anyPace is how long a server works. heeds is 0 where it stops for a call that is
// ended, 1 where it does so now and then.
func anyPace(r *rand.Rand, heeds int) func() (time.Duration, bool) {
	var mu sync.Mutex
	return func() (time.Duration, bool) {
		mu.Lock()
		defer mu.Unlock()
		d := time.Duration(r.IntN(20)) * time.Millisecond
		switch r.IntN(12) {
		case 0, 1:
			d = time.Duration(r.IntN(400)) * time.Millisecond
		case 2:
			d = time.Duration(r.IntN(4000)) * time.Millisecond
		}
		return d + 1, heeds == 0 || heeds == 1 && r.IntN(2) == 0
	}
}

// learningWorld is a world of which it is not known whether it runs the statements
// of a session one at a time.
type learningWorld struct {
	*world
	order      backend.StatementOrder
	sideBySide bool
	stops      bool // it has a call that stops a statement, and says so
}

func (l *learningWorld) StatementOrder() *backend.StatementOrder { return &l.order }

func (l *learningWorld) QueryConcurrently(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	return l.Query(ctx, sql, call)
}

// RoundTrips are those in the log but for the probes.
func (l *learningWorld) RoundTrips() (begun, answered int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range l.log {
		if !strings.HasSuffix(what, "SELECT 1") {
			begun++
		}
	}
	return begun, 0
}

// CancelSteps has one, after which nothing else runs in the session.
func (l *learningWorld) CancelSteps(*backend.Operation) []cancel.Step {
	if !l.stops {
		return nil
	}
	return []cancel.Step{{Name: "stop", Timeout: time.Second, Do: func(ctx context.Context) (cancel.Outcome, error) {
		for {
			l.mu.Lock()
			wasIdle := l.working == 0
			l.mu.Unlock()
			if wasIdle {
				return cancel.Confirmed, nil
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return cancel.Unanswered, ctx.Err()
			}
		}
	}}}
}

var (
	// readInPart ends with the context of its step.
	readInPart = step{"read in part", func(ctx context.Context, p *play) error {
		res, err := p.s.Query(ctx, "SELECT 3")
		if err == nil {
			p.open = append(p.open, res)
			res.Next()
		}
		return p.other(err)
	}}
	insertLeftOpen = step{"insert returning, left open", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			res, err := p.s.Query(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d) RETURNING 1", v))
			if err == nil {
				p.open = append(p.open, res)
				res.Next()
				err = &backend.Error{Op: "Query", Stage: backend.StageFetch, Fault: backend.FaultContext, Err: errReleasedEarly}
			}
			return err
		})
	}}
	insertNoCancel = step{"insert, not cancelled", func(ctx context.Context, p *play) error {
		return p.value(func(v int) error {
			_, err := p.s.UpdateWithOptions(ctx, fmt.Sprintf("INSERT INTO t VALUES (%d)", v), QueryOptions{NoCancel: true})
			return err
		})
	}}
)
