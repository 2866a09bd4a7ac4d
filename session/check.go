package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/effect"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// access says what a call is about to do to its session.
type access uint8

const (
	accessRead    access = iota
	accessChange         // data may be changed
	accessState          // the handle gets something to lose, besides, which later calls name to the server
	accessUnnamed        // or which they do not name, such as settings and what text names
)

// accessOf is what a statement does. What leaves something in the session needs a proof
// from now on, even if it reads only.
func accessOf(script sqlscan.Script) access {
	switch {
	case len(script.Effects()) > 0:
		return accessUnnamed
	case script.ReadOnly():
		return accessRead
	default:
		return accessChange
	}
}

// serverName is Flight SQL's code of the server's name in SqlInfo.
const serverName = 0

// CheckSession shows that c has a session that works, not only a server that answers:
// by running sql, a harmless query, to its end. A server that refuses this query may
// have other SQL; it must describe itself (SqlInfo) then, or refuse the query in words
// that only a server with a session has (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED). A
// server that fails every request has no usable session. A nil error vouches for the
// session, not for sql.
func CheckSession(ctx context.Context, c backend.Conn, sql string) error {
	err := Probe(ctx, c, sql)
	if err == nil || refusesSQL(err) {
		return nil
	}
	switch backend.FaultIn(err) {
	case backend.FaultStatement, backend.FaultUnsupported, backend.FaultUnknown:
	default:
		return err
	}
	stream, about := c.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataSQLInfo, Info: []uint32{serverName}}, backend.Call{})
	if about == nil {
		about = drain(stream)
	}
	if about == nil {
		return nil
	}
	return &backend.Error{
		Op: "CheckSession", Stage: backend.StageProbe, Fault: backend.FaultTransport,
		Err: fmt.Errorf("the server gives no session that works: the probe fails with %w, and SqlInfo with %w", innermostCause(err), innermostCause(about)),
	}
}

// refusesSQL reports whether err is a server's judgement of the statement, and not of the session. A
// page of HTTP may be a proxy's that has no server behind it.
func refusesSQL(err error) bool {
	if effect.IsPage(err) || backend.FaultIn(err) == backend.FaultSession {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// innermostCause is what the innermost *Error of err was made of. The errors of both
// requests stand in one text, which would name the server and the stage twice.
func innermostCause(err error) error {
	var e *backend.Error
	if errors.As(err, &e) && e.Err != nil {
		return innermostCause(e.Err)
	}
	return err
}

// runChecks is beforeSend.
func (c *call) runChecks(ctx context.Context) error {
	c.checking.Store(true)
	err := c.beforeSend(ctx)
	c.checking.Store(false)
	return err
}

// isStatement reports whether the call runs a statement, once it has ended. One that has
// panicked in its checks counts as none: a transaction by which the server was to be
// learned may be open, which costs the session (finishExited).
func (c *call) isStatement() bool { return c.statement && !c.checking.Load() }

// proveIfAlive is proveSession before a read which is no statement, and which a
// transaction that is aborted does not refuse as it does the proof.
func (s *SessionHandle) proveIfAlive(ctx context.Context) error {
	if s.txState().phase == txAborted {
		return nil
	}
	return s.proveSession(ctx, accessRead)
}

// strayTx is a transaction, none of the handle's, that a statement outside of transactions may have left when it
// failed: the server ran it as several, as DuckDB does COPY FROM DATABASE. A statement in the handle's transaction
// may have been outside of it where the server leaves transactions by itself.
type strayTx uint8

const (
	noStrayTx strayTx = iota
	abortedTx         // one that refuses every statement, if any: what the server has refused itself has aborted it
	anyTx             // or one that is sound, in which later statements would run, told as stored, without a COMMIT
)

// strayTxOf is what c, which was sent and ended in e, may have left if it was outside of transactions. A server may have ended
// it between two of its steps, for a time limit of its own. One that it only prepares it may have begun.
func (c *call) strayTxOf(e *backend.Error) strayTx {
	switch {
	case c.preparesSteps.Load() && c.stepBegun.Load():
		return anyTx
	case e == nil, e.Unsent:
		return noStrayTx
	case c.statement && c.stepBegun.Load() && c.script.MayLeaveTxWhenPrepared() && e.Fault == backend.FaultStatement && c.s.preparesTexts():
		return anyTx
	case e.Fault == backend.FaultContext, e.Running: // which the cancel sees to
		return noStrayTx
	case c.statement && c.stepBegun.Load() && c.script.MayLeaveTx() && meaningOf(effect.Statement, e) != effect.Refused:
		return anyTx
	case e.Fault == backend.FaultStatement && (!c.script.Atomic() || refusesAll(e)), e.Fault == backend.FaultUnsupported && c.script.RunsInSteps():
		return abortedTx
	default:
		return noStrayTx
	}
}

// preparesTexts reports whether the connection may prepare a text before it runs it, as those of adbcpool.New do that watch
// for another session.
func (s *SessionHandle) preparesTexts() bool {
	_, watches := s.conn.(backend.TxWatcher)
	return watches
}

// rollBackStrayTx sees to it, after a statement outside of transactions that failed and
// was more than one to the server, that the session takes statements, and stores them. To roll back what
// that one has left undoes nothing that could have been stored. The mark falls after the first look,
// whatever it finds: a probe that is refused for other reasons shows nothing, and
// asking before every statement would cost a round trip each.
//
// answered says that the session has answered, and is in no such transaction.
func (s *SessionHandle) rollBackStrayTx(ctx context.Context) (answered bool, err error) {
	s.mu.Lock()
	stray := s.mu.strayTx
	if s.mu.tx.openOnServer() {
		stray = noStrayTx
	}
	s.mu.Unlock()
	if stray == noStrayTx {
		return false, nil
	}
	if stray == anyTx {
		if err = s.endStrayTx(ctx); err != nil {
			return false, err
		}
	}
	err = s.runProbe(ctx)
	if refusesAll(err) {
		if err = s.leaveAbortedTx(ctx); err != nil && backend.FaultIn(err).KeepsConn() {
			err = &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: fmt.Errorf("%w: it refuses every statement since one failed: %w", backend.ErrSessionLost, err)}
		}
	}
	if err != nil && !backend.FaultIn(err).KeepsConn() {
		return false, err
	}
	s.mu.Lock()
	s.mu.strayTx = noStrayTx
	s.mu.Unlock()
	return err == nil, nil
}

// endStrayTx rolls back what may be such a transaction. That the server refuses it says that there is none; but one
// refusal may be a failure of the server's own, and a second one that does not read as a refusal shows nothing: then
// the session is given up.
func (s *SessionHandle) endStrayTx(ctx context.Context) error {
	err := s.exec(ctx, "ROLLBACK", backend.Call{})
	if err == nil || !backend.FaultIn(err).KeepsConn() {
		return err
	}
	err = s.exec(ctx, "ROLLBACK", backend.Call{})
	switch {
	case err == nil || !backend.FaultIn(err).KeepsConn():
		return err
	case meaningOf(effect.Commit, err) == effect.Refused, meaningOf(effect.Statement, err) == effect.Refused:
		return nil
	default:
		return &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultSession, Unsent: true, Err: fmt.Errorf("%w: what a change may have left could not be rolled back: %w", backend.ErrSessionLost, err)}
	}
}

