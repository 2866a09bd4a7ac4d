package session

import (
	"context"
	"fmt"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/eof"
)

// chase finds out, behind the caller's back, whether the server has stopped
// working on the call, and makes it stop. It is called with the lock held and
// gives it up.
//
// INVARIANT: from here to settle the session takes no statement but the probe,
// and a session whose chain is not Safe takes none ever again.
func (s *SessionHandle) chase(c *call) {
	if s.mu.state != cancelling {
		s.mu.state = cancelling
		s.mu.settled = make(chan struct{})
	}
	s.mu.current, s.mu.cutting = nil, nil
	tx := s.mu.tx
	s.mu.Unlock()
	s.policy.run(func() {
		report := s.chain(c, tx).Run(s.policy.Life)
		if f := s.policy.Observe.Cancelled; f != nil {
			f(c.op, report)
		}
		s.settle(report, tx)
	})
}

// chain is every way to stop a call whose RPC has ended on this side. Each
// request to the server is followed by a probe, so that the next one is sent
// only when the last has not helped.
func (s *SessionHandle) chain(c *call, tx transaction) cancel.Chain {
	grace, budget := s.policy.grace(), s.policy.budget()
	probe := func(ctx context.Context) (cancel.Outcome, error) {
		if err := s.probe(ctx, tx); err != nil {
			// A probe that is cut off hits nothing but itself.
			return cancel.Requested, err
		}
		return cancel.Confirmed, nil
	}
	steps := []cancel.Step{{Name: "rpc", Timeout: grace, Do: probe}}
	for _, st := range s.conn.CancelSteps(c.work) {
		steps = append(steps, cancel.Step{Name: st.Name, Timeout: st.Timeout + grace, Do: func(ctx context.Context) (cancel.Outcome, error) {
			ask, stop := context.WithTimeout(ctx, st.Timeout)
			out, err := st.Do(ask)
			if out == cancel.Failed && err != nil && ask.Err() != nil {
				out = cancel.Unanswered
			}
			stop()
			if out != cancel.Requested && out != cancel.Confirmed {
				return out, err
			}
			look, stop := context.WithTimeout(ctx, grace)
			defer stop()
			return probe(look)
		}})
	}
	steps = append(steps, cancel.Step{Name: "probe", Timeout: budget, Do: probe})
	return cancel.Chain{Steps: steps, Budget: budget}
}

// probe answers nil when the session is free again. Inside a transaction, that
// the cancelled statement has spoilt anyway, the rollback is the probe: any
// other statement would be refused there.
func (s *SessionHandle) probe(ctx context.Context, tx transaction) error {
	if lost := s.conn.Lost(); lost != nil {
		return lost
	}
	if !tx.open() {
		return s.ask(ctx)
	}
	err := s.conn.EndTx(ctx, tx.id, false)
	if FaultIn(err) == FaultStatement {
		// An earlier probe that was cut off may have ended it meanwhile.
		return s.ask(ctx)
	}
	return err
}

// ask runs the probe query to its end.
func (s *SessionHandle) ask(ctx context.Context) error {
	return Probe(ctx, s.conn, s.policy.probeSQL())
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

// settle takes the outcome of a chain.
func (s *SessionHandle) settle(report cancel.Report, tx transaction) {
	s.mu.Lock()
	if report.Safe() {
		if tx.open() {
			s.mu.tx.rolledBack()
		}
	} else {
		s.mu.lost = fmt.Errorf("%w: a cancelled statement may still run: %s", ErrSessionLost, report)
	}
	s.leave()
}

// Probe runs a harmless query to its end, as a health check.
func Probe(ctx context.Context, c Conn, sql string) error {
	stream, err := c.Query(ctx, sql, Call{})
	if err != nil {
		return err
	}
	return drain(stream)
}
