package session

import (
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// callMode says what becomes of a call's RPC when the caller's context ends. The caller
// itself returns at once under every mode. A statement is cancelled unless the caller
// has said otherwise. What is brief, and whose late answer can be undone, is waited
// for. A COMMIT is never cut, since nobody would know then whether it is stored.
type callMode uint8

const (
	// Begin, Rollback, savepoints, SetOption and the preparing of a statement are
	// finishWithinBudget; Commit, and what has NoCancel, are finishWhenLeft.
	cancelWhenLeft     callMode = iota // it is ended, and the statement cancelled on the server
	cancelAfterBudget                  // the same, when the cancel budget is over: an ingestion, and see changeMode
	finishWithinBudget                 // it goes on in the background, for the cancel budget at most
	finishWhenLeft                     // it goes on in the background until it has ended
)

// cancels reports whether a call that its caller has left is cancelled in the end.
func (m callMode) cancels() bool { return m <= cancelAfterBudget }

// readsOn reports whether rows that their reader has left are read on behind it. Of a statement that has time to end by itself
// they are: it has ended when they come, or does so before the last of them.
func (m callMode) readsOn() bool { return m == finishWhenLeft || m == cancelAfterBudget }

// changeMode is the mode of a statement. In a transaction of a server that runs statements in whatever is open, a
// ROLLBACK ends no change that is several to it (see checkFree). An update of that kind has the cancel budget for
// its answer, behind which a ROLLBACK is safe. Without one the rows that the transaction has changed would be
// kept from everybody until the server forgets the session. A server that confirms cancels is asked at once.
//
// Of another it is that of a read.
func (s *SessionHandle) changeMode(opts QueryOptions, script sqlscan.Script, params parameters) callMode {
	several := params.severalRows() || !script.Atomic()
	if several && opts.asUpdate && s.txState().phase == txOpen && s.acceptsUnknownTx() && !s.policy.confirmsCancels.Load() {
		return cancelAfterBudget
	}
	return s.readMode()
}

// readMode is the mode of what only reads, be it a catalogue call or a ping.
//
// SwanLake has no request to cancel, and goes on when an RPC is ended, so that nothing is gained by that: whatever it is sent
// has the cancel budget there. With its answer the connection is as good as before, whose session would stay on the server for
// a quarter of an hour otherwise, of which it takes a hundred.
func (s *SessionHandle) readMode() callMode {
	if preparing(s.policy.preparing.Load()) == runsToPrepare && !s.policy.confirmsCancels.Load() {
		return cancelAfterBudget
	}
	return cancelWhenLeft
}

// leftBefore is an error where the caller has left a step that goes on without it (cancelAfterBudget) before what changes
// something is sent. All that was sent is answered.
func (c *call) leftBefore() error {
	select {
	case <-c.callerGone:
		if c.mode == cancelAfterBudget {
			return &backend.Error{Stage: backend.StageArgument, Fault: backend.FaultContext, Unsent: true, Err: c.cause()}
		}
	default:
	}
	return nil
}
