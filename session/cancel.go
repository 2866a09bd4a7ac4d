package session

import (
	"context"
	"fmt"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/eof"
)

// stopping is the cancel of one call, behind its caller.
type stopping struct {
	s    *SessionHandle
	call *call
	tx   transaction

	// keep says that the transaction goes on if the server lets it, because
	// its caller was told no failure.
	keep bool

	// rolledBack says that the transaction has been ended on the server.
	rolledBack bool

	// refusal is why the server did not let the transaction go on.
	refusal error
}

// startCancel finds out, behind the caller, whether the server has stopped
// working on the call, and makes it stop.
//
// INVARIANT: from here to finishCancel the session takes no statement but the
// probe, and a session whose chain is not Safe takes none ever again.
func (s *SessionHandle) startCancel(c *call, tx transaction, keep bool) {
	s.goOnBehind()
	st := &stopping{s: s, call: c, tx: tx, keep: keep && tx.phase == txOpen && !s.untrusted()}
	s.policy.run(func() {
		report := st.chain().Run(s.policy.Life)
		if f := s.policy.Observe.Cancelled; f != nil {
			f(c.op, report)
		}
		s.finishCancel(st, report)
	})
}

// keepsTx reports whether an open transaction is worth keeping after a call
// that was cut: the caller was told no failure of a statement, and nothing was
// changed by half.
func keepsTx(c *call, o outcome) bool {
	return !c.statement || (o.letGo && c.script.ReadOnly())
}

// chain is every way to stop a call whose RPC has ended on this side. Each
// request to the server is followed by a probe, so that the next one is sent
// only when the last has not helped.
func (st *stopping) chain() cancel.Chain {
	grace, budget := st.s.policy.grace(), st.s.policy.budget()
	steps := []cancel.Step{{Name: "rpc", Timeout: grace, Do: st.probe}}
	for _, way := range st.s.conn.CancelSteps(st.call.work) {
		steps = append(steps, cancel.Step{Name: way.Name, Timeout: way.Timeout + grace, Do: func(ctx context.Context) (cancel.Outcome, error) {
			ask, stop := context.WithTimeout(ctx, way.Timeout)
			out, err := way.Do(ask)
			if out == cancel.Failed && err != nil && ask.Err() != nil {
				out = cancel.Unanswered
			}
			stop()
			if out != cancel.Requested && out != cancel.Confirmed {
				return out, err
			}
			look, stop := context.WithTimeout(ctx, grace)
			defer stop()
			return st.probe(look)
		}})
	}
	steps = append(steps, cancel.Step{Name: "probe", Timeout: budget, Do: st.probe})
	return cancel.Chain{Steps: steps, Budget: budget}
}

// probe confirms when the session answers. One that is cut off hits nothing
// but itself.
func (st *stopping) probe(ctx context.Context) (cancel.Outcome, error) {
	if err := st.free(ctx); err != nil {
		return cancel.Requested, err
	}
	return cancel.Confirmed, nil
}

// free answers nil when the session is free again. In a transaction that is
// given up the rollback is the probe: any other statement would be refused.
func (st *stopping) free(ctx context.Context) error {
	s := st.s
	if lost := s.conn.Lost(); lost != nil {
		return lost
	}
	if !st.tx.open() || st.rolledBack {
		return s.runProbe(ctx)
	}
	if st.keep {
		err := s.runProbeIn(ctx, st.tx.id)
		if err == nil || !FaultIn(err).KeepsConn() {
			return err
		}
		st.keep, st.refusal = false, err
	}
	err := s.conn.EndTx(ctx, st.tx.id, false)
	switch {
	case err == nil:
		st.rolledBack = true
	case FaultIn(err) == FaultStatement:
		// An earlier probe that was cut off may have ended it meanwhile.
		if err = s.rollBack(ctx, st.tx); err == nil {
			st.rolledBack = true
			err = s.runProbe(ctx)
		}
	}
	return err
}

// finishCancel takes the outcome of a chain.
func (s *SessionHandle) finishCancel(st *stopping, report cancel.Report) {
	s.mu.Lock()
	switch {
	case !report.Safe():
		s.mu.lost = fmt.Errorf("%w: a cancelled statement may still run: %s", ErrSessionLost, report)
	case st.rolledBack:
		s.mu.tx.rolledBack(st.why())
	}
	s.mu.Unlock()
	s.leave()
}

// why explains the end of the transaction to those who did not end it.
func (st *stopping) why() error {
	switch {
	case st.refusal != nil:
		return fmt.Errorf("%s was ended early, and the server does not let the transaction go on: %w", st.call.op, st.refusal)
	default:
		return fmt.Errorf("%s was ended before the server had answered: %w", st.call.op, errLetGo)
	}
}

// runProbe runs the probe query to its end.
func (s *SessionHandle) runProbe(ctx context.Context) error { return s.runProbeIn(ctx, "") }

func (s *SessionHandle) runProbeIn(ctx context.Context, tx TxID) error {
	stream, err := s.conn.Query(ctx, s.policy.probeSQL(), Call{Tx: tx})
	if err != nil {
		return err
	}
	return drain(stream)
}

// Probe runs a harmless query to its end, as a health check.
func Probe(ctx context.Context, c Conn, sql string) error {
	stream, err := c.Query(ctx, sql, Call{})
	if err != nil {
		return err
	}
	return drain(stream)
}

func drain(stream Stream) error {
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
