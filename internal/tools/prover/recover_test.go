package prover

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// recovery is how long a pool may take to find out what has become of its connections once nothing goes wrong any more.
const recovery = 2 * time.Minute

// recoverySteps are a new session's then, and a call's of the pool.
var recoverySteps = []step{
	{who: "z", verb: "acquire"}, {who: "z", verb: "look"}, {who: "z", verb: "insert"}, {who: "z", verb: "begin"}, {who: "z", verb: "insert"},
	{who: "z", verb: "commit"}, {who: "z", verb: "insert"}, {who: "z", verb: "close"}, {verb: "look"}, {verb: "insert"},
}

// recoveryKey is the first row of those.
const recoveryKey = 1 << 30

// recovers sees to it that the pool serves a new session as well as ever when all that went wrong is over.
func (w *world) recovers() {
	if w.parallel || w.settled {
		return // other calls may be under way, in which something went wrong
	}
	for _, name := range slices.Sorted(maps.Keys(w.actors)) {
		if a := w.actors[name]; a.handle != nil {
			w.close(step{who: name, verb: "close"}, a)
		}
	}
	w.calmDown()
	time.Sleep(recovery)
	if w.endsUnseen() {
		return
	}
	for range 2 * w.program.max { // connections whose sessions have ended meanwhile
		w.visit()
	}
	w.settled = true
	for i, s := range recoverySteps {
		s.args = []string{strconv.Itoa(recoveryKey + i)}
		w.start(s)
	}
}

// calmDown ends what goes wrong, or is about to.
func (w *world) calmDown() {
	w.mu.Lock()
	timers := slices.Clone(w.timers)
	w.source = source{}
	w.mu.Unlock()
	for _, timer := range timers {
		timer.Stop()
	}
	w.srv.Faults().Clear()
	w.srv.Faults().ThawConns()
	w.answers.clear()
	if w.refusals != nil {
		w.refusals.clear()
	}
	w.redial.never()
}

// endsUnseen reports whether a session may have ended when it is acquired, for a reason that is not over.
func (w *world) endsUnseen() bool {
	return w.profile.FreshCookie || w.program.auth == "token" || w.program.backend == "new" && !w.calm ||
		w.profile.EvictedCode != codes.OK && w.srv.Ledger().Snapshot().SessionsEvicted > 0
}

// visit borrows a session and gives it back.
func (w *world) visit() {
	_ = w.call(step{verb: "visit"}, func(ctx context.Context) error {
		s, err := w.pool.AcquireSession(ctx)
		if err != nil {
			return err
		}
		_ = s.Ping(ctx)
		return s.Close()
	})
}
