package session

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/internal/sqlscan"
)

// Whoever closes a statement need not know whether its session is there. While the session does something else it is closed later.
func TestAStatementIsClosedWithItsSessionOrInItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		res, err := r.handle.Query(t.Context(), "SELECT 3")
		must(t, err)
		require.ErrorIs(t, q.Close(t.Context()), backend.ErrBusy)
		must(t, drained(res, nil))
		must(t, q.Close(t.Context()))
		r.clean()

		q, err = r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		must(t, r.handle.BeginTransaction(t.Context()))
		r.conn.work = map[string]time.Duration{"Commit": time.Minute}
		committed := make(chan error, 1)
		go func() { committed <- r.handle.Commit(t.Context()) }()
		synctest.Wait()
		go func() { _ = r.handle.Close() }()
		synctest.Wait()
		require.NoError(t, q.Close(t.Context()), "the handle is being closed")
		must(t, <-committed)
		time.Sleep(time.Minute)
		r.clean()

		r = newRig(t, &fakeConn{})
		q, err = r.handle.PrepareQuery(t.Context(), "SELECT 1")
		must(t, err)
		r.conn.cut()
		require.Error(t, r.handle.Ping(t.Context()))
		require.NoError(t, q.Close(t.Context()), "the session is lost")
	})
}

// A server gives a handle again once it has replaced the session: then it means another text. One text may have one handle, also
// where it could not be closed.
func TestAHandleIsGivenForOneText(t *testing.T) {
	s := newRig(t, &fakeConn{}).handle
	no := func(n int) backend.Prepared { return numbered{&fakePrepared{no: n}} }
	s.kept = &keptProof{proof: proof{stmt: no(2)}}
	s.mu.proof.stmt = no(3)
	s.register(&PreparedQuery{s: s, stmt: no(4), sql: "SELECT 4"})
	s.registerUnclosed(no(5))
	for what, c := range map[string]struct {
		handle, sql string
		replaced    bool
	}{
		"the call's own":                  {"1", "SELECT 1", true},
		"that of a prepared session":      {"2", "SELECT 1", true},
		"the proof's":                     {"3", "SELECT 1", true},
		"another statement's":             {"4", "SELECT 1", true},
		"that of the same text":           {"4", "SELECT 4", false},
		"of one that could not be closed": {"5", "SELECT 1", false},
		"a new one":                       {"6", "SELECT 1", false},
	} {
		require.Equal(t, c.replaced, s.hasHandle(c.handle, c.sql, no(1)), what)
	}
	s.kept = nil
	require.False(t, s.hasHandle("2", "SELECT 1", nil))
}

func TestATracerSeesTheTextOfAPreparedStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := traced(t, &fakeConn{})
		q, err := r.handle.PrepareQuery(t.Context(), "SELECT 2")
		must(t, err)
		l.forget()
		must(t, readAll(q.Query(t.Context())))
		_, err = q.Update(t.Context())
		must(t, err)
		require.Equal(t, []string{
			"start PreparedQuery.Query fake:1 7: SELECT 2", "end PreparedQuery.Query fake:1 7: SELECT 2",
			"start PreparedQuery.Update fake:1 7: SELECT 2", "end PreparedQuery.Update fake:1 7: SELECT 2",
		}, l.heard())
		must(t, r.handle.Close())
	})
}

// A text that only its executions send is one more text to each: what the server does with it is asked anew.
func TestATextThatIsSentAnewIsNotExecutedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &repeater{routeConn: &routeConn{fakeConn: &fakeConn{}}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		q, err := r.handle.PrepareQuery(t.Context(), "INSERT INTO t SELECT 1 FROM (PIVOT t ON a) RETURNING 1")
		must(t, err)
		require.True(t, q.goesAsText())
		conn.repeats = true
		_, err = q.Query(t.Context())
		require.ErrorIs(t, err, ErrAmbiguousRoute)
		require.Empty(t, r.conn.Log())
		must(t, r.handle.Close())
	})
}

// In another place the names of the text would mean other tables.
func TestNothingIsPreparedWhereAnInsertHasLedTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStateConn()
		r := stateRig(t, c)
		_, err := r.handle.Update(t.Context(), "INSERT INTO bad.t VALUES (?)", 7)
		require.Error(t, err)
		synctest.Wait()
		c.fail = map[string]error{searchPathQuery.sql: sqlError("no")}
		log := r.sent(func() { _, err = r.handle.PrepareQuery(t.Context(), "SELECT 1") })
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, log, "Prepare")
		_ = r.handle.Close()
	})
}

