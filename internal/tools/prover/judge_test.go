package prover

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightpool/flightpool/testserver"
)

// execute runs a program and returns the promises that it broke.
func execute(t *testing.T, p program) (broken []violation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { broken = inBubble(t, p).broken })
	return broken
}

func inBubble(t *testing.T, p program) *world {
	goroutines := runtime.NumGoroutine()
	w, err := newWorld(t, p)
	if w == nil {
		t.Fatal(err)
	}
	if err != nil {
		w.breaks("error for no reason", "New: %v", err)
	} else {
		w.turn.Lock()
		for _, s := range p.steps {
			w.start(s)
		}
		w.turn.Unlock()
		w.running.Wait()
		w.turn.Lock()
		w.end()
		w.turn.Unlock()
		w.fed.Lock()
		w.fed.Unlock() //nolint:staticcheck // an edge from those that have begun
		w.feeding.Wait()
	}
	for _, timer := range w.timers {
		timer.Stop()
	}
	if err := w.srv.Close(); err != nil {
		w.breaks("server", "Close: %v", err)
	}
	time.Sleep(redialPause) // the driver may be in one, within a call that its connection has left
	synctest.Wait()
	if runtime.NumGoroutine() > goroutines { // else the stacks of all need not be read
		if left := leftBehind(); len(left) > 0 {
			w.breaks("goroutines left", "%s", strings.Join(left, "\n\n"))
		}
	}
	if testing.Verbose() && os.Getenv("PROVE_TRACE") != "" {
		t.Logf("%s\n%s", strings.Join(w.trace, "\n"), statementsText(w))
	}
	return w
}

// statementsText is what the engine was given.
func statementsText(w *world) string {
	var b strings.Builder
	for _, st := range w.srv.Ledger().Statements() {
		fmt.Fprintf(&b, "  session %d %s %s: %s %v\n", st.Session, st.RPC, st.SQL, st.State, st.Err)
	}
	return b.String()
}

// end closes what is open and holds all that was said against the server.
func (w *world) end() {
	for _, name := range slices.Sorted(maps.Keys(w.actors)) {
		if a := w.actors[name]; a.handle != nil {
			w.close(step{who: name, verb: "close"}, a)
		}
	}
	ctx, stop := context.WithTimeout(w.t.Context(), closing)
	defer stop()
	if err := w.pool.Close(ctx); err != nil && w.calm && !w.late {
		w.breaks("error for no reason", "pool.Close: %v", err)
	}
	if w.second != nil {
		if err := w.second.Close(ctx); err != nil && w.calm && !w.late {
			w.breaks("error for no reason", "pool.Close: %v", err)
		}
	}
	w.srv.Faults().Clear()
	w.srv.Faults().ThawConns()
	for _, f := range w.closers {
		_ = f()
	}
	w.leaks()
	w.shadeAtLast()
	w.rows()
	w.twice()
	w.identities()
	w.unprepared()
	for _, rpc := range w.headers.odd {
		w.breaks("headers of a call", "%s", rpc)
	}
}

// identities looks for connections that have changed their session, where that
// is bound to what they present.
func (w *world) identities() {
	if w.profile.SessionKey != testserver.ByBearer || w.srv.Ledger().Snapshot().SessionsEvicted > 0 {
		return
	}
	if slices.ContainsFunc(w.program.steps, func(s step) bool { return s.arg(0) == "freeze" }) {
		return // what was on its way arrives with the end of the session, which it may outrun
	}
	session := map[string]int{} // by connection
	for _, st := range w.srv.Ledger().Statements() {
		if st.State == testserver.Interrupted { // it was still on its way when its client had gone
			continue
		}
		if known := session[st.Peer]; known != 0 && known != st.Session {
			w.breaks("connection in two sessions", "%s: %d and %d, of %q", st.Peer, known, st.Session, st.SQL)
		}
		session[st.Peer] = st.Session
	}
}

// rows holds the table against what the calls have told.
func (w *world) rows() {
	count := map[int64]int{}
	for _, row := range w.admin("SELECT * FROM " + w.table) {
		count[row[0]]++
	}
	w.elsewhere(count)
	w.replacements()
	w.clashed()
	whole := map[*tx]map[bool]bool{}
	for _, k := range slices.Sorted(maps.Keys(w.tokens)) {
		t, n := w.tokens[k], count[k]
		delete(count, k)
		if n > 1 {
			w.breaks("stored twice", "%q: %d is stored %d times", t.step, k, n)
		}
		state := t.outcome()
		switch {
		case state == stored && n == 0:
			w.breaks("confirmed and not stored", "%q: %d", t.step, k)
		case (state == never || state == open) && n > 0:
			w.breaks("denied and stored", "%q: %d", t.step, k)
		case state == together && t.tx != nil:
			if whole[t.tx] == nil {
				whole[t.tx] = map[bool]bool{}
			}
			whole[t.tx][n > 0] = true
			if len(whole[t.tx]) > 1 && !t.tx.failed {
				w.breaks("stored in part", "%q: %d and others of its transaction", t.step, k)
			}
		}
	}
	for k := range count {
		w.breaks("stored from nowhere", "%d", k)
	}
}

