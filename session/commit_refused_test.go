package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// changedInTx is a rig in whose transaction something has been changed.
func changedInTx(t *testing.T, conn *fakeConn) *rig {
	t.Helper()
	r := newRig(t, conn)
	must(t, r.handle.BeginTransaction(t.Context()))
	_, err := r.handle.Update(t.Context(), "INSERT 1")
	must(t, err)
	return r
}

// A refusal of a COMMIT in which no engine speaks says nothing of the transaction: the rollback behind it does, whose
// confirmation by our own session shows that the transaction was there still.
func TestTheRollbackBehindARefusedCommitSaysWhatIsStored(t *testing.T) {
	refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.PermissionDenied, "RBAC: access denied")}
	expired := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Err: status.Error(codes.Unauthenticated, "the token has expired")}
	busy := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Err: status.Error(codes.ResourceExhausted, "busy")}
	for name, tc := range map[string]struct {
		sql      string
		rollback []error
		begin    error // what the transaction that shows what the refusals mean begins with
		unknown  bool
	}{
		"confirmed":                              {sql: "INSERT 1"},
		"not answered":                           {sql: "INSERT 1", rollback: []error{busy}, unknown: true},
		"not answered, of one that reads":        {sql: "SELECT 1", rollback: []error{busy}},
		"refused for its credential":             {sql: "INSERT 1", rollback: []error{expired}, unknown: true},
		"refused, and no other can be begun":     {sql: "INSERT 1", rollback: []error{refused, refused}, begin: refused, unknown: true},
		"refused, and none, of one that reads":   {sql: "SELECT 1", rollback: []error{refused, refused}, begin: refused},
		"refused, and another is begun and ends": {sql: "INSERT 1", rollback: []error{refused, refused}, unknown: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Commit": {refused}, "Rollback": tc.rollback}})
			must(t, r.handle.BeginTransaction(t.Context()))
			res, err := r.handle.Execute(t.Context(), tc.sql)
			must(t, err)
			must(t, res.Close())
			if tc.begin != nil {
				r.conn.failOnce["Begin"] = []error{tc.begin}
			}
			err = r.handle.Commit(t.Context())
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			require.Equal(t, !tc.unknown, errors.Is(err, backend.ErrTxAborted), "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// A credential that is refused at the COMMIT is no word on the transaction, and one that was not sent none of the server's:
// no ROLLBACK follows, which a server that has forgotten the transaction would confirm.
func TestWhatIsNoAnswerToACommitIsNotRolledBack(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  backend.Error
		unknown bool
	}{
		"a refused credential": {backend.Error{Fault: backend.FaultAuth, Err: status.Error(codes.Unauthenticated, "the token has expired")}, true},
		"a broken connection":  {backend.Error{Fault: backend.FaultTransport, Err: errors.New("connection reset")}, true},
		"not sent":             {backend.Error{Fault: backend.FaultLimit, Unsent: true, Err: status.Error(codes.ResourceExhausted, "too many streams")}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			tc.answer.Stage = backend.StageExecute
			r := changedInTx(t, &fakeConn{failOnce: map[string][]error{"Commit": {&tc.answer}}})
			err := r.handle.Commit(t.Context())
			require.Equal(t, tc.unknown, errors.Is(err, backend.ErrCommitUnknown), "%s: %v", name, err)
			require.NotErrorIs(t, err, backend.ErrTxAborted, name)
			require.NotContains(t, r.conn.Log(), "Rollback", name)
			if !tc.unknown {
				require.True(t, backend.SafeToRetry(err), name)
				must(t, r.handle.Rollback(t.Context()))
			}
			_ = r.handle.Close()
		})
	}
}

// A COMMIT of which nothing is known ends the transaction for its handle: what is deferred to roll it back has nothing
// to add to what the caller has been told.
func TestBehindAnUnknownCommitThereIsNothingToRollBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := changedInTx(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Commit": {transportError()}}})
		require.ErrorIs(t, r.handle.Commit(t.Context()), backend.ErrCommitUnknown)
		must(t, r.handle.RollbackOpen(t.Context()))
		err := r.handle.Rollback(t.Context())
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.True(t, backend.SafeToRetry(err), "it was not sent, and no transaction is open: %v", err)
		require.NotContains(t, r.conn.Log(), "Rollback")
		must(t, r.handle.Close())
	})
}