// leaveAbortedTx ends the transaction, none of the handle's, for which a session refuses every statement.
func (s *SessionHandle) leaveAbortedTx(ctx context.Context) error {
	err := s.exec(ctx, "ROLLBACK", backend.Call{})
	if err == nil {
		err = s.runProbe(ctx)
	}
	return err
}

// refusesAll reports whether err is that of a session which refuses every statement: it
// is in an aborted transaction, or its database is closed. The texts are those of
// DuckDB, in any case of letters.
func refusesAll(err error) bool {
	if err == nil || !backend.FaultIn(err).KeepsConn() {
		return false
	}
	msg := strings.ToLower(err.Error())
	return strings.Contains(msg, "current transaction is aborted") || strings.Contains(msg, "database has been invalidated")
}

// CheckHealthSQL refuses what is known to leave something in the session that a health check
// has run in, which is lent afterwards. What a statement is that is not known is for the
// server to say.
func CheckHealthSQL(sql string) error {
	s := sqlscan.Parse(sql)
	known := func(e sqlscan.Effect) bool { return e.Kind != sqlscan.EffectUnknown }
	if s.TxControl() != "" || slices.ContainsFunc(s.Effects(), known) {
		return errors.New("leaves something in the session, which is lent afterwards; a check only reads, such as SELECT 1")
	}
	return nil
}

// acceptsUnknownTx reports whether the server may be one that confirms the end of
// transactions that it does not know, and takes liberties with others. It is false while
// that was not asked.
func (s *SessionHandle) acceptsUnknownTx() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.proof.acceptsUnknownTx()
}

func (p *proof) acceptsUnknownTx() bool { return p.state != proofUnknown && !p.trusted }

// confirmsUnknownTx is acceptsUnknownTx where the server has said so.
func (s *SessionHandle) confirmsUnknownTx() bool {
	s.mu.Lock()
	unasked := s.mu.proof.unasked
	s.mu.Unlock()
	return !unasked && s.acceptsUnknownTx()
}

// askAgain asks a server how it treats transactions that it does not know which has refused that question
// before. No transaction is open.
func (s *SessionHandle) askAgain(ctx context.Context) error {
	s.mu.Lock()
	unasked := s.mu.proof.unasked
	s.mu.Unlock()
	if !unasked {
		return nil
	}
	trusted, err := s.conn.RejectsUnknownTx(ctx)
	if err != nil {
		if err = notBegun(err); backend.FaultIn(err).KeepsConn() {
			return nil
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.mu.proof
	p.trusted, p.unasked = trusted, false
	if trusted && p.state == proofImpossible { // as makeProof has it
		p.state = proofNotNeeded
	}
	return nil
}
