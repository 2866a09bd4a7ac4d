package session

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// unprovable is a server that confirms the end of unknown transactions, and has no prepared statements.
func unprovable() *fakeConn {
	no := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultUnsupported, Err: status.Error(codes.Unimplemented, "no")}
	return &fakeConn{forgives: true, fail: map[string]error{"Prepare": no}}
}

// What is begun after a pause in which there was nothing to lose is as old as its begin.
func TestAPauseWithNothingToLoseCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unprovable())
		for range 2 {
			must(t, r.handle.BeginTransaction(t.Context()))
			time.Sleep(maxUnprovenPause - 1)
			_, err := r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			must(t, r.handle.Commit(t.Context()))
			time.Sleep(2 * maxUnprovenPause)
		}
		must(t, r.handle.Close())
		r.reused()
	})
}

// settingInTx is what a transaction leaves that no later call names.
const settingInTx = "SET threads = 1"

// What a transaction leaves in the session of a server that knows its transactions is watched from the first call behind it
// on, however long the session had paused before it, within it or behind it: only what has replaced it in that last pause
// is not seen.
func TestWhatATransactionLeavesIsWatchedFromTheNextCallOn(t *testing.T) {
	for name, tc := range map[string]struct {
		before, within, inside, behind time.Duration // the pauses
		prepared                       bool          // a statement, which its handle names to the server
	}{
		"at once":                       {},
		"behind a pause":                {behind: maxUnprovenPause},
		"a little earlier":              {behind: maxUnprovenPause - 1},
		"a long transaction":            {within: maxUnprovenPause - 1, inside: maxUnprovenPause - 1, behind: maxUnprovenPause - 1},
		"a pause before it":             {before: maxUnprovenPause},
		"a pause before it, prepared":   {before: maxUnprovenPause, prepared: true},
		"a pause in it":                 {within: maxUnprovenPause},
		"a pause before its end":        {inside: maxUnprovenPause},
		"a long pause in it, and after": {within: time.Hour, behind: maxUnprovenPause},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			if tc.prepared {
				_, err := r.handle.PrepareQuery(t.Context(), "SELECT 2")
				must(t, err)
			}
			before := len(c.Log())
			must(t, r.handle.BeginTransaction(t.Context()))
			must(t, r.handle.Rollback(t.Context()))
			time.Sleep(tc.before)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), settingInTx)
			must(t, err)
			time.Sleep(tc.within)
			_, err = r.handle.Update(t.Context(), "INSERT 1")
			must(t, err)
			time.Sleep(tc.inside)
			must(t, r.handle.Commit(t.Context()))
			time.Sleep(tc.behind)
			require.NotContains(t, c.Log()[before:], "Prepare", name)
			must(t, readAll(r.handle.Query(t.Context(), "SELECT 2")))
			must(t, readAll(r.handle.Query(t.Context(), "SELECT 2"))) // it does not prove what came before the pause
			require.Contains(t, c.Log()[before:], "Prepare", "%s: %q", name, c.Log())
			_ = r.handle.Close()
		})
	}
}

func TestWhatATransactionLeavesIsWatchedHoweverItEnds(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, c *stateConn, s *SessionHandle) error{
		"rolled back": func(ctx context.Context, _ *stateConn, s *SessionHandle) error { return s.Rollback(ctx) },
		"failed": func(ctx context.Context, _ *stateConn, s *SessionHandle) error {
			if _, err := s.Update(ctx, "INSERT bad"); err == nil {
				return errors.New("it should have failed")
			}
			return s.Rollback(ctx)
		},
		"refused": func(ctx context.Context, c *stateConn, s *SessionHandle) error {
			c.fail = map[string]error{"Commit": sqlError("a conflict")}
			if err := s.Commit(ctx); !errors.Is(err, backend.ErrTxAborted) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			must(t, r.handle.BeginTransaction(t.Context()))
			_, err := r.handle.Update(t.Context(), settingInTx)
			must(t, err)
			time.Sleep(maxUnprovenPause)
			must(t, end(t.Context(), c, r.handle))
			must(t, readAll(r.handle.Query(t.Context(), "SELECT 2")))
			require.Contains(t, c.Log(), "Prepare", "%s: %q", name, c.Log())
			_ = r.handle.Close()
		})
	}
}

