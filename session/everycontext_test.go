package session

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
)

// callerEnd is when and how the context of a caller ends in a round trip.
type callerEnd struct{ when, how string }

// endTimes are the times. The end of the context is heard of before anything else happens.
var endTimes = []string{
	"unsent",   // the server does not get what was asked, if that ends the RPC
	"cut",      // it stops, which aborts a transaction
	"done",     // it has done it, and its answer does not come
	"answered", // the answer comes all the same
	"late",     // it does it a little later, and nothing else before
}

// endWays are the ways. In place of the context the handle may be closed, or the connections of the owner.
var endWays = []string{"cancel", "cause", "deadline", "deadline cause", "handle", "owner"}

// lateness is less than the grace, within which statements come to their turn.
const lateness = 200 * time.Millisecond

var errWhy = errors.New("the caller's own reason")

// caller is who waits for a step.
type caller struct {
	callerEnd
	end   func()
	ended atomic.Pointer[time.Time]
}

// contextOfStep is the context of a step, which lasts as long as patience, or ends as the
// scene has it.
func (p *play) contextOfStep() (context.Context, func()) {
	if p.w.ends == nil {
		return context.WithTimeout(p.policy.OwnerContext, patience)
	}
	c := &caller{}
	for _, e := range p.w.ends {
		c.callerEnd = e
	}
	var cause error
	if strings.HasSuffix(c.how, "cause") {
		cause = errWhy
	}
	at := time.Now().Add(patience)
	timed, stop := context.WithDeadlineCause(context.WithoutCancel(p.policy.OwnerContext), at, cause)
	ctx, cancel := context.WithCancelCause(timed)
	end := func() { cancel(cause) }
	switch c.how {
	case "deadline", "deadline cause":
		end = func() { time.Sleep(time.Until(at)) }
	case "handle":
		end = func() { go func() { _ = p.s.Close() }() }
	case "owner":
		end = func() {
			p.w.mu.Lock()
			p.w.lost = errors.New("the pool is closed")
			p.w.mu.Unlock()
			p.endOwner()
		}
	}
	c.end = func() {
		end()
		now := time.Now()
		c.ended.CompareAndSwap(nil, &now)
		synctest.Wait()
	}
	p.w.setCaller(c)
	return ctx, func() { p.w.setCaller(nil); cancel(nil); stop() }
}

func (w *world) setCaller(c *caller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.caller = c
}

// closedBeside reports whether somebody else may have closed the handle.
func (p *play) closedBeside() bool {
	for _, e := range p.w.ends {
		return e.how == "handle" || e.how == "owner"
	}
	return false
}

// tripWithEnd is a round trip in which the context of its caller ends.
func (w *world) tripWithEnd(ctx context.Context, e callerEnd, c *caller, statement bool, do func() error) error {
	run := func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		err := do()
		if statement && err != nil && backend.FaultIn(err) != backend.FaultUnsupported {
			w.sess.aborted = w.sess.tx != ""
		}
		return err
	}
	switch e.when {
	case "answered":
		defer c.end()
		return run()
	case "done":
		err := run()
		c.end()
		if cut := cutBy(ctx); cut != nil {
			return cut
		}
		return err
	case "late":
		late, done := make(chan struct{}), make(chan error, 1)
		w.mu.Lock()
		w.late = late
		w.mu.Unlock()
		go func() {
			time.Sleep(lateness)
			done <- run()
			close(late)
		}()
		c.end()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return cutBy(ctx)
		}
	default:
		c.end()
		cut := cutBy(ctx)
		if cut == nil {
			return run()
		}
		if statement && e.when == "cut" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.sess.aborted = w.sess.tx != ""
		}
		return cut
	}
}

func cutBy(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return worldError(backend.FaultContext, codes.Canceled, ctx.Err().Error())
}

// awaitLate waits until the session is free.
func awaitLate(ctx context.Context, late <-chan struct{}) error {
	select {
	case <-late:
	case <-ctx.Done():
	}
	return cutBy(ctx)
}

// judgeEnd looks at what a step comes to whose context has ended. A call that is brief, and
// one that waits for the end of another, goes on where its handle is closed.
func (p *play) judgeEnd(ctx context.Context, name string, err error) {
	c := p.w.caller
	if c == nil || c.ended.Load() == nil {
		return
	}
	late := time.Since(*c.ended.Load())
	if late > 0 && name != "pause" && !p.closedBeside() {
		p.wrong("%s returns %s after the end of its context", name, late)
	}
	switch {
	case err == nil, slices.Contains(p.mayFail, name), c.how == "owner":
	case c.how == "handle":
		if !errors.Is(err, backend.ErrHandleClosed) && !errors.Is(err, backend.ErrSessionLost) {
			p.wrong("%s does not say that its handle was closed: %v", name, err)
		}
	case !errors.Is(err, ctx.Err()), !errors.Is(err, context.Cause(ctx)):
		p.wrong("%s does not say how its context has ended: %v", name, err)
	}
}

// isQuick reports whether no context of a program ends by itself, nor does a call of it last.
func isQuick(program string) bool {
	return !slices.ContainsFunc([]string{"a sleep", "many rows", "WithTransaction too late", "WithTransaction late"}, func(slow string) bool { return strings.HasPrefix(program, slow) })
}

// Whichever round trip a caller's context ends in, and whatever becomes of that: the caller returns
// at once and is told how its context has ended, what it is told of its change is true, and the next
// borrower finds the session as it was. Those with a number of PROVE_SEED are tried.
func TestAContextMayEndInAnyRoundTrip(t *testing.T) {
	turn, _ := strconv.Atoi(os.Getenv("PROVE_SEED"))
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		if !isQuick(name) {
			continue
		}
		for _, server := range slices.Sorted(maps.Keys(servers)) {
			whole := scene{program: name, server: server, warm: turn%2 == 0}
			p, trips := whole.perform(t)
			for at := 1; at <= trips; at++ {
				for _, when := range endTimes {
					for _, how := range endWays {
						if turn++; turn%endsOfAll != 0 {
							continue
						}
						sc := whole
						sc.ends, sc.fail = map[int]callerEnd{at: {when, how}}, p.failed
						p, _ := sc.perform(t)
						report(t, sc, p)
					}
				}
			}
		}
	}
}

// endsOfAll is of how many ends one is tried.
const endsOfAll = 331

// Nor is anything wrong when a round trip fails after that, or comes to another session.
func TestAContextMayEndBeforeAFailure(t *testing.T) {
	kinds, names := slices.Sorted(maps.Keys(servers)), slices.DeleteFunc(slices.Sorted(maps.Keys(programs)), func(name string) bool { return !isQuick(name) })
	eachSeed(t, 1000, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 13))
		whole := scene{program: names[r.IntN(len(names))], server: kinds[r.IntN(len(kinds))], warm: r.IntN(2) == 0}
		p, trips := whole.perform(t)
		sc, at := whole, 1+r.IntN(max(trips, 1))
		sc.ends, sc.fail = map[int]callerEnd{at: {endTimes[r.IntN(len(endTimes))], endWays[r.IntN(4)]}}, p.failed
		if r.IntN(7) == 0 {
			sc.replacedBefore, sc.counts = []int{at + r.IntN(5)}, r.IntN(2) == 0
		} else {
			sc.faults = map[int]worldFault{at + 1 + r.IntN(4): worldFaults[r.IntN(len(worldFaults))]}
		}
		p, _ = sc.perform(t)
		p.broken = slices.DeleteFunc(p.broken, func(what string) bool { return strings.Contains(what, "nobody was told") })
		report(t, sc, p)
	})
}
