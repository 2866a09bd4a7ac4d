package session

import (
	"context"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// checkFree answers nil when the session is free again. In a transaction that is given
// up the rollback is the probe: any other statement would be refused. A connection that
// is lost confirms nothing. A transaction that was to be kept and that refuses the
// probe is rolled back, and rolledBack remembers it, since the next probe must not end
// another.
//
// INVARIANT: no ROLLBACK goes to a server that runs statements in whatever is open while a change may still run there that
// is several to it. What is left of that would be stored by itself, behind the ROLLBACK that was confirmed.
// Without one it ends with its session, which takes no COMMIT any more.
//
// INVARIANT: nor does one go there, where the server has requests to cancel, before the session has answered a
// statement that was sent behind the call's. GizmoSQL has statements wait for those of others, in the order in which they
// came, but not the ends of transactions, and confirms the cancel of one that waits, or refuses it of a prepared one.
// SwanLake, which has none, would take the statement for the first behind an aborted transaction.
func (st *cancellation) checkFree(ctx context.Context) error {
	s := st.s
	if lost := s.conn.Lost(); lost != nil {
		return lost
	}
	if st.tx.openOnServer() && st.mayGoOn() { // what may go on was not rolled back before
		return errMayStillRun
	}
	if !st.tx.openOnServer() || st.rolledBack {
		err := s.runProbe(ctx)
		if st.tx.phase == txNone && refusesAll(err) { // for a transaction that the statement has left
			err = s.leaveAbortedTx(ctx)
			st.leftTx = err == nil
		}
		st.answered.Store(err == nil)
		return err
	}
	if st.keepTx {
		err := s.runProbeInTx(ctx, st.tx.id)
		if err == nil || !backend.FaultIn(err).KeepsConn() {
			return err
		}
		st.keepTx, st.refusal = false, err
	}
	if st.hasCancel && s.acceptsUnknownTx() && !st.call.hasResult() {
		if err := st.comeToTurn(ctx, s.policy.budget()); err != nil {
			return err
		}
	}
	err := s.sendRollback(ctx, st.tx)
	switch {
	case err == nil:
		st.rolledBack = true
	case backend.FaultIn(err) == backend.FaultStatement:
		// An earlier probe that was cut off may have ended it meanwhile.
		if err = s.rollBack(ctx, st.tx); err == nil {
			st.rolledBack = true
			err = s.runProbe(ctx)
		}
	}
	return err
}

// comeToTurn waits, up to limit, for the answer to a statement that is sent behind the call's, in its transaction, unless there was one.
func (st *cancellation) comeToTurn(ctx context.Context, limit time.Duration) error {
	if st.inTurn || st.rolledBack {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if err := st.s.runProbeInTx(ctx, st.tx.id); err != nil && !backend.FaultIn(err).KeepsConn() {
		return err
	}
	st.inTurn = true
	return nil
}

// runProbe runs the probe query to its end, outside of transactions. nil says that the
// session has answered; what else runs in it is not known from that alone.
func (s *SessionHandle) runProbe(ctx context.Context) error { return s.runProbeInTx(ctx, "") }

// runProbeInTx is runProbe inside tx, which a server that knows its transactions
// refuses once tx has ended or was aborted.
func (s *SessionHandle) runProbeInTx(ctx context.Context, tx backend.TxID) error {
	stream, err := s.conn.Query(ctx, s.policy.probeSQL(), backend.Call{Tx: tx})
	if err != nil {
		return err
	}
	return drain(stream)
}

// Probe runs a harmless query to its end, as a health check.
func Probe(ctx context.Context, c backend.Conn, sql string) error {
	stream, err := c.Query(ctx, sql, backend.Call{})
	if err != nil {
		return err
	}
	return drain(stream)
}

// drain reads a stream to its end, drops what it holds and closes it. nil stands for
// the regular end.
func drain(stream backend.Stream) error {
	defer stream.Close()
	for {
		if _, err := stream.Next(); err != nil {
			if eof.Reached(err) {
				return nil
			}
			return err
		}
	}
}