// A server without proofs may be taken for the same for as long as its answers follow each other; prepared statements, and
// what a server may have kept of a change, are lost with a session as a transaction is.
func TestWhatMayBeLostWithoutAProof(t *testing.T) {
	refused := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "no")}
	rollback := func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) }
	read := func(ctx context.Context, s *SessionHandle) error { return readAll(s.Query(ctx, "SELECT 2")) }
	change := func(ctx context.Context, s *SessionHandle) error { _, err := s.Update(ctx, "INSERT 1"); return err }
	for name, tc := range map[string]struct {
		before, call func(ctx context.Context, s *SessionHandle) error
		pause        time.Duration
		lost         bool
	}{
		"nothing": {nil, read, maxUnprovenPause, false},
		"a prepared statement": {func(ctx context.Context, s *SessionHandle) error {
			_, err := s.PrepareQuery(ctx, "SELECT 2")
			return err
		}, read, maxUnprovenPause, true},
		"a prepared statement, in time": {func(ctx context.Context, s *SessionHandle) error {
			_, err := s.PrepareQuery(ctx, "SELECT 2")
			return err
		}, read, maxUnprovenPause - 1, false},
		"the word on a change":                   {begunAndChanged, rollback, maxUnprovenPause, true},
		"the word on a change, in time":          {begunAndChanged, rollback, maxUnprovenPause - 1, false},
		"a transaction that has only read":       {func(ctx context.Context, s *SessionHandle) error { return s.BeginTransaction(ctx) }, rollback, maxUnprovenPause, false},
		"the way out of an aborted one":          {abortedBehindASavepoint, func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "a") }, maxUnprovenPause, true},
		"the way out of an aborted one, in time": {abortedBehindASavepoint, func(ctx context.Context, s *SessionHandle) error { return s.RollbackTo(ctx, "a") }, maxUnprovenPause - 1, false},
		"a transaction at work": {begunAndChanged, func(ctx context.Context, s *SessionHandle) error {
			must(t, change(ctx, s))
			time.Sleep(maxUnprovenPause - 1)
			must(t, change(ctx, s))
			time.Sleep(maxUnprovenPause - 1)
			return s.Commit(ctx)
		}, maxUnprovenPause - 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := &proofConn{fakeConn: &fakeConn{forgives: true}, prepares: refused, times: 2}
			r := newRig(t, conn.fakeConn)
			r.handle = New(conn, r.policy, r.returned)
			if tc.before != nil {
				must(t, tc.before(t.Context(), r.handle))
				require.Equal(t, proofImpossible, r.handle.mu.proof.state, name)
			}
			time.Sleep(tc.pause)
			err := tc.call(t.Context(), r.handle)
			require.Equal(t, tc.lost, errors.Is(err, backend.ErrSessionLost), "%s: %v", name, err)
			require.Equal(t, tc.lost, err != nil, "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// What counts is when a statement was sent, and not when the questions before it began: in the meantime such a server may
// have put another session in its place, which runs the statement by itself.
func TestAStatementBehindSlowQuestionsProvesNothing(t *testing.T) {
	for takes, lost := range map[time.Duration]bool{maxUnprovenPause: true, maxUnprovenPause - 1: false} {
		synctest.Test(t, func(t *testing.T) {
			refused := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "no")}
			c := newStateConn()
			c.forgives, c.failOnce = true, map[string][]error{"Prepare": {refused, refused}}
			r := stateRig(t, c)
			must(t, r.handle.BeginTransaction(t.Context()))
			require.Equal(t, proofImpossible, r.handle.mu.proof.state)
			c.work = map[string]time.Duration{"tx1: " + searchPathQuery.sql: takes}
			c.useParams = func() { clear(c.work) }
			batch := int64Batch(1)
			defer batch.Release()
			_, err := r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO t VALUES (?)", batch)
			must(t, err)
			err = readAll(r.handle.Query(t.Context(), "SELECT 2"))
			require.Equal(t, lost, errors.Is(err, backend.ErrSessionLost), "%v", err)
			_ = r.handle.Close()
		})
	}
}

func begunAndChanged(ctx context.Context, s *SessionHandle) error {
	if err := s.BeginTransaction(ctx); err != nil {
		return err
	}
	_, err := s.Update(ctx, "INSERT 1")
	return err
}

func abortedBehindASavepoint(ctx context.Context, s *SessionHandle) error {
	err := s.BeginTransaction(ctx)
	if err == nil {
		err = s.Savepoint(ctx, "a")
	}
	if _, bad := s.Update(ctx, "INSERT bad"); bad == nil {
		err = errors.New("it should have failed")
	}
	return err
}
