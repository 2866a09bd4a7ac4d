package session

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// meaningOf says what the answer to an RPC of a backend's tells of a change of the
// server's state that it was to make.
//
// INVARIANT: what is not known costs the session, or is taken for done where the
// session is made clean.
//
// A request that was not sent, or that the backend or the server has turned away before
// it looked at it, has done nothing. A fault that does not leave the connection as it
// was says nothing of the change: it may have come after it. What is left is a status
// of the server, or of a proxy, and package effect judges it.
func meaningOf(change effect.Change, err error) effect.Meaning {
	var e *backend.Error
	fault := backend.FaultIn(err)
	switch {
	case err == nil:
		return effect.Done
	case errors.As(err, &e) && e.Unsent, fault == backend.FaultUsage, fault == backend.FaultAuth && !effect.IsPage(err):
		return effect.Refused
	case !fault.KeepsConn():
		return effect.NotKnown
	default:
		return effect.Of(change, err)
	}
}

// turnedDown reports whether the server has done nothing, since it does not have the call or
// the call is wrong. A proxy may say the first in place of an answer to what was done.
func turnedDown(err error) bool {
	fault := backend.FaultIn(err)
	return (fault == backend.FaultUsage || fault == backend.FaultUnsupported) && meaningOf(effect.Statement, err) == effect.Refused
}

// changesSeveral reports whether the call changes several things, by the statements of a text, the
// rows of its parameters or those of an ingestion.
func (c *call) changesSeveral() bool {
	return c.statement && c.mayChange() && (c.manyExecutions && !c.oneBatch.Load() || !c.script.Atomic())
}

// mayBeHalfDone reports whether some of what a call that has failed was to change may be done,
// whatever the server says of the rest. Nothing is while it is prepared, for which a text is one
// statement. A change whose rows were asked for may be done whatever the server lacks to give them.
func (c *call) mayBeHalfDone(e *backend.Error) bool {
	return e.Stage > backend.StagePrepare && c.changesSeveral() || e.Stage == backend.StageFetch && c.statement && c.mayChange()
}

// failedWhole reports whether e is the server's answer to a single statement that was
// sent once, so that the failure of it is that of everything the call was to do.
func (c *call) failedWhole(e *backend.Error) bool {
	return e.Fault == backend.FaultStatement && !c.manyExecutions && c.script.Atomic() && !c.resultFailed(e) && !c.mayLackRows(e)
}

// mayLackRows reports whether e may say no more than that the text has no rows, for which it was sent: there
// are servers that execute it first, and refuse it then (ClickHouse), or when they execute it again (kamu).
func (c *call) mayLackRows(e *backend.Error) bool {
	return c.askedForRows && c.script.Rows() != sqlscan.RowsSome &&
		(e.Stage == backend.StageFetch || e.Stage == backend.StageExecute && status.Code(e.Err) == codes.InvalidArgument)
}

// resultFailed reports whether e is about a result that the server has begun to give, does not know any
// more, or fails to give by no word of a refusal: its statement may have been executed, as servers do that run
// it before they are asked for rows.
func (c *call) resultFailed(e *backend.Error) bool {
	unexplained := meaningOf(effect.Statement, e) == effect.NotKnown && meaningOf(effect.Commit, e) == effect.NotKnown // nor by one of a conflict
	return e.Stage == backend.StageFetch && (c.delivered || status.Code(e.Err) == codes.NotFound || unexplained)
}

// mayBePartlyStored reports whether the server has refused the call when some of it was stored, for
// all that is known: see backend.Error.Partial.
func (c *call) mayBePartlyStored(e *backend.Error) bool {
	if !c.statement || !c.mayChange() || c.s.txState().phase != txNone {
		return false
	}
	switch e.Fault {
	case backend.FaultStatement:
		return !c.failedWhole(e) || c.mayBeTriedAgain(e)
	case backend.FaultAuth, backend.FaultUnsupported, backend.FaultLimit:
		return !e.Unsent && c.stepBegun.Load() && c.mayBeHalfDone(e)
	default:
		return false
	}
}

// mayBeTriedAgain reports whether the server may have made an INSERT at a second attempt, when it had failed with e at the
// first. SwanLake, which counts its handles, loads its parameters by DuckDB's appender, which flushes what it has once more
// as it is destroyed: after a conflict, or a failure of the storage, that may succeed.
func (c *call) mayBeTriedAgain(e *backend.Error) bool {
	return c.loadsInBulk.Load() && e.Stage > backend.StagePrepare && (backend.IsConflict(e) || meaningOf(effect.Statement, e) == effect.NotKnown)
}

// notBegun is the failure of a call in which a transaction was to begin. One that
// may be open although the answer does not give its id would take in what the
// session is sent later: then the session is lost.
func notBegun(err error) error {
	if meaningOf(effect.Begin, err) == effect.Refused {
		return err
	}
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultSession, Err: fmt.Errorf("%w: a transaction may be open of which nothing is known: %w", backend.ErrSessionLost, err)}
}