// clashed holds the one row that transactions clash about against what they have told: the last of those that are
// stored has changed it.
func (w *world) clashed() {
	v := w.admin("SELECT * FROM " + w.hot)[0][0]
	t, known := w.clashes[v]
	switch {
	case known && (t.outcome() == never || t.outcome() == open):
		w.breaks("denied and stored", "%d, in the row that transactions clash about", v)
	case !known && v != 0:
		w.breaks("stored from nowhere", "%d, in the row that transactions clash about", v)
	case !known:
		for k, t := range w.clashes {
			if t.outcome() == stored {
				w.breaks("confirmed and not stored", "%d, in the row that transactions clash about", k)
			}
		}
	}
}

// twice looks for changes that the engine has carried out more than once.
func (w *world) twice() {
	done := map[string]int{}
	bound := 0
	for _, st := range w.srv.Ledger().Statements() {
		// As it was to be, or to be run again by the server itself, behind a rollback of its own.
		refused := st.State == testserver.Failed && (strings.HasSuffix(st.SQL, " RETURNING k") || w.profile.AppendTo != "")
		if strings.Contains(st.SQL, "?") && !strings.HasPrefix(st.SQL, "SELECT ?, ") && st.RPC != string(testserver.OnPrepare) && !refused {
			bound++
			if strings.Contains(st.SQL, w.decoy) || bound > w.bound {
				w.breaks("another statement run", "%s, which nobody has asked for", st.SQL)
			}
		}
		if st.State == testserver.Done && strings.HasPrefix(st.SQL, "INSERT") && !strings.Contains(st.SQL, "?") {
			if done[st.SQL]++; done[st.SQL] == 2 {
				w.breaks("run twice", "%s", st.SQL)
			}
		}
	}
}

// leaks looks for what the pool has left on the server.
func (w *world) leaks() {
	wait := func(what string, within time.Duration, ok func(testserver.Snapshot) bool) {
		ctx, stop := context.WithTimeout(w.t.Context(), within)
		defer stop()
		if w.srv.Ledger().Wait(ctx, ok) != nil {
			w.breaks("left on the server", "%s: %s", what, w.srv.Ledger().Snapshot())
		}
	}
	soon := time.Minute
	if w.program.backend == "new" {
		soon = aftermath // a driver that is in a reader of the program's closes behind that
	}
	wait("connections", soon, func(s testserver.Snapshot) bool { return s.Conns == 0 })
	wait("statements", aftermath, func(s testserver.Snapshot) bool { return s.Running == 0 && s.Queued == 0 && s.Streams == 0 })
	if w.calm && !w.late && w.program.auth != "token" && !w.strayed { // without a valid token nothing can be rolled back
		wait("transactions", time.Minute, func(s testserver.Snapshot) bool { return s.Transactions == 0 })
	}
	if w.profile.SessionTTL > 0 || w.profile.SessionKey == testserver.ByConnection {
		wait("sessions", aftermath, func(s testserver.Snapshot) bool { return s.Sessions == 0 && s.Transactions == 0 && s.Prepared == 0 })
	}
}

var stacks = sync.Pool{New: func() any { return make([]byte, 1<<20) }}

// leftBehind are the goroutines of this bubble but this one.
func leftBehind() []string {
	buf := stacks.Get().([]byte)
	defer stacks.Put(buf) //nolint:staticcheck // one header in a program
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	bubble := bubbleOf(all[0])
	var left []string
	for _, g := range all[1:] {
		if strings.Contains(g, "synctest.Run(") || strings.Contains(g, "testingSynctestTest(") {
			continue // what runs the bubble
		}
		if b := bubbleOf(g); b != "" && b == bubble {
			left = append(left, g)
		}
	}
	return left
}

// bubbleOf is the bubble that a goroutine's trace names in its first line.
func bubbleOf(trace string) string {
	line, _, _ := strings.Cut(trace, "\n")
	_, bubble, _ := strings.Cut(line, "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	return bubble
}
