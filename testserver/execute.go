package testserver

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/testserver/engine"
)

// execution is a statement that runs or waits for its turn.
type execution struct {
	ticket string // that it was started by, or ""
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended
}

// errInterrupted ends a statement that a cancel action stops.
var errInterrupted = errors.New("statement interrupted")

// errTimeLimit ends a statement for a limit of the server's own.
var errTimeLimit = errors.New("the statement was ended by a time limit")

// errNotRepeated marks a failure that AutoRecover rolls back for, and no more.
var errNotRepeated = errors.New("not repeated")

// errUnknownTx answers a statement or the end of a transaction that the
// session does not know.
var errUnknownTx = status.Error(codes.InvalidArgument, "unknown transaction")

// engineWork is what a statement does with the engine. ctx is that of the statement.
type engineWork func(ctx context.Context, db engine.Session) error

// runStatement runs a statement and returns its gRPC status. Where RPC cancellation is
// ignored it returns at the end of ctx while the statement runs on. It owns
// bind, the parameters, which live as long as the statement. Of several works each waits for
// a turn of its own, up to the first that fails.
func (s *session) runStatement(ctx context.Context, c *call, st Statement, bind []arrow.RecordBatch, works ...engineWork) error {
	run := func(ctx context.Context) error {
		defer releaseAll(bind)
		for _, w := range works {
			if err := s.runInTurn(ctx, c, st, w); err != nil {
				return err
			}
		}
		return nil
	}
	if !s.srv.profile.IgnoreRPCCancel {
		return run(ctx)
	}
	done := make(chan error, 1)
	s.srv.goroutines.Go(func() { done <- run(context.WithoutCancel(ctx)) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// runInTurn waits for the session's engineLock and runs a statement with it.
func (s *session) runInTurn(ctx context.Context, c *call, st Statement, w engineWork) error {
	s.restartTTL()
	leave, err := s.queueUp(ctx, st.Kind)
	if err != nil {
		return s.srv.statusOf(ctx, err)
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := &execution{ticket: c.ticket, cancel: cancel, done: make(chan struct{})}
	s.addExecution(x)
	defer s.removeExecution(x)

	if s.srv.profile.SideBySide {
		ctx = engine.WithAside(ctx, s.waitUnlocked)
	}
	return s.withEngineLock(ctx, func() error {
		if err := s.checkTx(st.Tx); err != nil {
			return err
		}
		st.Session, st.RPC, st.Peer = s.id, string(c.rpc), c.conn.peer
		tx := s.tx
		err := s.runOnEngine(ctx, c, st, w)
		if s.srv.profile.AutoRecover && errors.Is(err, engine.ErrTxState) {
			s.rollBackFailed(ctx, c, st, tx)
			if !errors.Is(err, errNotRepeated) {
				err = s.runOnEngine(ctx, c, st, w)
			}
		}
		return s.srv.statusOf(ctx, err)
	})
}

// withEngineLock waits for the session's engineLock and calls f with it.
func (s *session) withEngineLock(ctx context.Context, f func() error) error {
	if err := s.lockEngine(ctx); err != nil {
		return s.srv.statusOf(ctx, err)
	}
	defer func() { <-s.engineLock }()
	if s.isEnding() {
		return s.srv.statusOf(ctx, errSessionClosed)
	}
	return f()
}

func (s *session) lockEngine(ctx context.Context) error {
	select {
	case s.engineLock <- struct{}{}:
		return nil
	default:
	}
	s.srv.ledger.update(func(now *Snapshot) { now.Queued++ })
	defer s.srv.ledger.update(func(now *Snapshot) { now.Queued-- })
	select {
	case s.engineLock <- struct{}{}:
		return nil
	case <-s.closedCh:
		return errSessionClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runOnEngine gives the statement to the engine, once.
func (s *session) runOnEngine(ctx context.Context, c *call, st Statement, w engineWork) error {
	at := faultMoment{on: OnStatement, sql: st.SQL, conn: c.conn}
	if err := s.srv.faults.fire(ctx, at); err != nil {
		return err
	}
	if s.srv.profile.FailuresDoNotAbort && s.engine.InTx() && (st.Kind == KindQuery || st.Kind == KindUpdate || st.Kind == KindIngest) {
		w = inSavepoint(st.SQL, w)
	}
	id := s.srv.ledger.begin(st)
	err := w(ctx, s.engine)
	s.recordTx()
	s.srv.ledger.end(id, endState(ctx, err), err)
	if err != nil {
		return err
	}
	at.after = true
	err = s.srv.faults.fire(ctx, at)
	if errors.Is(context.Cause(ctx), errTimeLimit) { // it is done: there is nothing to end
		return nil
	}
	return err
}

// statementSavepoint is the savepoint of a statement that must not abort its transaction.
const statementSavepoint = "testserver_statement"

// inSavepoint takes back what w has done when it fails, so that the transaction goes
// on. Statements about savepoints, and those that end the transaction, are left
// as they are.
func inSavepoint(sql string, w engineWork) engineWork {
	verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " ")
	if slices.Contains([]string{"SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT", "END"}, verb) {
		return w
	}
	return func(ctx context.Context, db engine.Session) error {
		if err := db.Savepoint(ctx, statementSavepoint); err != nil {
			return w(ctx, db) // the transaction is aborted already, or the engine has none
		}
		err := w(ctx, db)
		after := context.WithoutCancel(ctx)
		if err != nil {
			_ = db.RollbackTo(after, statementSavepoint) // fails where the transaction has ended meanwhile
		}
		_ = db.Release(after, statementSavepoint)
		return err
	}
}

// waitUnlocked waits, and lets other statements of the session run meanwhile. The
// caller holds engineLock, before and after.
func (s *session) waitUnlocked(wait func() error) error {
	<-s.engineLock
	err := wait()
	s.engineLock <- struct{}{}
	if s.isEnding() {
		return errSessionClosed
	}
	return err
}

// rollBackFailed rolls back the transaction in which st has failed, tx if it was begun
// by action.
func (s *session) rollBackFailed(ctx context.Context, c *call, st Statement, tx *transaction) {
	if tx != nil {
		s.autoRecovered[tx.id] = struct{}{}
		s.tx = nil
	}
	st.SQL, st.Kind = "ROLLBACK", KindRollback
	_ = s.runOnEngine(ctx, c, st, func(ctx context.Context, db engine.Session) error { return db.Rollback(ctx) })
}

// recordTx tells the ledger of transactions begun or ended, by whatever means.
func (s *session) recordTx() {
	in := s.engine.InTx()
	if !in {
		clear(s.savepoints)
		s.tx = nil
	}
	if in == s.ledgerInTx {
		return
	}
	s.ledgerInTx = in
	s.srv.ledger.update(func(now *Snapshot) {
		if in {
			now.Transactions++
		} else {
			now.Transactions--
		}
	})
}

// checkTx says whether a statement may name transaction tx.
func (s *session) checkTx(tx string) error {
	switch {
	case s.srv.profile.IgnoreTxID:
		return nil
	case tx == "" && s.tx != nil:
		return status.Error(codes.FailedPrecondition, "a transaction is open: the statement must name it")
	case tx != "" && (s.tx == nil || s.tx.id != tx):
		return errUnknownTx
	}
	return nil
}

func endState(ctx context.Context, err error) State {
	switch {
	case err == nil:
		return Done
	case ctx.Err() != nil:
		return Interrupted
	default:
		return Failed
	}
}

// statusOf makes a gRPC status of an error of the engine or of a context.
func (s *Server) statusOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, errSessionClosed) || errors.Is(cause, errSessionClosed):
		return status.Error(codes.Unavailable, errSessionClosed.Error())
	case errors.Is(cause, errInterrupted):
		return status.Error(codes.Canceled, errInterrupted.Error())
	case errors.Is(cause, errTimeLimit):
		return status.Error(codes.Unknown, errTimeLimit.Error())
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, engine.ErrUnsupported):
		return status.Error(codes.Unimplemented, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(s.profile.StatementCode, s.profile.ErrorPrefix+err.Error())
}
