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

// errNotRepeated marks a failure that AutoRecover rolls back for, and no more.
var errNotRepeated = errors.New("not repeated")

// errUnknownTx answers a statement or the end of a transaction that the
// session does not know.
var errUnknownTx = status.Error(codes.InvalidArgument, "unknown transaction")

// work is what a statement does with the engine. ctx is that of the statement.
type work func(ctx context.Context, db engine.Session) error

// do runs a statement and returns its gRPC status. Where RPC cancellation is
// ignored it returns at the end of ctx while the statement runs on. It owns
// bind, the parameters, which live as long as the statement.
func (s *session) do(ctx context.Context, c *call, st Statement, bind []arrow.RecordBatch, w work) error {
	if !s.srv.profile.IgnoreRPCCancel {
		defer releaseAll(bind)
		return s.execute(ctx, c, st, w)
	}
	done := make(chan error, 1)
	s.srv.work.Go(func() {
		defer releaseAll(bind)
		done <- s.execute(context.WithoutCancel(ctx), c, st, w)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// execute waits for the session's turn and runs a statement in it.
func (s *session) execute(ctx context.Context, c *call, st Statement, w work) error {
	s.touch()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x := &execution{ticket: c.ticket, cancel: cancel, done: make(chan struct{})}
	s.addExecution(x)
	defer s.removeExecution(x)

	if s.srv.profile.SideBySide {
		ctx = engine.WithAside(ctx, s.aside)
	}
	return s.inTurn(ctx, func() error {
		if err := s.checkTx(st.Tx); err != nil {
			return err
		}
		st.Session, st.RPC, st.Peer = s.id, string(c.rpc), c.conn.peer
		tx := s.tx
		err := s.attempt(ctx, c, st, w)
		if s.srv.profile.AutoRecover && errors.Is(err, engine.ErrTxState) {
			s.giveUp(ctx, c, st, tx)
			if !errors.Is(err, errNotRepeated) {
				err = s.attempt(ctx, c, st, w)
			}
		}
		return s.srv.statusOf(ctx, err)
	})
}

// inTurn waits for the session's turn and calls f in it.
func (s *session) inTurn(ctx context.Context, f func() error) error {
	if err := s.takeTurn(ctx); err != nil {
		return s.srv.statusOf(ctx, err)
	}
	defer func() { <-s.turn }()
	if s.isEnding() {
		return s.srv.statusOf(ctx, errSessionClosed)
	}
	return f()
}

func (s *session) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	s.srv.ledger.update(func(now *Snapshot) { now.Queued++ })
	defer s.srv.ledger.update(func(now *Snapshot) { now.Queued-- })
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-s.gone:
		return errSessionClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt gives the statement to the engine, once.
func (s *session) attempt(ctx context.Context, c *call, st Statement, w work) error {
	at := strike{on: OnStatement, sql: st.SQL, conn: c.conn}
	if err := s.srv.faults.strike(ctx, at); err != nil {
		return err
	}
	if s.srv.profile.FailuresDoNotAbort && s.engine.InTx() && (st.Kind == KindQuery || st.Kind == KindUpdate || st.Kind == KindIngest) {
		w = apart(st.SQL, w)
	}
	id := s.srv.ledger.begin(st)
	err := w(ctx, s.engine)
	s.noteTx()
	s.srv.ledger.end(id, endState(ctx, err), err)
	if err != nil {
		return err
	}
	at.after = true
	return s.srv.faults.strike(ctx, at)
}

// implicit is the savepoint of a statement that must not abort its transaction.
const implicit = "testserver_statement"

// apart takes back what w has done when it fails, so that the transaction goes
// on. Statements about savepoints, and those that end the transaction, are left
// as they are.
func apart(sql string, w work) work {
	verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(sql)), " ")
	if slices.Contains([]string{"SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT", "END"}, verb) {
		return w
	}
	return func(ctx context.Context, db engine.Session) error {
		if err := db.Savepoint(ctx, implicit); err != nil {
			return w(ctx, db) // the transaction is aborted already, or the engine has none
		}
		err := w(ctx, db)
		after := context.WithoutCancel(ctx)
		if err != nil {
			_ = db.RollbackTo(after, implicit) // fails where the transaction has ended meanwhile
		}
		_ = db.Release(after, implicit)
		return err
	}
}

// aside waits, and lets other statements of the session run meanwhile. The
// caller has the turn, before and after.
func (s *session) aside(wait func() error) error {
	<-s.turn
	err := wait()
	s.turn <- struct{}{}
	if s.isEnding() {
		return errSessionClosed
	}
	return err
}

// giveUp rolls back the transaction in which st has failed, tx if it was begun
// by action.
func (s *session) giveUp(ctx context.Context, c *call, st Statement, tx *transaction) {
	if tx != nil {
		s.recovered[tx.id] = struct{}{}
		s.tx = nil
	}
	st.SQL, st.Kind = "ROLLBACK", KindRollback
	_ = s.attempt(ctx, c, st, func(ctx context.Context, db engine.Session) error { return db.Rollback(ctx) })
}

// noteTx tells the ledger of transactions begun or ended, by whatever means.
func (s *session) noteTx() {
	in := s.engine.InTx()
	if !in {
		clear(s.savepoints)
		s.tx = nil
	}
	if in == s.engineTx {
		return
	}
	s.engineTx = in
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
