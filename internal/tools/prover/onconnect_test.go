package prover

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// What OnConnect sets, and where it leads. preparedBy comes last, and nothing else does
// that to a session.
const (
	preparedBy    = "CREATE TEMP TABLE IF NOT EXISTS mine (v BIGINT)"
	preparedPlace = "memory.prepared"
)

// onConnect prepares a session. What else it does is as the program says.
func (w *world) onConnect(ctx context.Context, s *flightpool.SessionHandle) error {
	begin := func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "SET colour = 'blue'")
		if err == nil {
			_, err = s.Update(ctx, "USE "+preparedPlace)
		}
		return err
	}
	var err error
	if w.program.prepare == "begun" {
		err = s.WithTransaction(ctx, begin)
	}
	if w.program.prepare != "begun" || backend.FaultIn(err) == flightpool.FaultUnsupported { // it has no transactions
		err = begin(ctx, s)
	}
	if err == nil && w.program.prepare == "prepared" { // and is not closed
		_, err = s.PrepareQuery(ctx, "SELECT * FROM generate(7, 2)")
	}
	if err == nil {
		_, err = s.Update(ctx, preparedBy)
	}
	if w.program.prepare == "row" { // which ends behind it
		err = cmp.Or(err, s.QueryRow(ctx, "SELECT 1").Scan(new(int64)))
	}
	return err
}

// isPrepared reports whether a statement was run in a session that OnConnect had prepared.
func isPrepared(ran testserver.Statement, all []testserver.Statement) bool {
	for _, st := range all {
		if st.SQL == preparedBy && st.State == testserver.Done && st.Session == ran.Session && st.ID <= ran.ID {
			return true
		}
	}
	return false
}

// isProof reports whether a statement is one by which a session shows itself.
func isProof(st testserver.Statement) bool {
	return strings.HasPrefix(st.SQL, "SELECT '") && st.State == testserver.Done
}

// begunBehindProof reports whether the transaction that a statement names was begun right
// behind the proof of a prepared session. A server that knows its transactions by their
// ids takes no proof inside of one: that a session was replaced between the two shows at
// the next statement that is outside.
func (w *world) begunBehindProof(ran testserver.Statement, all []testserver.Statement) bool {
	if ran.Tx == "" {
		return false
	}
	if w.program.backend == "new" { // which watches over its transactions
		return false
	}
	begun := false
	for _, st := range slices.Backward(all[:ran.ID-1]) {
		switch {
		case st.Peer != ran.Peer:
		case begun:
			return isProof(st) && isPrepared(st, all)
		case st.Kind == testserver.KindBegin:
			begun = st.Session == ran.Session
		}
	}
	return false
}

// isStateRead reports whether a statement is one by which a call asks between its proof and
// its change where the session is. A session that is replaced behind the proof answers it, too.
func isStateRead(st testserver.Statement) bool {
	return strings.HasPrefix(st.SQL, "SELECT current_") && !strings.Contains(st.SQL, " -- look ")
}

// unprepared looks for changes that were made in a session which OnConnect has not
// prepared, without a proof before them and what was asked behind that.
func (w *world) unprepared() {
	if w.program.prepare == "" {
		return
	}
	all := w.srv.Ledger().Statements()
	for i, st := range all {
		if st.State != testserver.Done || !strings.HasPrefix(st.SQL, "INSERT INTO "+w.table) || isPrepared(st, all) || !losesUnseen(w.profile) && w.begunBehindProof(st, all) {
			continue
		}
		proven := w.program.backend == "new" && st.Tx == "" && (st.RPC != "DoPut" || w.refusesToPrepare()) && w.provenElsewhere(st, all)
		for _, earlier := range slices.Backward(all[:i]) {
			if earlier.Peer == st.Peer && !isStateRead(earlier) {
				proven = proven || isProof(earlier) && isPrepared(earlier, all)
				break
			}
		}
		if !proven {
			w.breaks("statement in an unprepared session", "session %d: %s", st.Session, st.SQL)
		}
	}
}

// refusesToPrepare reports whether the program has statements refused that are to be prepared. A
// driver is given such an update as text, as adbcpool's documentation says.
func (w *world) refusesToPrepare() bool {
	return slices.ContainsFunc(w.program.steps, func(s step) bool {
		return (s.verb == "fault" || s.verb == "answer") && slices.Contains(s.args, string(testserver.OnPrepare))
	})
}

// provenElsewhere reports whether a prepared session has shown itself right before a
// statement outside of transactions that ran in another. A driver that dials again cannot
// be caught at it there, unless the statement is an update.
func (w *world) provenElsewhere(ran testserver.Statement, all []testserver.Statement) bool {
	for _, st := range slices.Backward(all[:ran.ID-1]) {
		if ran.Began.Sub(st.Began) > time.Second+w.longestDelay() {
			return false
		}
		if isProof(st) && st.Peer != ran.Peer && isPrepared(st, all) {
			return true
		}
	}
	return false
}

// longestDelay is the longest by which the program has its server begin a statement late.
func (w *world) longestDelay() (longest time.Duration) {
	for _, s := range w.program.steps {
		if s.verb == "fault" && s.args[0] == "delay" {
			for _, arg := range s.args[1:] {
				if d, err := time.ParseDuration(arg); err == nil {
					longest = max(longest, d)
				}
			}
		}
	}
	return longest
}
