package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/backend"
)

// routeConn notes by which call each text came.
type routeConn struct {
	*fakeConn
	calls []string
}

func (c *routeConn) Query(ctx context.Context, sql string, call backend.Call) (backend.Stream, error) {
	c.calls = append(c.calls, "query")
	return c.fakeConn.Query(ctx, sql, call)
}

func (c *routeConn) Update(ctx context.Context, sql string, call backend.Call) (int64, error) {
	c.calls = append(c.calls, "update")
	return c.fakeConn.Update(ctx, sql, call)
}

func (c *routeConn) Prepare(ctx context.Context, sql string, call backend.Call) (backend.Prepared, error) {
	p, err := c.fakeConn.Prepare(ctx, sql, call)
	return routePrepared{p, c}, err
}

type routePrepared struct {
	backend.Prepared
	c *routeConn
}

func (p routePrepared) Query(ctx context.Context, params arrow.RecordBatch, call backend.Call) (backend.Stream, error) {
	p.c.calls = append(p.c.calls, "prepared query")
	return p.Prepared.Query(ctx, params, call)
}

func (p routePrepared) Update(ctx context.Context, params arrow.RecordBatch, call backend.Call) (int64, error) {
	p.c.calls = append(p.c.calls, "prepared update")
	return p.Prepared.Update(ctx, params, call)
}

// repeater is a routeConn whose server may execute a query twice.
type repeater struct {
	*routeConn
	repeats bool
	err     error
}

func (c *repeater) RepeatsQueries(context.Context) (bool, error) {
	c.calls = append(c.calls, "asked")
	return c.repeats, c.err
}

// A text goes by the call that executes it once and gives its rows, or nowhere.
func TestATextGoesByItsRouteOrNowhere(t *testing.T) {
	const nowhere = ""
	for sql, tc := range map[string]struct {
		auto, query, update string
		why                 string
	}{
		"SELECT 2":                 {"query", "query", "update", ""},
		"SHOW TABLES":              {"query", "query", "update", ""},
		"INSERT INTO t VALUES (1)": {"update", "query", "update", ""},
		"SET a = 1":                {"update", "query", "update", ""},
		"INSERT 1 RETURNING 1":     {"query", "query", "update", ""},
		"OPTIMIZE t":               {nowhere, "query", "update", "OPTIMIZE returns rows on some servers and none on others"},
		"FROBNICATE t":             {nowhere, "query", "update", "FROBNICATE is not a verb of which it is known"},
		"(1)":                      {nowhere, "query", "update", "does not begin with a verb"},
		"SELECT 'open":             {nowhere, "query", "update", "set QueryOptions.Route"},
		"DELETE FROM t; DELETE FROM t RETURNING 1": {nowhere, "query", "update", "several statements in one text"},
		"SELECT 1; DELETE FROM t":                  {"update", "query", "update", ""},
		"EXPLAIN ANALYZE DELETE FROM t":            {nowhere, "query", "update", "EXPLAIN executes a change here"},
	} {
		for route, want := range map[Route]string{RouteAuto: tc.auto, RouteQuery: tc.query, RouteUpdate: tc.update} {
			synctest.Test(t, func(t *testing.T) {
				conn := &routeConn{fakeConn: &fakeConn{}}
				r := newRig(t, conn.fakeConn)
				r.handle = New(conn, r.policy, r.returned)
				res, err := r.handle.QueryWithOptions(t.Context(), sql, QueryOptions{Route: route})
				if want == nowhere {
					require.ErrorIs(t, err, ErrAmbiguousRoute, sql)
					require.ErrorContains(t, err, tc.why, sql)
					require.Equal(t, backend.FaultUsage, backend.FaultIn(err), sql)
					require.True(t, slices.Equal(conn.calls, nil), "%s: %q", sql, conn.calls)
					return
				}
				require.NoError(t, err, sql)
				res.Release()
				synctest.Wait()
				require.Equal(t, want, conn.calls[len(conn.calls)-1], "%s by route %d", sql, route)
			})
		}
	}
}

func TestARouteThatIsNoneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		_, err := r.handle.QueryWithOptions(t.Context(), "SELECT 1", QueryOptions{Route: RouteUpdate + 1})
		require.ErrorContains(t, err, "Route 3 is not one of")
		_, err = r.handle.PrepareQueryWithOptions(t.Context(), "SELECT 1", QueryOptions{Route: RouteUpdate + 1})
		require.ErrorContains(t, err, "Route 3 is not one of")
		_, err = r.handle.UpdateWithOptions(t.Context(), "INSERT 1", QueryOptions{Route: RouteQuery})
		require.ErrorContains(t, err, "Update sends an update")
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		require.Empty(t, r.conn.Log())
	})
}