// An execution is repeated by a statement that is prepared again where the server has closed it with one that was cut: a read, outside of
// transactions, in a session that can be known again, and of which nothing was done.
func TestAStatementIsTakenForGoneByAllThatIsKnownOfIt(t *testing.T) {
	gone := func() *backend.Error {
		return &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.NotFound, "no such statement")}
	}
	is := func(*PreparedQuery, *call, *backend.Error) {}
	for name, change := range map[string]func(q *PreparedQuery, c *call, e *backend.Error){
		"":                           is,
		"was not cut":                func(q *PreparedQuery, _ *call, _ *backend.Error) { q.cut = false },
		"no proof":                   func(q *PreparedQuery, _ *call, _ *backend.Error) { q.s.mu.proof.state = proofImpossible },
		"in a transaction":           func(_ *PreparedQuery, c *call, _ *backend.Error) { c.backendCall.Tx = "tx1" },
		"a change":                   func(q *PreparedQuery, _ *call, _ *backend.Error) { q.script = sqlscan.Parse("DELETE FROM t") },
		"a read that leaves a value": func(q *PreparedQuery, _ *call, _ *backend.Error) { q.script = sqlscan.Parse("SELECT setseed(1)") },
		"for its effect":             func(_ *PreparedQuery, c *call, _ *backend.Error) { c.asUpdate = true },
		"the connection's":           func(_ *PreparedQuery, _ *call, e *backend.Error) { e.Fault = backend.FaultTransport },
		"a result's":                 func(_ *PreparedQuery, _ *call, e *backend.Error) { e.Stage = backend.StageFetch },
		"a refusal":                  func(_ *PreparedQuery, _ *call, e *backend.Error) { e.Err = status.Error(codes.InvalidArgument, "no") },
	} {
		s := newRig(t, &fakeConn{}).handle
		s.mu.proof.state = proofHeld
		q, c, e := &PreparedQuery{s: s, cut: true, script: sqlscan.Parse("SELECT 1")}, &call{s: s}, gone()
		change(q, c, e)
		require.Equal(t, name == "", q.isGone(c, e), name)
		require.False(t, q.isGone(c, nil), name)
		require.False(t, q.isGone(c, errors.New("of no backend")), name)
	}
}

// cutOnce is a rig with a prepared read in a session that is known again, which the server has closed.
func cutOnce(t *testing.T) (*rig, *PreparedQuery) {
	r := newRig(t, &fakeConn{forgives: true, failOnce: map[string][]error{}})
	q, err := r.handle.PrepareQuery(t.Context(), "SELECT 1")
	must(t, err)
	r.conn.failOnce["SELECT 1"] = []error{&backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(codes.NotFound, "no such statement")}}
	q.markCut()
	return r, q
}

func TestAStatementThatIsGoneIsPreparedAgainInItsOwnSession(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(r *rig)
		want  error
		log   []string
	}{
		"in its session": {func(*rig) {}, nil, []string{"SELECT 1", "proof", "Prepare", "ClosePrepared", "SELECT 1"}},
		"in another":     {func(r *rig) { r.conn.reused = "SELECT 1" }, backend.ErrSessionReplaced, []string{"SELECT 1", "SELECT 1"}},
		"not prepared":   {func(r *rig) { r.conn.fail = map[string]error{"Prepare": sqlError("no memory")} }, nil, []string{"SELECT 1", "proof", "Prepare"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, q := cutOnce(t)
			tc.spoil(r)
			var err error
			log := r.sent(func() { err = drained(q.Query(t.Context())) })
			switch {
			case tc.want != nil:
				require.ErrorIs(t, err, tc.want, name)
			case name == "not prepared":
				require.ErrorContains(t, err, "no memory")
			default:
				require.NoError(t, err, name)
			}
			for i := range log {
				if nonce.MatchString(log[i]) {
					log[i] = "proof"
				}
			}
			require.Equal(t, tc.log, log, name)
			_ = r.handle.Close()
		})
	}
}