// A server that refuses what it does not know has confirmed the COMMIT of the transaction that it was asked for, whatever
// its session is asked later.
func TestACommitOfAServerThatKnowsItsTransactionsIsNotProvenBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newStateConn().fakeConn)
		_, err := r.handle.Update(t.Context(), "CREATE TEMP TABLE mine (a INT)")
		must(t, err)
		require.Equal(t, proofHeld, r.handle.mu.proof.state)
		must(t, r.handle.BeginTransaction(t.Context()))
		_, err = r.handle.Update(t.Context(), "INSERT 1")
		must(t, err)
		r.conn.reused = "SELECT 'somebody else'"
		before := proofs(r.conn)
		must(t, r.handle.Commit(t.Context()))
		require.Equal(t, before, proofs(r.conn))
		_ = r.handle.Close()
	})
}

// The comparison behind a COMMIT is a proof as any other: the session is as old as that, and not as the one before a COMMIT
// that has taken long.
func TestTheProofBehindACommitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := changedInTx(t, &fakeConn{forgives: true, work: map[string]time.Duration{"Commit": maxProofAge}})
		must(t, r.handle.Commit(t.Context()))
		before := proofs(r.conn)
		time.Sleep(maxProofAge - 1)
		must(t, readAll(r.handle.Query(t.Context(), "SELECT 2")))
		require.Equal(t, before, proofs(r.conn))
		time.Sleep(time.Nanosecond)
		must(t, readAll(r.handle.Query(t.Context(), "SELECT 2")))
		require.Equal(t, before+1, proofs(r.conn))
		must(t, r.handle.Close())
	})
}

// A rollback of which nothing was sent leaves the transaction as it was, and does not make its outcome unknown: it may be
// made again.
func TestARollbackThatWasNotSentMayBeMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsent := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Unsent: true, Err: status.Error(codes.ResourceExhausted, "too many streams")}
		r := changedInTx(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {unsent}}})
		err := r.handle.Rollback(t.Context())
		require.NotErrorIs(t, err, backend.ErrCommitUnknown)
		require.True(t, backend.SafeToRetry(err), "%v", err)
		must(t, r.handle.Rollback(t.Context()))
		must(t, r.handle.Close())
		r.reused()
	})
}

// Of one that was sent once, and refused, the server may have ended the transaction.
func TestARollbackOfWhichOnlyTheSecondWasNotSentWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.PermissionDenied, "RBAC: access denied")}
		unsent := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultLimit, Unsent: true, Err: status.Error(codes.ResourceExhausted, "too many streams")}
		r := changedInTx(t, &fakeConn{failOnce: map[string][]error{"Rollback": {refused, unsent}}})
		err := r.handle.Rollback(t.Context())
		var e *backend.Error
		require.ErrorAs(t, err, &e)
		require.False(t, e.Unsent)
		require.False(t, backend.SafeToRetry(err), "%v", err)
		_ = r.handle.Close()
		require.ErrorContains(t, r.discarded(), "rollback failed")
	})
}

// What the server has said of having left the transaction stays in the error where the next rollback fails: once.
func TestARollbackThatFailsTellsWhatTheFirstAnswerWas(t *testing.T) {
	said := leftError()
	expired := &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultAuth, Err: status.Error(codes.Unauthenticated, "the token has expired")}
	for name, roll := range map[string]func(context.Context, *SessionHandle) error{
		"Rollback":     func(ctx context.Context, s *SessionHandle) error { return s.Rollback(ctx) },
		"RollbackOpen": func(ctx context.Context, s *SessionHandle) error { return s.RollbackOpen(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := changedInTx(t, &fakeConn{forgives: true, failOnce: map[string][]error{"Rollback": {said, expired}}})
			err := roll(t.Context(), r.handle)
			require.ErrorIs(t, err, backend.ErrCommitUnknown, name)
			require.ErrorContains(t, err, "aborted and rolled back", name)
			require.ErrorContains(t, err, "the token has expired", name)
			require.Equal(t, 1, strings.Count(err.Error(), errServerLeftTx.Error()), "%s: %v", name, err)
			_ = r.handle.Close()
		})
	}
}

