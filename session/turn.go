package session

import (
	"context"
	"errors"
	"time"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/ctxerr"
)

// awaitTurn makes the handle busy with c, once nothing is being ended any more in the background. Another call may be first
// then; it looks again. The wait counts against the timeout of the call, of which opts has afterwards what is left.
//
// INVARIANT: no call takes longer than its timeout, whatever comes before it: what is left to its end, such as a COMMIT or
// what has NoCancel, may take for ever.
func (s *SessionHandle) awaitTurn(ctx context.Context, c *call, opts *QueryOptions) error {
	var late <-chan time.Time // the call's own time is over
	began := time.Now()
	for {
		wait, err := s.tryBegin(c, opts.backgroundRollback)
		switch {
		case err == nil && wait == nil:
			if late != nil {
				opts.Timeout = max(s.timeout(*opts)-time.Since(began), 1)
			}
			return nil
		case wait == nil:
			return s.unsentError(c.op, err)
		}
		if timeout := s.timeout(*opts); timeout > 0 && late == nil {
			timer := time.NewTimer(timeout)
			defer timer.Stop()
			late = timer.C
		}
		var enough <-chan time.Time
		if err != nil {
			enough = time.After(s.policy.closeTimeout())
		}
		select {
		case <-wait:
		case <-enough:
			return s.unsentError(c.op, err)
		case <-ctx.Done():
			return s.lateError(c.op, ctxerr.Of(ctx))
		case <-late:
			return s.lateError(c.op, context.DeadlineExceeded)
		}
	}
}

// rollbackTimeout is that of a Rollback: what is due to all calls, but CloseTimeout at least. The statement before it may be
// what has taken all of the time of a call, and is being stopped.
func (s *SessionHandle) rollbackTimeout() time.Duration {
	if s.policy.QueryTimeout <= 0 {
		return -1
	}
	return max(s.policy.QueryTimeout, s.policy.closeTimeout())
}

// lateError is the error of a call whose time was over, as ended says, before its turn came.
func (s *SessionHandle) lateError(op string, ended error) error {
	return &backend.Error{Op: op, Stage: backend.StageAcquire, Fault: backend.FaultContext, Target: s.policy.Target, Unsent: true,
		Ctx: ended, Err: errors.New("the previous call of the session is still being ended")}
}

// tryBegin takes the handle from idle to busy with c, or tells what to wait for. With an
// error besides, that is not worth more than CloseTimeout: the connection is being given
// back, and a hook of the owner's that is told of it may be who calls.
//
// INVARIANT: a busy handle has its call, so that Close misses none.
func (s *SessionHandle) tryBegin(c *call, undo bool) (wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closing, s.mu.state == closed, s.mu.state == cleaning:
		return nil, backend.ErrHandleClosed
	case s.mu.lost != nil && s.mu.releaseConn == nil: // that of a lost session is being given back, or was
		return s.mu.ended, lostError(s.mu.lost)
	case s.mu.state == ending: // also when the session is lost: its connection goes with that end
		return s.mu.ended, nil
	case s.mu.lost != nil:
		return nil, lostError(s.mu.lost)
	case s.mu.rollbackDone != nil && !undo:
		return s.mu.rollbackDone, nil
	case s.mu.state == busy:
		return nil, backend.ErrBusy
	}
	s.mu.state = busy
	s.mu.call = c
	return nil, nil
}