func TestThePreparedStatementHasTheRouteOfItsPreparingOrItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &routeConn{fakeConn: &fakeConn{}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		run := func(sql string, prepared, call Route) string {
			q, err := r.handle.PrepareQueryWithOptions(t.Context(), sql, QueryOptions{Route: prepared})
			must(t, err)
			conn.calls = nil
			res, err := q.QueryWithOptions(t.Context(), QueryOptions{Route: call})
			if err != nil {
				require.ErrorIs(t, err, ErrAmbiguousRoute)
				require.Empty(t, conn.calls)
				return "refused"
			}
			for res.Next() {
			}
			must(t, res.Err())
			res.Release()
			return conn.calls[0]
		}
		require.Equal(t, "prepared query", run("SELECT 2", RouteAuto, RouteAuto))
		require.Equal(t, "prepared update", run("SELECT 2", RouteUpdate, RouteAuto))
		require.Equal(t, "prepared query", run("SELECT 2", RouteUpdate, RouteQuery))
		require.Equal(t, "prepared update", run("INSERT 1", RouteAuto, RouteAuto))
		require.Equal(t, "prepared query", run("INSERT 1", RouteQuery, RouteAuto))
		require.Equal(t, "refused", run("FROBNICATE t", RouteAuto, RouteAuto))
	})
}

// On a server that may execute a query twice, what changes something and returns
// rows is not sent.
func TestAChangeWithRowsIsNotSentWhereItMayBeExecutedTwice(t *testing.T) {
	const change = "INSERT 1 RETURNING 1"
	calls := map[string]func(ctx context.Context, s *SessionHandle, sql string, route Route) error{
		"Query": func(ctx context.Context, s *SessionHandle, sql string, route Route) error {
			_, err := s.QueryWithOptions(ctx, sql, QueryOptions{Route: route})
			return err
		},
		"Query with parameters": func(ctx context.Context, s *SessionHandle, sql string, route Route) error {
			_, err := s.QueryWithOptions(ctx, sql, QueryOptions{Route: route, Params: int64Batch(1)})
			return err
		},
		"PrepareQuery": func(ctx context.Context, s *SessionHandle, sql string, route Route) error {
			_, err := s.PrepareQueryWithOptions(ctx, sql, QueryOptions{Route: route})
			return err
		},
	}
	unknown := &backend.Error{Fault: backend.FaultStatement, Stage: backend.StageExecute, Err: errors.New("cannot tell")}
	begun := &backend.Error{Fault: backend.FaultStatement, Stage: backend.StageExecute, Err: status.Error(codes.Internal, "a transaction is open already")}
	words := errors.New("the limit's words")
	limit := &backend.Error{Fault: backend.FaultLimit, Stage: backend.StageExecute, Err: words}
	for name, call := range calls {
		for what, tc := range map[string]struct {
			sql     string
			route   Route
			repeats bool
			err     error
			want    error // nil: it is sent
		}{
			"a repeater":                {sql: change, repeats: true, want: ErrAmbiguousRoute},
			"one that cannot tell":      {sql: change, err: unknown, want: ErrAmbiguousRoute},
			"one that fails":            {sql: change, err: limit, want: words},
			"a transaction may be open": {sql: change, err: begun, want: backend.ErrSessionLost},
			"one that does not":         {sql: change},
			"a route is given":          {sql: change, route: RouteQuery, repeats: true},
			"a read":                    {sql: "SELECT 2", repeats: true},
			"a change without rows":     {sql: "INSERT 1", repeats: true},
		} {
			synctest.Test(t, func(t *testing.T) {
				conn := &repeater{routeConn: &routeConn{fakeConn: &fakeConn{}}, repeats: tc.repeats, err: tc.err}
				r := newRig(t, conn.fakeConn)
				r.handle = New(conn, r.policy, r.returned)
				err := call(t.Context(), r.handle, tc.sql, tc.route)
				asks := tc.sql == change && tc.route == RouteAuto
				require.Equal(t, asks, slices.Contains(conn.calls, "asked"), "%s of %s", name, what)
				if tc.want == nil {
					require.NoError(t, err, "%s of %s", name, what)
					require.NotEmpty(t, r.conn.Log())
					return
				}
				require.ErrorIs(t, err, tc.want, "%s of %s", name, what)
				require.Empty(t, r.conn.Log(), "%s of %s", name, what)
				if errors.Is(tc.want, ErrAmbiguousRoute) {
					require.True(t, backend.FaultIn(err) == backend.FaultUsage, "%s of %s", name, what)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		conn := &repeater{routeConn: &routeConn{fakeConn: &fakeConn{}}, repeats: true}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		_, err := r.handle.UpdateWithRecordBatch(t.Context(), change, int64Batch(1))
		require.ErrorIs(t, err, ErrAmbiguousRoute, "to prepare a text may be to execute it")
		require.NotContains(t, err.Error(), "use Update")
		require.ErrorContains(t, err, "RouteUpdate")
		conn.repeats, conn.err = false, unknown
		_, err = r.handle.UpdateWithRecordBatch(t.Context(), change, int64Batch(1))
		require.ErrorIs(t, err, ErrAmbiguousRoute, "it cannot tell")
		require.ErrorContains(t, err, "set QueryOptions.Route to RouteUpdate where that is done")
		require.Empty(t, r.conn.Log())
		conn.err = nil
		_, err = r.handle.UpdateWithRecordBatch(t.Context(), change, int64Batch(1))
		require.NoError(t, err, "it prepares it alone")
		conn.repeats = true
		_, err = r.handle.UpdateWithOptions(t.Context(), change, QueryOptions{Params: int64Batch(1), Route: RouteUpdate})
		require.NoError(t, err, "as the error says")
		_, err = r.handle.UpdateWithOptions(t.Context(), change, QueryOptions{Params: int64Batch(1), Route: RouteUpdate + 1})
		require.ErrorContains(t, err, "is not one of")
		_, err = r.handle.Update(t.Context(), change)
		require.NoError(t, err, "an update is executed once")
	})
}

// In a transaction that a statement before has left the question whether the server executes a query twice could begin none.
func TestAServerIsNotAskedInATransactionThatCannotBeEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &repeater{routeConn: &routeConn{fakeConn: &fakeConn{fail: map[string]error{"ROLLBACK": transportError()}}}}
		r := newRig(t, conn.fakeConn)
		r.handle = New(conn, r.policy, r.returned)
		r.handle.mu.strayTx = anyTx
		_, err := r.handle.Query(t.Context(), "INSERT 1 RETURNING 1")
		require.ErrorIs(t, err, backend.ErrSessionLost)
		require.NotContains(t, conn.calls, "asked")
		require.NotContains(t, r.conn.Log(), "INSERT 1 RETURNING 1")
		_ = r.handle.Close()
	})
}

func TestATextThatIsPreparedIsOneStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &fakeConn{})
		const two = "INSERT 1; INSERT 2"
		_, err := r.handle.PrepareQuery(t.Context(), two)
		require.ErrorContains(t, err, "this one has 2")
		_, err = r.handle.QueryWithParams(t.Context(), "SELECT 1; SELECT 2", int64Batch(1))
		require.ErrorContains(t, err, "this one has 2")
		_, err = r.handle.UpdateWithRecordBatch(t.Context(), two, int64Batch(1))
		require.ErrorContains(t, err, "this one has 2")
		require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		for _, prepare := range []string{"", "COMMIT"} {
			_, err = r.handle.PrepareQuery(t.Context(), prepare)
			require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
		}
		require.Empty(t, r.conn.Log())
	})
}

type repeatingWorld struct{ *world }

func (repeatingWorld) RepeatsQueries(context.Context) (bool, error) { return true, nil }

// To prepare a statement again for another transaction may be to execute it, as to prepare it was:
// that its caller has said once.
func TestAStatementThatIsExecutedWhilePreparedIsNotPreparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := repeatingWorld{newWorld()}
		s := New(w, &Policy{OwnerContext: t.Context()}, func(error) {})
		ctx := t.Context()
		q, err := s.PrepareQueryWithOptions(ctx, "INSERT INTO t VALUES (7) RETURNING 7", QueryOptions{Route: RouteQuery})
		must(t, err)
		must(t, s.BeginTransaction(ctx))
		_, err = q.Query(ctx)
		require.ErrorIs(t, err, ErrAmbiguousRoute)
		_, err = q.Update(ctx)
		require.ErrorIs(t, err, ErrAmbiguousRoute)
		must(t, s.Commit(ctx))
		res, err := q.Query(ctx)
		must(t, err)
		must(t, res.Close())
		require.Equal(t, map[int]int{7: 1}, w.stored)
		must(t, s.Close())
	})
}