// With the connection goes what a server knew of having left the transaction. A caller who leaves while its loss is told
// to the owner has the cause of a context of the caller's own in the error, and is not told that all of it may be made again.
func TestALossIsToldAlsoWhereTheCauseOfAContextSpeaksOfAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{"tx1: INSERT 2": {transportError()}}})
		s := New(r.conn, r.policy, func(reason error) {
			time.Sleep(time.Second)
			r.returned(reason)
		})
		must(t, s.BeginTransaction(t.Context()))
		_, err := s.Update(t.Context(), "INSERT 1")
		must(t, err)
		go func() { _, _ = s.Update(t.Context(), "INSERT 2") }()
		synctest.Wait() // its loss is being told
		ctx, end := context.WithCancelCause(t.Context())
		end(backend.ErrSessionLost)
		err = s.Rollback(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.False(t, backend.SafeToRetry(err), "%v", err)
		time.Sleep(time.Minute)
		_ = s.Close()
	})
}

// A change that waits for the proof of its session has not reached the server: who rolls back in that time is not told that
// something of it may be stored, and nothing of it is sent later.
func TestAChangeThatIsBeingProvenStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		must(t, r.handle.BeginTransaction(t.Context()))
		r.conn.late = func() { time.Sleep(time.Second) }
		go func() { _, _ = r.handle.Update(t.Context(), "INSERT 1") }()
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		must(t, r.handle.RollbackOpen(ctx))
		time.Sleep(time.Minute)
		require.NotContains(t, r.conn.Log(), "tx1: INSERT 1")
		_ = r.handle.Close()
	})
}

// Nor does one whose session was found to have gone before it was sent, while that is told to the owner.
func TestAChangeThatFoundItsSessionGoneStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{forgives: true})
		s := New(r.conn, r.policy, func(reason error) {
			time.Sleep(time.Second)
			r.returned(reason)
		})
		must(t, s.BeginTransaction(t.Context()))
		r.conn.reused = "SELECT 'somebody else'"
		go func() { _, _ = s.Update(t.Context(), "INSERT 1") }()
		synctest.Wait() // the loss is being told
		ctx, stop := context.WithCancel(t.Context())
		stop()
		must(t, s.RollbackOpen(ctx))
		time.Sleep(time.Minute)
		require.NotContains(t, r.conn.Log(), "tx1: INSERT 1")
		require.ErrorIs(t, r.discarded(), backend.ErrSessionReplaced)
		_ = s.Close()
	})
}

// leftError is what a server says once that has left a transaction by itself.
func leftError() error {
	return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.FailedPrecondition, "aborted and rolled back")}
}

// What was refused before it was sent is over, too: a ROLLBACK was sent, and the Commit cannot be repeated.
func TestACommitThatIsRefusedBeforeItIsSentIsNotToldAsUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aborted := &backend.Error{Stage: backend.StageProbe, Fault: backend.FaultStatement, Unsent: true, Err: errors.New("the transaction is aborted")}
		r := changedInTx(t, &fakeConn{failOnce: map[string][]error{"Commit": {aborted}}})
		err := r.handle.Commit(t.Context())
		require.ErrorIs(t, err, backend.ErrTxAborted)
		require.Contains(t, r.conn.Log(), "Rollback")
		require.False(t, backend.SafeToRetry(err), "%v", err)
		must(t, r.handle.BeginTransaction(t.Context()))
		must(t, r.handle.Close())
	})
}
