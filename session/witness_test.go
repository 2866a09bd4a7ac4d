package session

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/bind"
)

// insertRow runs an INSERT of one row.
func insertRow(t *testing.T, s *SessionHandle) error {
	batch := int64Batch(1)
	defer batch.Release()
	_, err := s.UpdateWithRecordBatch(t.Context(), "INSERT INTO t VALUES (?)", batch)
	return err
}

func count(log []string, call string) (n int) {
	for _, c := range log {
		if c == call {
			n++
		}
	}
	return n
}

// The statement by which something is learned of an INSERT is not worth the INSERT: refused, it is done without. In a transaction
// the refusal may have aborted that, of which some servers confirm the COMMIT then and store nothing: the INSERT is not sent.
func TestAnInsertIsSentWithoutItsWitnessOutsideOfTransactionsOnly(t *testing.T) {
	refused := &backend.Error{Stage: backend.StagePrepare, Fault: backend.FaultStatement, Err: status.Error(codes.InvalidArgument, "no more statements")}
	for name, tc := range map[string]struct {
		inTx  bool
		fails error
		sent  bool
	}{
		"refused":                   {fails: refused, sent: true},
		"refused, in a transaction": {inTx: true, fails: refused},
		"prepared":                  {sent: true},
		"in a transaction":          {inTx: true, sent: true},
		"the connection breaks":     {fails: transportError()},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newStateConn()
			r := stateRig(t, c)
			must(t, insertRow(t, r.handle)) // it seems to have stayed
			synctest.Wait()
			sent := "INSERT INTO t VALUES (?)"
			if tc.inTx {
				must(t, r.handle.BeginTransaction(t.Context()))
				sent = "tx1: " + sent
			}
			before := len(c.Log())
			c.failOnce = map[string][]error{"Prepare": {nil, tc.fails}}
			err := insertRow(t, r.handle)
			require.Equal(t, tc.sent, err == nil, "%s: %v", name, err)
			require.Equal(t, tc.sent, count(c.Log()[before:], sent) == 1, "%s: %q", name, c.Log())
			if tc.inTx {
				require.Equal(t, tc.sent, r.handle.Commit(t.Context()) == nil, name)
			}
			_ = r.handle.Close()
		})
	}
}

// Of an INSERT that comes when the session may be elsewhere already nothing is learned for other sessions, nor is a statement
// prepared for that.
func TestNothingIsLearnedOfAnInsertWhereTheSessionMayBeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		must(t, insertRow(t, r.handle))
		require.True(t, r.policy.stayedInserts.has("."))
		synctest.Wait()
		must(t, r.handle.BeginTransaction(t.Context()))
		c.failOnce = map[string][]error{"tx1: " + searchPathQuery.sql: {sqlError("no")}}
		require.Error(t, insertRow(t, r.handle)) // of which nobody knows that it was not executed
		must(t, r.handle.Rollback(t.Context()))
		before := len(c.Log())
		must(t, insertRow(t, r.handle))
		require.Equal(t, 2, count(c.Log()[before:], "Prepare"), "the proof of the session, and its own: %q", c.Log()[before:])
		require.False(t, r.policy.nonMovingInserts.has("."))
		must(t, r.handle.Close())
	})
}

// placeless is a rig in a transaction of a server that has not told whether it tells where a session is.
func placeless(t *testing.T) (*rig, *stateConn) {
	t.Helper()
	c := newStateConn()
	c.blind, c.forgives = true, true
	c.fail = map[string]error{"SELECT 1": sqlError("no")}
	r := stateRig(t, c)
	must(t, r.handle.BeginTransaction(t.Context()))
	return r, c
}

// Where it could not be read where the session was, there is nothing to compare: not behind a panic of a driver's, nor once
// another session has learned something of such INSERTs.
func TestAnInsertThatHadNoLookBeforeItHasNoneBehindIt(t *testing.T) {
	t.Run("behind a panic", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, c := placeless(t)
			c.useParams = func() { panic("a driver's") }
			require.Panics(t, func() { _ = insertRow(t, r.handle) })
			_ = r.handle.Rollback(t.Context())
			_, _ = r.handle.Update(t.Context(), "UPDATE 1")
			_ = r.handle.Close()
			synctest.Wait()
			require.NotContains(t, c.Log(), "", "nothing is asked in its place")
			require.NotContains(t, c.Log(), "tx1: ")
		})
	})
	t.Run("learned meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, c := placeless(t)
			c.fakeConn.prepared = func(p *fakePrepared) backend.Prepared {
				r.policy.answeredQueries.add(searchPathQuery.key)
				r.policy.stayedInserts.add(".")
				return p
			}
			before := len(c.Log())
			must(t, insertRow(t, r.handle))
			require.Equal(t, 1, count(c.Log()[before:], "Prepare"), "%q", c.Log())
			_ = r.handle.Close()
		})
	})
}

// countedStatement has the handle of a server that counts them, as SwanLake does.
type countedStatement struct{ *fakePrepared }

func (s countedStatement) FirstHandle() string {
	return "\x00\x00\x00\x00\x00\x00\x00" + string(rune(s.no))
}

// SwanLake tries an INSERT that fails once more where it loads its parameters in bulk, so that it may be stored. One without
// parameters it does not load so.
func TestAnInsertWithoutParametersIsNotTriedAgainByItsServer(t *testing.T) {
	for _, rows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const insert = "INSERT INTO t VALUES (7)"
			r := newRig(t, &fakeConn{
				prepared: func(p *fakePrepared) backend.Prepared { return countedStatement{p} },
				fail:     map[string]error{insert: sqlError("out of cheese")},
			})
			q, err := r.handle.PrepareQuery(t.Context(), insert)
			must(t, err)
			batch := int64Batch(1)
			defer batch.Release()
			var args []any
			if rows {
				args = []any{batch}
			}
			_, err = q.Update(t.Context(), args...)
			var e *backend.Error
			require.True(t, errors.As(err, &e), "%v", err)
			require.ErrorContains(t, err, "out of cheese")
			require.Equal(t, rows, e.Partial)
			_ = r.handle.Close()
		})
	}
}

// A server that breaks as it is asked what it makes of an INSERT is not sent it: it might run it with NULLs for its parameters,
// or store it twice.
func TestAnInsertIsNotSentBehindAQuestionThatBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &preparer{fakeConn: &fakeConn{prepared: func(p *fakePrepared) backend.Prepared { return countedStatement{p} }}, noWord: transportError()}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		texts, err := bind.Of([]any{"x"})
		must(t, err)
		rows, err := texts.Batch(nil)
		must(t, err)
		defer rows.Release()
		_, err = r.handle.UpdateWithRecordBatch(t.Context(), "INSERT INTO t VALUES (?)", rows)
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, conn.Log(), "INSERT INTO t VALUES (?)")
		_ = r.handle.Close()
	})
}
