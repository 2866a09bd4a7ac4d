package session

import (
	"context"
	"errors"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// preparing is what a server does with a query that it is to prepare.
type preparing int32

const (
	preparingUnknown preparing = iota
	preparesOnly
	runsToPrepare // to tell its schema, with NULLs for its parameters, as SwanLake does
)

// preparingWords are what a query fails with that is prepared to find that out, if it is run.
const preparingWords = "flightpool asks whether this is run"

// learnPreparing finds out what the server does with a query that it is to prepare, once for all sessions. A server that
// executes no query twice is not asked, nor one in a transaction, which the failure of the question would abort.
func (s *SessionHandle) learnPreparing(ctx context.Context) (preparing, error) {
	if known := preparing(s.policy.preparing.Load()); known != preparingUnknown {
		return known, nil
	}
	server, mayRepeat := s.conn.(backend.QueryRepeater)
	if !mayRepeat {
		return preparesOnly, nil
	}
	if _, err := s.rollBackStrayTx(ctx); err != nil {
		return preparingUnknown, err
	}
	repeats, err := server.RepeatsQueries(ctx)
	switch {
	case err != nil:
		return preparingUnknown, unlessRefused(notBegun(err))
	case !repeats:
		return preparesOnly, nil
	case s.txState().phase != txNone:
		return preparingUnknown, nil
	}
	stmt, err := s.prepare(ctx, "SELECT error('"+preparingWords+"')", nil, backend.Call{})
	learned := preparesOnly
	switch {
	case err == nil:
		err = stmt.Close(ctx)
	case backend.FaultIn(err).KeepsConn() && !effect.IsPage(err) && strings.Contains(err.Error(), preparingWords):
		learned, err = runsToPrepare, nil
	default:
		return preparingUnknown, unlessRefused(err)
	}
	s.policy.preparing.Store(int32(learned))
	return learned, unlessRefused(err)
}

// unlessRefused is nil for an error that leaves the connection as it was.
func unlessRefused(err error) error {
	if err != nil && backend.FaultIn(err).KeepsConn() {
		return nil
	}
	return err
}

// requirePlainPreparing has an update that must be prepared refused, before anything of it is sent, where its text changes
// something within what the server takes for a query, and runs to prepare it: its preparing would change that, with NULLs,
// and the update be refused. In a transaction, where a server cannot be asked, what is done so goes with the transaction.
func (c *call) requirePlainPreparing(script sqlscan.Script) {
	if !script.ChangesInQuery() {
		return
	}
	next := c.beforeSend
	c.beforeSend = func(ctx context.Context) error {
		how, err := c.s.learnPreparing(ctx)
		switch {
		case err != nil:
			return err
		case how == runsToPrepare, how == preparingUnknown && c.s.txState().phase == txNone:
			e := usageError(errors.New("this server runs the text, with NULLs for its parameters, in order to prepare it: write them into the text"))
			e.Fault = backend.FaultUnsupported
			return e
		}
		return next(ctx)
	}
}

// prepareToKeep prepares a statement for its caller, unless the server may run it for that: see asText.
func (s *SessionHandle) prepareToKeep(ctx context.Context, sql string, script sqlscan.Script, bc backend.Call) (backend.Prepared, error) {
	sendText := script.RunsWhenPrepared()
	if !sendText && script.ChangesInQuery() {
		how, err := s.learnPreparing(ctx)
		if err != nil {
			return nil, err
		}
		sendText = how != preparesOnly
	}
	if sendText {
		return asText{s.conn, sql}, nil
	}
	return s.prepare(ctx, sql, nil, bc)
}
