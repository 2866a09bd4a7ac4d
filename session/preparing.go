package session

import (
	"context"
	"errors"
	"strings"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// preparing is what a server does with a query that it is to prepare. By that SwanLake is known.
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
	if err != nil {
		err = unlessRefused(notBegun(err)) // a server that refuses this one is asked the other
		repeats = true
	}
	switch {
	case err != nil:
		return preparingUnknown, err
	case !repeats:
		return preparesOnly, nil
	case s.txState().phase != txNone:
		return preparingUnknown, nil
	}
	stmt, err := s.prepare(ctx, "SELECT error('"+preparingWords+"')", nil, backend.Call{})
	learned, said := preparesOnly, ""
	if err != nil {
		said = innermostCause(err).Error() // in ours the server's name stands
	}
	switch {
	case err == nil:
		err = stmt.Close(ctx)
	case !backend.FaultIn(err).KeepsConn(), effect.NoVerdict(err):
		return preparingUnknown, unlessRefused(err)
	case backend.FaultIn(err) == backend.FaultUnsupported, strings.Contains(strings.ToLower(said), "function"): // it prepares nothing, or has none of DuckDB's
	case strings.Contains(said, preparingWords):
		learned = runsToPrepare
	default:
		return preparingUnknown, nil
	}
	s.policy.preparing.Store(int32(learned))
	return learned, unlessRefused(err) // which is that of the close, or learned
}

// learnAfterLoss has that found out before a call with parameters, where a connection was lost since the server has no
// request to cancel a statement that was left (finishCancel). SwanLake keeps the session of each for long, and a program that
// only reads with parameters asks nothing else by which it is known. One question is asked for each loss.
func (c *call) learnAfterLoss() {
	lost := &c.s.policy.lostUncancelled
	if !c.hasParams || !lost.Load() || c.s.txState().phase != txNone {
		return
	}
	next := c.beforeSend
	c.beforeSend = func(ctx context.Context) error {
		if lost.CompareAndSwap(true, false) {
			if _, err := c.s.learnPreparing(ctx); err != nil {
				return err
			}
		}
		if next == nil { // of a session of one call
			return nil
		}
		return next(ctx)
	}
}

// unlessRefused is nil for an error that leaves the connection as it was.
func unlessRefused(err error) error {
	if err != nil && backend.FaultIn(err).KeepsConn() {
		return nil
	}
	return err
}

// requireHeededParams has an update with parameters refused, before anything of it is sent, that such a server would make
// as it prepares it: a change within what is taken for a query, with NULLs for its parameters. In a transaction, where a
// server that is not known cannot be asked, it shows by its transactions, which SwanLake counts. Of an INSERT whose rows are not its parameters it is found out here what requireStored goes by.
func (c *call) requireHeededParams(script sqlscan.Script, params parameters) {
	if !params.given() || !script.ChangesInQuery() && !script.ComputesRows() {
		return
	}
	next := c.beforeSend
	c.beforeSend = func(ctx context.Context) error {
		stores, err := c.s.storesParams(ctx)
		if err != nil {
			return err
		}
		if stores && script.ChangesInQuery() {
			e := usageError(errors.New("this server runs the text, with NULLs for its parameters, in order to prepare it: write them into the text"))
			e.Fault = backend.FaultUnsupported
			return e
		}
		return next(ctx)
	}
}

// storesParams reports whether the server is such a one, or may be.
func (s *SessionHandle) storesParams(ctx context.Context) (bool, error) {
	how, err := s.learnPreparing(ctx)
	tx := s.txState()
	return how == runsToPrepare || how == preparingUnknown && (tx.phase == txNone || isCounted(tx.id)), err
}

// isCounted reports whether a transaction's id is a small number of eight bytes.
func isCounted(id backend.TxID) bool { return len(id) == 8 && id[:4] == "\x00\x00\x00\x00" }

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
