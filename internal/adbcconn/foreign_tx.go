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
		if err := c.autocommit(false); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, c.mark(ctx)
	}, nil)
	if err != nil {
		return "", err
	}
	id := session.TxID(fmt.Sprintf("adbc-%d", c.lastTx.Add(1)))
	c.tx.Store(&id)
	return id, nil
}

// mark prepares the marker of a transaction that has just begun. It is called
// inside the turn.
func (c *Foreign) mark(ctx context.Context) error {
	if !c.flight {
		return nil
	}
	stmt, err := c.statement(c.cfg.ProbeSQL, session.Call{})
	if err == nil {
		if err = stmt.Prepare(ctx); err == nil {
			c.marker = stmt
			return nil
		}
		_ = stmt.Close()
	}
	if e, ok := adbcError(err); ok && faultOf(e) == session.FaultUnsupported {
		return nil // nothing tells then
	}
	c.lose(fmt.Errorf("%w: %w", errWedged, err)) // the transaction stays begun
	return err
}

// unmark frees the marker. It is called inside the turn.
func (c *Foreign) unmark() {
	if c.marker != nil {
		_ = c.marker.Close() // it has gone with its session, if it fails
		c.marker = nil
	}
}

// errReplaced says that the driver has dialled again, and where to has never
// heard of the transaction.
var errReplaced = fmt.Errorf("%w: the driver has made another connection, and the transaction is gone with the last", session.ErrSessionLost)

// checkMarker proves before a commit that the server's session is still the
// one of the transaction.
func (t *task) checkMarker() error {
	c := t.conn
	if c.marker == nil {
		return nil
	}
	_, err := enter(t, session.StageProbe, func(ctx context.Context) (struct{}, error) {
		rows, _, err := c.marker.ExecuteQuery(ctx)
		if err != nil {
			return struct{}{}, err
		}
		defer rows.Release()
		for rows.Next() {
			continue
		}
		return struct{}{}, rows.Err()
	}, nil)
	if session.FaultIn(err) != session.FaultStatement {
		return err
	}
	c.lose(errReplaced)
	e := c.error(t.op, session.StageProbe, session.FaultSession, fmt.Errorf("%w (%w)", errReplaced, err))
	e.Unsent = true // the commit was not
	return e
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
	c.tx.Store(nil)
	end := c.cn.Rollback
	if commit {
		if err := t.checkMarker(); err != nil {
			return err
		}
		end = c.cn.Commit
	}
	_, err = enter(t, session.StageExecute, func(ctx context.Context) (struct{}, error) {
		defer c.unmark()
		if err := end(ctx); err != nil {
			return struct{}{}, err
		}
		if err := c.autocommit(true); err != nil {
			c.lose(fmt.Errorf("%w: %w", errWedged, err)) // the end itself stands
		}
		return struct{}{}, nil
	}, nil)
	if err == nil {
		return nil
	}
	c.lose(fmt.Errorf("%w: %w", errWedged, err))
	if hasEnded(err) {
		return nil
	}
	if commit && session.FaultIn(err).KeepsConn() && !isRefusal(err) {
		e := c.error(t.op, session.StageExecute, session.FaultUnknown, err)
		return e // it may have come before or after the commit
	}
	return err
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

// isRefusal recognises an error which says that the server has not committed.
func isRefusal(err error) bool {
	e, ok := adbcError(err)
	if !ok {
		return false
	}
	if _, flight := statusOf(e); flight {
		return strings.Contains(e.Msg, "; Commit")
	}
	return e.Code == adbc.StatusIntegrity
}

// TrustsTxIDs is part of session.Conn: the connection itself knows its
// transaction, and asks the marker before a commit.
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
