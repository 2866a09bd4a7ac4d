package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/backoff"
)

// cancellation is the cancel of one call, run in the background. The steps of its chain
// run one after the other and share its fields. tx is the transaction of the call, as
// it was when the call ended.
//
// INVARIANT: after the chain the fields are read only if its report is safe. A step
// that was abandoned may still be running and write them.
type cancellation struct {
	s    *SessionHandle
	call *call
	tx   transaction

	// keepTx says that the transaction goes on if the server lets it: the call
	// has not aborted it, see recordTxOutcome.
	keepTx bool

	// rolledBack says that the transaction has been ended on the server.
	rolledBack bool

	// inTurn says that the session has answered a statement that was sent behind the call's.
	inTurn bool

	// serial says that the session runs this call's statement to its end before it answers another.
	// It is taken at the start and decides which steps there are. finalProbe looks
	// again, since its own control may be the last wait that was needed.
	serial bool

	// leftTx says that the session has been in an aborted transaction that the server began for the statement,
	// and has left it.
	leftTx bool

	// answered says that the session has answered, whatever else runs in it. It may be read at any time.
	answered atomic.Bool

	// told says that the server has said that the statement has ended. It may be read at any time.
	told atomic.Bool

	// hasCancel says that the server has a request to cancel, whatever it has answered. Where nothing of the
	// transaction can be stored, it may have one.
	hasCancel bool

	// probeWait is how a probe has waited for this call's statement, if one has.
	probeWait probeWait

	// refusal is why the server did not let the transaction go on. It is told with
	// ErrTxAborted to those who go on with it.
	refusal error
}

// startCancel finds out, in the background, whether the server has stopped
// working on the call, and makes it stop.
//
// INVARIANT: from here to finishCancel the session takes no statement but the
// probe, and a session whose chain is not Safe takes none ever again.
//
// A transaction is kept only on a server that refuses unknown ids. Another would answer
// a probe in a transaction that it has lost, and the next COMMIT too.
func (s *SessionHandle) startCancel(c *call, tx transaction) {
	s.markEnding()
	c.query.markCut()
	st := &cancellation{
		s: s, call: c, tx: tx, keepTx: tx.phase == txOpen && !s.acceptsUnknownTx(),
		serial: c.answerShowsEnd(), probeWait: c.probeWait,
	}
	s.policy.goInBackground(func() {
		s.runTraced(c, func(ctx context.Context) cancel.Report {
			s.awaitArrival(c)
			report := st.chain().Run(ctx)
			if f := s.policy.Observe.Cancelled; f != nil {
				f(c.op, report)
			}
			s.finishCancel(st, report)
			return report
		})
	})
}

// awaitArrival gives the statement of a call that was cut before any row of it came
// the time to come to its turn, on a server that runs statements in whatever transaction
// its session is in: one that a rollback or probe overtakes there is stored by itself, or
// runs in the next transaction. While a call is in its first RPC, the time since its step
// began counts; of others the last RPC may have been sent just now.
func (s *SessionHandle) awaitArrival(c *call) {
	if !s.policy.ignoresTxIDs.Load() || c.hasResult() {
		return
	}
	pause := s.policy.grace()
	if first := c.operation.Name() == nil && !c.hasParams && !c.callsUserCode; first {
		pause -= time.Since(c.startedAt())
	}
	_ = backoff.Sleep(s.policy.OwnerContext, pause)
}

// chain is every way to stop a call whose RPC has ended on this side. Each
// request to the server is followed by a probe, so that the next one is sent
// only when the last has not helped.
//
// INVARIANT: a probe confirms by itself only where the sessions of the server
// run one statement at a time, and the call is one to it: see answerShowsEnd. Elsewhere the
// server's own word is needed.
//
// The end of the RPC is the first request of all, and was made before. It is worth
// waiting for where a probe can show that it has worked: a server that watches the
// stream stops the statement by that alone. A rollback that has to be answered is not
// sent for so short a time: see maybeLeft. The budget bounds the chain whatever the
// steps take; with none of them confirmed the connection is closed.
func (st *cancellation) chain() cancel.Chain {
	grace, budget := st.s.policy.grace(), st.s.policy.budget()
	var steps []cancel.Step
	needsAnswer := st.tx.openOnServer() && st.s.mayHaveStored(st.tx)
	requests := st.s.conn.CancelSteps(st.call.operation)
	if st.serial && !needsAnswer {
		st.hasCancel = len(requests) > 0
		steps = append(steps, cancel.Step{Name: "rpc", Timeout: grace, Do: st.probe})
	}
	toAnswer := grace
	if needsAnswer {
		toAnswer = budget
	}
	for _, request := range requests {
		steps = append(steps, cancel.Step{Name: request.Name, Timeout: request.Timeout + toAnswer, Do: func(ctx context.Context) (cancel.Outcome, error) {
			return st.requestCancel(ctx, request, toAnswer)
		}})
	}
	steps = append(steps, cancel.Step{Name: "probe", Timeout: budget, Do: st.finalProbe})
	return cancel.Chain{Steps: steps, Budget: budget}
}

