package adbcconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
)

// Begin is part of backend.Conn.
func (c *GenericConn) Begin(ctx context.Context) (backend.TxID, error) {
	return c.BeginProven(ctx, func(context.Context) error { return nil })
}

// BeginProven is part of backend.TxWatcher. ADBC's transactions have no names: the id is
// this connection's own. A Flight SQL driver is watched from here on: its proofs
// (generic_proofs.go) are prepared before prove recognises the session, so that they are
// of that one, or prove fails. A server without prepared statements is not watched.
func (c *GenericConn) BeginProven(ctx context.Context, prove func(context.Context) error) (backend.TxID, error) {
	t, err := c.begin(ctx, "Begin")
	if err != nil {
		return "", err
	}
	defer t.end()
	dropProofs := func() { _ = c.endProofs(errSessionReplaced) } // why it has not begun is what counts
	err = doInDriver(t, backend.StageExecute, func(ctx context.Context) error {
		err := c.beginProofs(ctx)
		if err != nil {
			dropProofs()
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if err := prove(ctx); err != nil {
		_ = doInDriver(t, backend.StageClose, func(context.Context) error { dropProofs(); return nil }) // or the next beginProofs does
		return "", err
	}
	err = doInDriver(t, backend.StageExecute, func(ctx context.Context) error {
		err := c.endLeftReads(ctx)
		if err == nil {
			err = c.autocommit(false)
		}
		if c.autocommitOff, c.cutMidway = err == nil, false; err != nil {
			dropProofs()
		}
		return err
	})
	if err != nil {
		return "", err
	}
	c.failedInTx.Store(false)
	id := backend.TxID(fmt.Sprintf("adbc-%d", c.lastTx.Add(1)))
	c.tx.Store(&id)
	return id, nil
}

// autocommit switches the driver's autocommit. The caller holds driverLock. Off
// begins a transaction; on ends the one that the driver has begun by itself, in
// which nothing was done.
func (c *GenericConn) autocommit(on bool) error {
	options, ok := c.cn.(adbc.PostInitOptions)
	if !ok {
		return adbc.Error{Code: adbc.StatusNotImplemented, Msg: "the driver's connections have no options"}
	}
	value := adbc.OptionValueDisabled
	if on {
		value = adbc.OptionValueEnabled
	}
	return withStatusOfText(options.SetOption(adbc.OptionKeyAutoCommit, value))
}

// withStatusOfText gives a refusal of the server's, which the Flight SQL driver tells as an I/O error with the status in its text where it
// switches autocommit, the form that its other errors have.
func withStatusOfText(err error) error {
	e, _ := adbcError(err)
	text, found := strings.CutPrefix(e.Msg, "[Flight SQL] failed to update autocommit: rpc error: code = ")
	name, msg, _ := strings.Cut(text, " desc = ")
	for code := codes.Canceled; found && code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return adbc.Error{
				Msg: fmt.Sprintf("[FlightSQL] %s (%s; SetAutocommit)", msg, code), VendorCode: int32(code), //nolint:gosec // codes are small
				Code: adbcStatusOf(code),
			}
		}
	}
	return err
}

var (
	errUnknownTx   = errors.New("the transaction is not open on this connection")
	errTxEndFailed = errors.New("the driver's connection does not go on after a failed commit or rollback")
)

// EndTx is part of backend.Conn. The driver begins another transaction right
// away, which is ended with it; where either fails, the connection is given
// up, since drivers stay in a transaction then that is none.
//
// The order is: compare the proof, where it is a commit; end the transaction;
// close the proofs, which shows in which session that was; switch autocommit
// on. What each failure means: before the commit, nothing was committed; a
// refusal, likewise; a replaced session after it, or an answer that says
// neither, is an unknown outcome. A commit that succeeded stays a success
// although the connection is given up.
func (c *GenericConn) EndTx(ctx context.Context, tx backend.TxID, commit bool) error {
	t, err := c.begin(ctx, "EndTx")
	if err != nil {
		return err
	}
	defer t.end()
	if open := c.tx.Load(); open == nil || *open != tx {
		return c.newError(t.op, backend.StageExecute, backend.FaultStatement, errUnknownTx)
	}
	if commit {
		if err := cmp.Or(t.checkProof(), t.checkGoesOn()); err != nil {
			return err // it is open still, and can be rolled back
		}
	}
	c.tx.Store(nil)
	err = doInDriver(t, backend.StageExecute, func(ctx context.Context) error { return c.endOnDriver(ctx, commit) })
	if err == nil {
		return nil
	}
	c.markLost(fmt.Errorf("%w: %w", errTxEndFailed, err))
	switch {
	case endedBeforeNextBegin(err):
		return nil
	case commit && backend.FaultIn(err).KeepsConn() && !isRefusal(err):
		return c.newError(t.op, backend.StageExecute, backend.FaultUnknown, err) // it may have come before or after the commit
	default:
		return err
	}
}

// checkProof proves, before a commit, that the session is still the one of
// the transaction.
func (t *driverCall) checkProof() error {
	err := doInDriver(t, backend.StageProbe, func(context.Context) error { return t.conn.rotateProof(nil) })
	var e *backend.Error
	if errors.As(err, &e) {
		e.Unsent = true // the commit was not
	}
	return err
}

// endOnDriver commits or rolls back, and proves that the session is the one in which
// the transaction began. The caller holds driverLock.
func (c *GenericConn) endOnDriver(ctx context.Context, commit bool) error {
	end := c.cn.Rollback
	if commit {
		end = c.cn.Commit
	}
	err := end(ctx)
	c.autocommitOff = !endedBeforeNextBegin(err)
	switch {
	case err == nil, endedBeforeNextBegin(err):
		if replacedErr := c.endProofs(errTxEndUnknown); replacedErr != nil {
			return replacedErr
		}
	case isRefusal(err):
		if replacedErr := c.endProofs(errSessionReplaced); errors.Is(replacedErr, errSessionReplaced) {
			return replacedErr
		}
	default:
		return err // of unknown outcome, wherever it was
	}
	if err == nil {
		c.zoneAfter(commit)
		err := c.autocommit(true)
		if c.autocommitOff = err != nil; c.autocommitOff {
			c.markLost(fmt.Errorf("%w: %w", errTxEndFailed, err)) // the end itself stands
		}
	}
	return err
}

// rollBackBeforeClose rolls back the open transaction of a Flight SQL driver before
// its connection is closed, since some servers keep the sessions of closed
// connections. Other drivers' databases end their transactions by themselves. It sends
// nothing if the transport is lost, because the driver would dial again, nor while a change may run on that is
// several statements to the server: behind a rollback it would store what is left of it. firstProof
// proves that the session is still the transaction's, whose id may be another
// client's in another session. The caller holds driverLock.
func (c *GenericConn) rollBackBeforeClose() {
	if !c.isFlightSQL || !c.autocommitOff || c.cutMidway || lostWithTransport(c.Lost()) {
		return
	}
	if first := c.firstProof; first != nil {
		if c.firstProof = nil; first.Close() != nil {
			return
		}
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.life), c.cfg.CloseTimeout/2)
	defer stop()
	if c.cn.Rollback(ctx) == nil {
		_ = c.autocommit(true) // the driver has begun another one
	}
}

