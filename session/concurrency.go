package session

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/eof"
)

// mustLearnOrder reports whether it has to be found out yet whether the server runs the
// statements of a session one at a time. Until it is known, calls whose context can end
// run in a goroutine of their own, so that a probe can be sent beside the first
// statements that are cut short.
func (s *SessionHandle) mustLearnOrder() bool {
	l, ok := s.conn.(backend.ConcurrentQuerier)
	return ok && !l.StatementOrder().Known()
}

// answerShowsEnd reports whether a statement that the session answers proves that the call before it
// has ended. What is not learned yet counts as no. A backend that is no StatementOrderer sees to it itself.
func (c *call) answerShowsEnd() bool {
	l, ok := c.s.conn.(backend.StatementOrderer)
	return !ok || l.StatementOrder().IsSerial() && !c.mayBeInterleaved()
}

// mayBeInterleaved reports whether the session may run other statements in the middle of the call, although it runs
// one at a time: the call is several to the server, which has been sent some of it. SwanLake executes a change once for
// each row of its parameters, and takes what else the session was sent in between.
func (c *call) mayBeInterleaved() bool {
	l, ok := c.s.conn.(backend.StatementOrderer)
	several := c.statement && (c.manyExecutions || !c.script.Atomic())
	return several && c.stepBegun.Load() && ok && l.StatementOrder() != nil
}

// learnOrder finds out, before the RPC of a call that its caller has left is
// ended, whether the session answers a probe while the statement of the call
// runs. Two answers in a row say that it runs them side by side, but only while the
// call is in one round trip that is not answered: between two, others slip in
// everywhere, and what a server has collected it may send beside the rest. If the first
// waits for all of the time, that may show the opposite: see recordWait. Nothing is
// learned from a server that needs more than half of the time for a probe, nor from a
// call that runs code of the caller's or has parameters: the server has not begun with
// the statement while they are on their way, however long that takes.
func (s *SessionHandle) learnOrder(c *call, done <-chan struct{}) {
	l, ok := s.conn.(backend.ConcurrentQuerier)
	if !ok || c.callsUserCode || c.hasParams || l.StatementOrder().Known() {
		return
	}
	// The server hears of the caller's deadline as well, a grace later.
	ctx, stop := context.WithTimeout(s.policy.OwnerContext, s.policy.grace()*4/5)
	defer stop()
	began, call := time.Now(), backend.Call{Tx: s.txState().id}
	trip, before := l.RoundTrips()
	for answers := range 2 {
		stream, err := l.QueryConcurrently(ctx, s.policy.probeSQL(), call)
		if err == nil {
			err = drain(stream)
		}
		select {
		case <-done:
			return // the statement has ended meanwhile
		default:
		}
		at, answered := l.RoundTrips()
		switch {
		case at != trip:
			return // the call has gone on
		case err == nil && (answered != before || at == answered):
			return // the session may be free
		case err == nil:
		case ctx.Err() != nil: // that of the owner has no cancel behind it
			if answers == 0 {
				c.probeWait = probeWait{order: l.StatementOrder(), since: began, lasted: time.Since(began)}
			}
			return
		default:
			return // refused, which shows nothing
		}
	}
	l.StatementOrder().SetConcurrent()
}

// probeWait is that of a probe for the statement beside it. It is a lead, not a proof:
// recordWait repeats the probe on the free session.
type probeWait struct {
	order  *backend.StatementOrder // of which it is a lead
	since  time.Time
	lasted time.Duration // zero: there was none
}

// recordWait takes note of a wait for the call's statement, now that the session is
// free, if the statement was what the probe has waited for: a server that is slow,
// which is when statements are cut short, keeps the next probe waiting too. Only a
// control probe that needs less than half of that time shows a difference. It answers
// what that probe has found, which is more than the one before.
//
// INVARIANT: where the probe is SELECT 1 or VALUES 1, no server is taken for one that runs statements one at a time on
// which a statement can have the rows of another. Such a one keeps the results of a session in one queue, from which
// each takes the first: what a statement that was cut has left there is the result of the next, and so on for as
// long as the session lasts.
func (st *cancellation) recordWait(ctx context.Context) (cancel.Outcome, error) {
	began := time.Now()
	if err := st.runControl(ctx); err != nil {
		return cancel.Requested, err
	}
	if time.Since(began) <= st.probeWait.lasted/2 {
		st.probeWait.order.AddWait(st.probeWait.since)
	}
	return cancel.Confirmed, nil
}

// runControl runs a probe that has a value of its own, and looks whether it comes back. The session has answered the
// probe before it: what remains is to run it in the transaction, if that goes on.
func (st *cancellation) runControl(ctx context.Context) error {
	call := backend.Call{}
	if st.tx.openOnServer() && !st.rolledBack {
		call.Tx = st.tx.id
	}
	sql, want := st.s.policy.controlSQL()
	stream, err := st.s.conn.Query(ctx, sql, call)
	if err != nil {
		return err
	}
	defer stream.Close()
	batch, err := nextRows(stream)
	own := want == ""
	switch {
	case err == nil && batch.NumCols() > 0 && batch.NumRows() == 1:
		own = own || strings.TrimSpace(batch.Column(0).ValueStr(0)) == want
	case err != nil && !eof.Reached(err):
		return err
	}
	if !own {
		return errOthersRows
	}
	return drain(stream)
}

var errOthersRows = errors.New("the session answers a probe with the rows of another statement")

// controlSQL is SELECT 1 or VALUES 1 with another value in the place of its 1. Of any other probe it is not known what a
// value is, and want is empty.
func (p *Policy) controlSQL() (sql, want string) {
	verb, ok := strings.CutSuffix(p.probeSQL(), " 1")
	if !ok || strings.ContainsAny(verb, " \t\r\n") {
		return p.probeSQL(), ""
	}
	want = rand.Text()
	return verb + " '" + want + "'", want
}