// requestCancel makes one request to the server, and again while it answers that it is
// about to stop the statement. An unanswered request makes the whole report unsafe: it
// may reach the server later, and stop a statement of the next borrower. Even after
// "cancelled" a probe has to show that the session is free.
//
// A rollback that has to be answered has toAnswer, however far the server is, and is sent once the session has answered
// where the server has only taken the request: so the next request need not wait for so long.
//
// INVARIANT: no word of a server's ends an ingestion. GizmoSQL does not count it among the statements of its session, and
// confirms the cancel of another that it has failed to plan, or has not executed yet, while the ingestion goes on, in a
// transaction of its own in which the next borrower's statements would run.
func (st *cancellation) requestCancel(ctx context.Context, request cancel.Step, toAnswer time.Duration) (cancel.Outcome, error) {
	requestCtx, stop := context.WithTimeout(ctx, request.Timeout)
	defer stop()
	for {
		out, err := request.Do(requestCtx)
		told := out == cancel.Confirmed && st.call.op != opIngest
		if told {
			st.told.Store(true)
			st.s.policy.confirmsCancels.Store(true)
		}
		st.hasCancel = st.hasCancel || out != cancel.Unsupported
		switch {
		case out == cancel.Failed && err != nil && requestCtx.Err() != nil:
			return cancel.Unanswered, err
		case out == cancel.Confirmed && !told && !st.serial:
			return cancel.Requested, errMayStillRun
		case out == cancel.Confirmed, out == cancel.Requested && st.serial:
			if out == cancel.Requested && toAnswer > st.s.policy.grace() {
				if err := st.comeToTurn(ctx, st.s.policy.grace()); err != nil {
					return cancel.Requested, err
				}
			}
			probeCtx, stop := context.WithTimeout(ctx, toAnswer)
			defer stop()
			return st.probe(probeCtx)
		case out != cancel.Requested:
			return out, err
		}
		if backoff.Sleep(requestCtx, cancelRetryPause) != nil {
			return cancel.Requested, nil
		}
	}
}

// cancelRetryPause is how long a server that is about to stop a statement is left to.
const cancelRetryPause = 50 * time.Millisecond

// finalProbe waits for the session as long as the budget lasts. Where statements run
// side by side its answer shows nothing, unless the server has said before that this one
// has ended, but it rolls a transaction back. It is also
// where a wait of the earlier probe is confirmed, for the sake of later calls.
func (st *cancellation) finalProbe(ctx context.Context) (cancel.Outcome, error) {
	out, err := st.probe(ctx)
	if out == cancel.Confirmed && st.probeWait.lasted > 0 {
		out, err = st.recordWait(ctx)
	}
	if out == cancel.Confirmed && !st.told.Load() && !st.call.answerShowsEnd() {
		return cancel.Requested, errMayStillRun
	}
	return out, err
}

var errMayStillRun = errors.New("the session may answer while the statement still runs, and the server has not said that this one has ended")

// probe confirms when the session answers. Cancelling a probe cannot stop another
// statement. That it failed leaves it open whether the statement has ended, so the
// chain goes on.
func (st *cancellation) probe(ctx context.Context) (cancel.Outcome, error) {
	if err := st.checkFree(ctx); err != nil {
		return cancel.Requested, err
	}
	return cancel.Confirmed, nil
}

// mayGoOn reports whether the call changes something, and is several to a server that runs statements in whatever is
// open, and has not said that it has ended: what the session is sent may run in the middle of it.
func (st *cancellation) mayGoOn() bool {
	c := st.call
	return !st.told.Load() && c.mayBeInterleaved() && c.mayChange() && st.s.acceptsUnknownTx()
}

// finishCancel takes the outcome of a chain. The session is free again, or lost, when
// it returns, and calls that wait go on. No caller waits for the cleaning that may
// follow.
func (s *SessionHandle) finishCancel(st *cancellation, report cancel.Report) {
	mayBeInTx := report.Safe() && !st.leftTx && st.mayLeaveTx()
	goesOn := st.mayGoOn() && st.call.hasParams // its rows would run under other settings
	if mayBeInTx || !report.Safe() && st.answered.Load() && !goesOn {
		s.cleanBeforeLoss(st.mayLeaveTx())
	}
	if !report.Safe() && len(s.conn.CancelSteps(st.call.operation)) == 0 {
		s.policy.lostUncancelled.Store(true)
	}
	s.mu.Lock()
	switch {
	case !report.Safe():
		s.mu.lost = fmt.Errorf("%w: a cancelled statement may still run: %s", backend.ErrSessionLost, report)
	case mayBeInTx:
		s.mu.lost = fmt.Errorf("%w: %s was cut, which servers run as several statements: the transaction of those may be open", backend.ErrSessionLost, st.call.op)
	case st.rolledBack:
		s.mu.tx.markRolledBack(st.rollbackReason())
	}
	s.mu.Unlock()
	s.becomeIdle(nil)
}

// mayLeaveTx reports whether the call was cut while the server may have run a change as several statements, outside of
// transactions, or where it may have left the handle's. It begins a transaction of its own for them, and ends it behind
// the last: a server that is cut in between may leave it open and sound, in which later statements would
// run, told as stored, without a COMMIT. A probe is answered there as elsewhere.
func (st *cancellation) mayLeaveTx() bool {
	c := st.call
	outside := st.tx.phase == txNone || st.s.acceptsUnknownTx()
	return outside && c.stepBegun.Load() && c.script.MayLeaveTx()
}

// rollbackReason is the error that later statements of the transaction report.
func (st *cancellation) rollbackReason() error {
	if st.refusal != nil {
		return fmt.Errorf("%s was ended early, and the server does not let the transaction go on: %w", st.call.op, st.refusal)
	}
	return fmt.Errorf("%s was ended before the server had answered: %w", st.call.op, errReleasedEarly)
}
