package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/session"
)

// Begin is part of session.Conn. ADBC's transactions have no names: the id is
// this connection's own.
func (c *Foreign) Begin(ctx context.Context) (session.TxID, error) {
	t, err := c.begin(ctx, "Begin")
	if err != nil {
		return "", err
	}
	defer t.end()
	_, err = enter(t, session.StageExecute, func(ctx context.Context) (struct{}, error) {
		err := c.watch(ctx)
		if err == nil {
			err = c.autocommit(false)
		}
		if err != nil {
			_ = c.unwatch(errReplaced) // why it has not begun is what counts
		}
		c.manual = err == nil
		return struct{}{}, err
	}, nil)
	if err != nil {
		return "", err
	}
	id := session.TxID(fmt.Sprintf("adbc-%d", c.lastTx.Add(1)))
	c.tx.Store(&id)
	return id, nil
}

// autocommit is called inside the turn.
func (c *Foreign) autocommit(on bool) error {
	options, ok := c.cn.(adbc.PostInitOptions)
	if !ok {
		return adbc.Error{Code: adbc.StatusNotImplemented, Msg: "the driver's connections have no options"}
	}
	value := adbc.OptionValueDisabled
	if on {
		value = adbc.OptionValueEnabled
	}
	return options.SetOption(adbc.OptionKeyAutoCommit, value)
}

var (
	errUnknownTx = errors.New("the transaction is not open on this connection")
	errWedged    = errors.New("the driver's connection does not go on after a failed commit or rollback")
)

// EndTx is part of session.Conn. The driver begins another transaction right
// away, which is ended with it; where either fails, the connection is given
// up, since drivers stay in a transaction then that is none.
func (c *Foreign) EndTx(ctx context.Context, tx session.TxID, commit bool) error {
	t, err := c.begin(ctx, "EndTx")
	if err != nil {
		return err
	}
	defer t.end()
	if open := c.tx.Load(); open == nil || *open != tx {
		return c.error(t.op, session.StageExecute, session.FaultStatement, errUnknownTx)
	}
	if commit {
		if err := t.checkWitness(); err != nil {
			return err // it is open still, and can be rolled back
		}
	}
	c.tx.Store(nil)
	_, err = enter(t, session.StageExecute, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.end(ctx, commit)
	}, nil)
	if err == nil {
		return nil
	}
	c.lose(fmt.Errorf("%w: %w", errWedged, err))
	switch {
	case hasEnded(err):
		return nil
	case commit && session.FaultIn(err).KeepsConn() && !isRefusal(err):
		return c.error(t.op, session.StageExecute, session.FaultUnknown, err) // it may have come before or after the commit
	default:
		return err
	}
}

// checkWitness proves, before a commit, that the session is still the one of
// the transaction.
func (t *task) checkWitness() error {
	_, err := enter(t, session.StageProbe, func(context.Context) (struct{}, error) {
		return struct{}{}, t.conn.relieve(nil)
	}, nil)
	var e *session.Error
	if errors.As(err, &e) {
		e.Unsent = true // the commit was not
	}
	return err
}

// end commits or rolls back, and proves that this was where the transaction
// began. It is called inside the turn.
func (c *Foreign) end(ctx context.Context, commit bool) error {
	end := c.cn.Rollback
	if commit {
		end = c.cn.Commit
	}
	err := end(ctx)
	c.manual = !hasEnded(err)
	switch {
	case err == nil, hasEnded(err):
		if gone := c.unwatch(errEndUnknown); gone != nil {
			return gone
		}
	case isRefusal(err):
		if gone := c.unwatch(errReplaced); errors.Is(gone, errReplaced) {
			return gone
		}
	default:
		return err // of unknown outcome, wherever it was
	}
	if err == nil {
		err := c.autocommit(true)
		if c.manual = err != nil; c.manual {
			c.lose(fmt.Errorf("%w: %w", errWedged, err)) // the end itself stands
		}
	}
	return err
}

// rollOut ends what a Flight SQL driver has open, before its connection is closed:
// there are servers that keep the sessions of closed connections, and their
// transactions. Other drivers' databases end them by themselves. Where the
// transport has gone nothing is sent: the driver would dial again for it. The keeper
// proves that the session is still that of the transaction, whose id may be another
// client's elsewhere. It is called inside the turn.
func (c *Foreign) rollOut() {
	if !c.flight || !c.manual || byTransport(c.Lost()) {
		return
	}
	if keeper := c.keeper; keeper != nil {
		if c.keeper = nil; keeper.Close() != nil {
			return
		}
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.life), c.cfg.CloseTimeout/2)
	defer stop()
	if c.cn.Rollback(ctx) == nil {
		_ = c.autocommit(true) // the driver has begun another one
	}
}

// hasEnded recognises the error of the transaction that the Flight SQL driver
// begins after the end of the last: that one has ended well.
func hasEnded(err error) bool {
	e, ok := adbcError(err)
	if !ok {
		return false
	}
	_, flight := statusOf(e)
	return flight && strings.Contains(e.Msg, "; BeginTransaction")
}

// isRefusal recognises an error which says that the server has not ended the
// transaction.
func isRefusal(err error) bool {
	e, ok := adbcError(err)
	if !ok {
		return false
	}
	if _, flight := statusOf(e); flight {
		return faultOf(e).KeepsConn() && (strings.Contains(e.Msg, "; Commit") || strings.Contains(e.Msg, "; Rollback"))
	}
	return e.Code == adbc.StatusIntegrity
}

// TrustsTxIDs is part of session.Conn: the connection itself knows its
// transaction, and watches over it.
func (c *Foreign) TrustsTxIDs(ctx context.Context) (bool, error) {
	t, err := c.begin(ctx, "TrustsTxIDs")
	if err != nil {
		return false, err
	}
	t.end()
	return true, nil
}

// Savepoint is part of session.Conn.
func (c *Foreign) Savepoint(ctx context.Context, _ session.TxID, _ string) (session.SavepointID, error) {
	return "", c.refused(ctx, "Savepoint", "ADBC has no savepoints")
}

// EndSavepoint is part of session.Conn.
func (c *Foreign) EndSavepoint(ctx context.Context, _ session.SavepointID, _ session.SavepointEnd) error {
	return c.refused(ctx, "EndSavepoint", "ADBC has no savepoints")
}

// byTransport reports whether a connection was lost with its transport.
func byTransport(reason error) bool {
	e, ok := adbcError(reason)
	return ok && faultOf(e) == session.FaultTransport
}
