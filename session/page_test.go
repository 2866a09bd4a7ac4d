package session

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// pages are what gRPC makes of a proxy's pages that stand in place of an answer, and that would
// leave the connection as it was if they were the server's. What a server or proxy has stopped by itself is no answer either.
func pages() map[string]error {
	out := map[string]error{}
	for code, fault := range map[codes.Code]backend.Fault{codes.Unimplemented: backend.FaultUnsupported, codes.PermissionDenied: backend.FaultStatement, codes.Unauthenticated: backend.FaultAuth} {
		out[code.String()] = &backend.Error{Stage: backend.StageExecute, Fault: fault, Err: status.Error(code, "unexpected HTTP status code received from server: 4xx")}
	}
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		out[code.String()] = &backend.Error{Stage: backend.StageExecute, Fault: backend.FaultStatement, Err: status.Error(code, "stopped")}
	}
	return out
}

// A page does not say whether the server has refused an option, and with it the transaction.
func TestAPageInPlaceOfAnOptionsAnswerMayHideAnAbortedTransaction(t *testing.T) {
	for name, page := range pages() {
		for _, aborted := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				conn := &fakeConn{fail: map[string]error{"SetOptions": page}}
				if aborted {
					conn.fail["tx1: SELECT 1"] = sqlError("current transaction is aborted")
				}
				r := newRig(t, conn)
				r.policy.answeredQueries.add(searchPathQuery.key)
				must(t, r.handle.BeginTransaction(t.Context()))
				require.Error(t, r.handle.SetOption(t.Context(), "typo", "x"))
				err := r.handle.Commit(t.Context())
				if aborted {
					require.ErrorIs(t, err, backend.ErrTxAborted, name)
				} else {
					must(t, err)
				}
				_ = r.handle.Close()
			})
		}
	}
}

// What is learned of a server for good is not learned of a proxy's pages.
func TestPagesTeachNothingOfWhereASessionIs(t *testing.T) {
	for name, page := range pages() {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{fail: map[string]error{searchPathQuery.sql: page, namespaceQuery.sql: page}}
			r := newRig(t, conn)
			_, err := r.handle.Update(t.Context(), "INSERT INTO t VALUES (?)", 1)
			require.Error(t, err, name)
			require.NotContains(t, conn.Log(), "Prepare INSERT INTO t VALUES (?)")
			require.False(t, r.policy.nonMovingInserts.has(namespaceUnsupported), name)
			_ = r.handle.Close()
		})
	}
}

// A page is no word that a server has no types which a PIVOT leaves.
func TestPagesDoNotHideTheTypesOfAPivot(t *testing.T) {
	for name, page := range pages() {
		synctest.Test(t, func(t *testing.T) {
			conn := &fakeConn{fail: map[string]error{pivotTypesQuery.sql: page}}
			r := newRig(t, conn)
			res, err := r.handle.QueryWithOptions(t.Context(), "PIVOT t ON x", QueryOptions{Route: RouteQuery})
			must(t, err)
			for res.Next() {
				continue
			}
			must(t, res.Err())
			res.Release()
			_ = r.handle.Close()
			synctest.Wait()
			require.Error(t, r.discarded(), name)
		})
	}
}