// noteCut keeps that what call has executed may run on. The caller holds driverLock.
func (c *GenericConn) noteCut(ctx context.Context, call backend.Call, err error) {
	e, _ := adbcError(err)
	cut := ctx.Err() != nil || e.Code == adbc.StatusTimeout || e.Code == adbc.StatusCancelled // by a limit of the driver's own
	c.cutMidway = c.cutMidway || call.ChangesSeveral && cut
}

// endedBeforeNextBegin recognises the error of the transaction that the Flight SQL driver
// begins after the end of the last: that one has ended well.
func endedBeforeNextBegin(err error) bool {
	e, ok := adbcError(err)
	if !ok {
		return false
	}
	_, flight := statusOf(e)
	return flight && strings.Contains(e.Msg, "; BeginTransaction")
}

// isRefusal recognises an error which says that the server has not ended the
// transaction. Flight SQL drivers name the call that the server has refused in
// the text; of other drivers only a violated constraint is believed, an SQLSTATE of a
// transaction that was rolled back, and what DuckDB says of one.
func isRefusal(err error) bool {
	e, ok := adbcError(err)
	if !ok {
		return false
	}
	if _, flight := statusOf(e); flight {
		return faultOf(e).KeepsConn() && (strings.Contains(e.Msg, "; Commit") || strings.Contains(e.Msg, "; Rollback"))
	}
	state := stateOf(e)
	return e.Code == adbc.StatusIntegrity || isStatements(state) && strings.HasPrefix(state, "40") || commitFailed(e)
}

// RejectsUnknownTx is part of backend.Conn. What server a Flight SQL driver speaks to is
// not known; the databases of others know their transactions.
func (c *GenericConn) RejectsUnknownTx(ctx context.Context) (bool, error) {
	t, err := c.begin(ctx, "RejectsUnknownTx")
	if err != nil {
		return false, err
	}
	t.end()
	return !c.isFlightSQL, nil
}

// Savepoint is part of backend.Conn.
func (c *GenericConn) Savepoint(ctx context.Context, _ backend.TxID, _ string) (backend.SavepointID, error) {
	return "", c.unsupportedError(ctx, "Savepoint", "ADBC has no savepoints")
}

// EndSavepoint is part of backend.Conn.
func (c *GenericConn) EndSavepoint(ctx context.Context, _ backend.SavepointID, _ backend.SavepointEnd) error {
	return c.unsupportedError(ctx, "EndSavepoint", "ADBC has no savepoints")
}

// lostWithTransport reports whether a connection was lost with its transport.
// Other reasons leave a transport on which a rollback can still be sent.
func lostWithTransport(reason error) bool {
	e, ok := adbcError(reason)
	return ok && faultOf(e) == backend.FaultTransport
}