// What the server says of the one before would pass for the end of the one that runs.
func TestAStatementThatIsPreparedAgainIsNotCancelledByTheNameOfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := cutOnce(t)
		var names []any
		r.conn.steps = func(op *backend.Operation) []cancel.Step {
			names = append(names, op.Name())
			return nil
		}
		r.conn.work = map[string]time.Duration{"Prepare": time.Minute}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.ErrorIs(t, drained(q.Query(ctx)), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []any{nil}, names)
		_ = r.handle.Close()
	})
}

// Behind rows that have failed it is prepared again, or not executed.
func TestAStatementThatCannotBePreparedAgainIsNotExecuted(t *testing.T) {
	for name, tc := range map[string]struct {
		call string
		err  error
		want string // the error of the execution, empty: it is executed
		log  []string
		lost bool // at the end
	}{
		"the preparing is refused": {"Prepare", sqlError("no memory"), "no memory", []string{"Prepare"}, false},
		"the closing is refused":   {"ClosePrepared", sqlError("unknown"), "", []string{"Prepare", "ClosePrepared", "INSERT 1"}, true},
		"the closing is not told":  {"ClosePrepared", errors.New("unreadable"), "unreadable", []string{"Prepare", "ClosePrepared"}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{failOnce: map[string][]error{"INSERT 1": {sqlError("not a SMALLINT")}}})
			q, err := r.handle.PrepareQuery(t.Context(), "INSERT 1")
			must(t, err)
			_, err = q.Update(t.Context(), 7)
			require.ErrorContains(t, err, "not a SMALLINT")
			r.conn.failOnce[tc.call] = []error{tc.err}
			log := r.sent(func() { _, err = q.Update(t.Context(), 7) })
			if tc.want == "" {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, tc.want, name)
			}
			require.Equal(t, tc.log, log[:min(len(log), len(tc.log))], name)
			require.Equal(t, len(tc.log) == 3, slices.Contains(log, "INSERT 1"), "%s: %q", name, log)
			_ = r.handle.Close()
			require.Len(t, r.returns, 1)
			require.Equal(t, tc.lost, r.returns[0] != nil, "%s: %v", name, r.returns[0])
		})
	}
}

// It is a read that may have its rows by the columns of then.
func TestAChangeIsNotPreparedAgainBehindAChangeOfObjects(t *testing.T) {
	for sql, again := range map[string]bool{"INSERT 1": false, "SELECT 1": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &fakeConn{})
			q, err := r.handle.PrepareQuery(t.Context(), sql)
			must(t, err)
			_, err = r.handle.Update(t.Context(), "ALTER TABLE t ADD b INT")
			must(t, err)
			log := r.sent(func() { must(t, drained(q.Query(t.Context()))) })
			require.Equal(t, again, slices.Contains(log, "Prepare"), "%q", log)
			_ = r.handle.Close()
		})
	}
}

func TestAFailureOfATextThatIsSentAnewIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		q, err := r.handle.PrepareQueryWithOptions(t.Context(), "EXPLAIN ANALYZE DELETE FROM bad WHERE a = ?", QueryOptions{Route: RouteUpdate})
		must(t, err)
		require.True(t, q.goesAsText())
		_, err = q.Update(t.Context(), 7)
		require.ErrorContains(t, err, "bad statement")
		_ = r.handle.Close()
	})
}

// Of a change whose caller has left while it was prepared nothing was sent, and nothing is left of it.
func TestAStatementWhoseCallerHasLeftAsItIsPreparedAgainIsNotExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const set = "SET threads = 1"
		c := newStateConn()
		r := stateRig(t, c)
		q, err := r.handle.PrepareQuery(t.Context(), set)
		must(t, err)
		q.failedRows = true
		r.policy.preparing.Store(int32(runsToPrepare))            // where calls have the cancel budget
		c.work = map[string]time.Duration{"Prepare": time.Second} // first that of the proof
		ctx, stop := context.WithTimeout(t.Context(), 1500*ms)
		defer stop()
		_, err = q.Update(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Contains(t, c.Log(), "ClosePrepared", "it was prepared again")
		log := append(c.Log(), r.sent(func() { must(t, r.handle.Close()) })...)
		require.False(t, slices.ContainsFunc(log, func(sql string) bool { return strings.HasPrefix(sql, "SET") }), "%q", log)
		r.reused()
	})
}
