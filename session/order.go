package session

import (
	"context"
	"sync/atomic"
)

// StatementOrder is what is known of how the sessions of an endpoint take a
// statement while another runs. Connections of an endpoint share one. The zero
// value knows nothing.
type StatementOrder struct {
	waited     atomic.Int32 // how often a statement has waited for another
	sideBySide atomic.Bool
}

// provenWaits is how often a statement must have waited before that is taken
// for the rule. Once could be a server that is short of CPU.
const provenWaits = 3

// known reports whether there is nothing left to learn.
func (o *StatementOrder) known() bool { return o.sideBySide.Load() || o.oneAtATime() }

func (o *StatementOrder) oneAtATime() bool {
	return !o.sideBySide.Load() && o.waited.Load() >= provenWaits
}

// OrderLearner is a Conn of an endpoint whose sessions may run statements side
// by side. A Conn that is none runs its statements one at a time by itself, as
// drivers with a lock do.
type OrderLearner interface {
	StatementOrder() *StatementOrder

	// QueryBeside is Query, and may be called while another call runs.
	QueryBeside(ctx context.Context, sql string, call Call) (Stream, error)
}

// orderUnknown reports whether it has to be found out yet whether the server
// runs the statements of a session one at a time.
func (s *SessionHandle) orderUnknown() bool {
	l, ok := s.conn.(OrderLearner)
	return ok && !l.StatementOrder().known()
}

// oneAtATime reports whether a statement that the session answers proves that
// the one before has ended.
func (s *SessionHandle) oneAtATime() bool {
	l, ok := s.conn.(OrderLearner)
	return !ok || l.StatementOrder().oneAtATime()
}

// learnOrder finds out, before the RPC of a call that its caller has left is
// ended, whether the session answers a probe while the statement of the call
// runs. Two answers in a row say that it runs them side by side: between the
// two RPCs of a query one alone could slip in. A probe that waits shows the
// opposite, if the end of the call lets one through: see stopping.
func (s *SessionHandle) learnOrder(c *call, done <-chan struct{}) {
	l, ok := s.conn.(OrderLearner)
	if !ok || l.StatementOrder().known() {
		return
	}
	// The server hears of the caller's deadline as well, a grace later.
	ctx, stop := context.WithTimeout(s.policy.Life, s.policy.grace()*4/5)
	defer stop()
	call := Call{Tx: s.txState().id}
	for range 2 {
		stream, err := l.QueryBeside(ctx, s.policy.probeSQL(), call)
		if err == nil {
			err = drain(stream)
		}
		select {
		case <-done:
			return // the statement has ended meanwhile
		default:
		}
		switch {
		case err == nil:
		case ctx.Err() != nil && s.policy.Life.Err() == nil:
			c.waited = true
			return
		default:
			return // refused, which shows nothing
		}
	}
	l.StatementOrder().sideBySide.Store(true)
}

// learned takes note that a probe which had waited came through at the end of
// the call.
func (s *SessionHandle) learned() {
	if l, ok := s.conn.(OrderLearner); ok {
		l.StatementOrder().waited.Add(1)
	}
}

// ContextErrorWrapper is a Conn whose errors have a type of its driver's in
// their chain. Calls that their callers leave, which the driver has not
// answered, fail with what WrapContextError makes of the gRPC status.
type ContextErrorWrapper interface {
	WrapContextError(status error) error
}
