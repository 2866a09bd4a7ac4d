package flightpool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// A server that runs a change before its rows are asked for may answer these as if it had refused the change.
func TestAChangeWhoseRowsAreLostIsNotTakenForRefused(t *testing.T) {
	profile := testserver.Strict()
	profile.Run = testserver.RunInInfo
	for name, fault := range map[string]testserver.Fault{
		"unknown": {On: testserver.OnDoGet, SQL: "", Times: 1, Do: testserver.Fail(codes.NotFound, "conflict: the ticket is unknown")},
		"failed":  {On: testserver.OnDoGet, SQL: "", Times: 1, Do: testserver.Fail(codes.Internal, "something happened")},
		"cut":     {On: testserver.OnBatch, Skip: 1, Times: 1, Do: testserver.Fail(codes.Aborted, "conflict: the block is gone")},
	} {
		inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
			_, err := r.pool.Update(r.Context(), "CREATE TABLE t (k BIGINT)")
			require.NoError(r, err)
			require.NoError(r, drained(r.pool.Query(r.Context(), "INSERT INTO t VALUES (0) RETURNING k"))) // the server is asked what it runs on
			r.srv.Faults().Set(fault)
			sql := "INSERT INTO t VALUES (1) RETURNING k"
			if name == "cut" {
				sql = "INSERT INTO t VALUES " + manyRows(3000) + " RETURNING k"
			}
			_, err = CollectRows[int64](r.pool.Query(r.Context(), sql))
			var e *Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, FaultStatement, e.Fault, name)
			require.True(r, e.Partial, name)
			require.False(r, IsConflict(err), name)
			require.False(r, SafeToRetry(err), name)
			n, err := CollectOneRow[int64](r.pool.Query(r.Context(), "SELECT count(*) FROM t"))
			require.NoError(r, err)
			require.Greater(r, n, int64(1))
		})
	}
}

// A server that has executed a change may lack what gives its rows, such as a type.
func TestAChangeWhoseRowsTheServerDoesNotHaveAbortsItsTransaction(t *testing.T) {
	for _, run := range []testserver.RunAt{testserver.RunInInfo, testserver.RunInDoGet} {
		profile := testserver.Strict()
		profile.Run = run
		inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
			lacks := testserver.Fault{On: testserver.OnBatch, SQL: "RETURNING", Times: 1, Do: testserver.Fail(codes.Unimplemented, "Not implemented Error: Unsupported Arrow type")}
			_, err := r.pool.Update(r.Context(), "CREATE TABLE t (k BIGINT)")
			require.NoError(r, err)
			s := r.session()
			require.NoError(r, s.BeginTransaction(r.Context()))
			r.srv.Faults().Set(lacks)
			_, err = CollectRows[int64](s.Query(r.Context(), "INSERT INTO t VALUES (1) RETURNING k"))
			require.ErrorContains(r, err, "Unsupported Arrow type")
			require.ErrorIs(r, s.Commit(r.Context()), ErrTxAborted)
			require.NoError(r, s.Close())
			r.srv.Faults().Set(lacks)
			_, err = CollectRows[int64](r.pool.Query(r.Context(), "INSERT INTO t VALUES (2) RETURNING k"))
			var e *Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, FaultUnsupported, e.Fault)
			require.True(r, e.Partial)
			stored, err := CollectRows[int64](r.pool.Query(r.Context(), "SELECT * FROM t"))
			require.NoError(r, err)
			require.Equal(r, []int64{2}, stored)
		})
	}
}

// Nor is what it has left in the session.
func TestWhatAChangeWithLostRowsHasLeftIsTakenBack(t *testing.T) {
	profile := testserver.Strict()
	profile.Run = testserver.RunInInfo
	inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, SQL: "CREATE TEMP", Times: 1, Do: testserver.Fail(codes.NotFound, "the ticket is unknown")})
		err := drained(s.QueryWithOptions(r.Context(), "CREATE TEMP TABLE mine (v BIGINT)", QueryOptions{Route: RouteQuery}))
		require.ErrorContains(r, err, "ticket is unknown")
		_ = s.Close() // what the engine does not list costs the connection
		_, err = CollectRows[int64](r.pool.Query(r.Context(), "SELECT * FROM mine"))
		require.ErrorContains(r, err, "mine does not exist")
	})
}

// Others refuse a change that was sent for its rows because it has none, once they have executed it: ClickHouse does.
func TestAChangeThatIsRefusedForWantOfRowsMayBeDone(t *testing.T) {
	profile := testserver.Strict()
	profile.Run = testserver.RunInInfo
	const sql = "CREATE TEMP TABLE mine (v BIGINT)"
	asQuery := QueryOptions{Route: RouteQuery}
	hasNoRows := testserver.Fault{On: testserver.OnGetFlightInfo, After: true, SQL: "CREATE TEMP", Times: 1, Do: testserver.Fail(codes.InvalidArgument, "Query doesn't allow pulling data")}
	runsAgain := testserver.Fault{On: testserver.OnDoGet, SQL: "CREATE TEMP", Times: 1, Do: testserver.Fail(codes.Internal, "table mine exists")}
	for name, send := range map[string]func(r *rig, s *SessionHandle) error{
		"text":  func(r *rig, s *SessionHandle) error { return drained(s.QueryWithOptions(r.Context(), sql, asQuery)) },
		"again": func(r *rig, s *SessionHandle) error { return drained(s.QueryWithOptions(r.Context(), sql, asQuery)) },
		"prepared": func(r *rig, s *SessionHandle) error {
			q, err := s.PrepareQueryWithOptions(r.Context(), sql, asQuery)
			require.NoError(r, err)
			return drained(q.Query(r.Context()))
		},
	} {
		refused := hasNoRows
		if name == "again" {
			refused = runsAgain
		}
		inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
			s := r.session()
			r.srv.Faults().Set(refused)
			err := send(r, s)
			var e *Error
			require.ErrorAs(r, err, &e)
			require.Equal(r, FaultStatement, e.Fault, name)
			require.True(r, e.Partial, name)
			_, err = CollectRows[int64](s.Query(r.Context(), "SELECT * FROM mine"))
			require.NoError(r, err, "it was executed")
			_ = s.Close()
			_, err = CollectRows[int64](r.pool.Query(r.Context(), "SELECT * FROM mine"))
			require.ErrorContains(r, err, "mine does not exist", name)
		})
	}
}

// manyRows are the tuples of a VALUES.
func manyRows(n int) string { return strings.TrimSuffix(strings.Repeat("(1), ", n), ", ") }
