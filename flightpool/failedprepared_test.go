package flightpool

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// DazzleDuck's JDBC driver closes a prepared change whose execution fails.
func TestAPreparedChangeGoesOnBehindAnExecutionThatHasFailed(t *testing.T) {
	profile := testserver.Strict()
	profile.ClosesFailed = true
	for name, args := range map[string]func(x int64) []any{
		"a value":      func(x int64) []any { return []any{x} },
		"a batch":      func(x int64) []any { return []any{ints("x", x)} },
		"several rows": func(x int64) []any { return []any{ints("x", x, x+10)} },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
				ctx := r.Context()
				r.exec("CREATE TABLE t (x BIGINT PRIMARY KEY)")
				r.exec("INSERT INTO t VALUES (1)")
				s := r.session()
				defer func() { require.NoError(r, s.Close()) }()
				q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
				require.NoError(r, err)
				for range 2 {
					_, err = q.Update(ctx, args(1)...)
					require.ErrorContains(r, err, "uplicate", "there is a row 1")
				}
				_, err = q.Update(ctx, args(2)...)
				require.NoError(r, err)
				require.Equal(r, "1", r.value(s, "SELECT count(*) FROM t WHERE x = 2"))
			})
		})
	}
}

// What changes something and returns rows is not prepared again where that may be to run it: these servers would have each
// later execution refused for it, although the caller has named the route.
func TestAPreparedChangeWithRowsGoesOnBehindAnExecutionThatHasFailed(t *testing.T) {
	gizmo := queueing()
	gizmo.MaxStatements = 0
	for _, profile := range []testserver.Profile{gizmo, testserver.SwanLake(), testserver.Strict()} {
		for _, route := range []Route{RouteQuery, RouteUpdate} {
			t.Run(fmt.Sprint(profile.Name, " ", route), func(t *testing.T) {
				cfg := Config{MaxSize: 1}
				if profile.SessionKey == testserver.ByBearer {
					cfg.Auth = BasicAuth("u", "p")
				}
				inBubble(t, profile, cfg, func(r *rig) {
					ctx := r.Context()
					table := r.bulkTable()
					r.exec("CREATE TABLE " + table + " (x BIGINT PRIMARY KEY)")
					r.exec("INSERT INTO " + table + " VALUES (1)")
					s := r.session()
					defer func() { require.NoError(r, s.Close()) }()
					q, err := s.PrepareQueryWithOptions(ctx, "INSERT INTO "+table+" VALUES (?) RETURNING x", QueryOptions{Route: route})
					require.NoError(r, err)
					run := func(x int64) error { return drained(q.Query(ctx, x)) }
					for range 2 {
						require.ErrorContains(r, run(1), "uplicate", "there is a row 1")
					}
					require.NoError(r, run(2))
					require.Equal(r, "1", r.value(s, "SELECT count(*) FROM "+table+" WHERE x = 2"))
				})
			})
		}
	}
}

// SwanLake runs a read to prepare it, with NULLs: who has a deadline for an execution might never come to it.
func TestAPreparedReadIsNotPreparedAgainBehindAnExecutionThatHasFailed(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		defer func() { require.NoError(r, s.Close()) }()
		q, err := s.PrepareQuery(r.Context(), "SELECT ?")
		require.NoError(r, err)
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnStatement, SQL: "SELECT ?", Times: 1, Do: testserver.Fail(codes.Internal, "no")})
		require.ErrorContains(r, drained(q.Query(r.Context(), int64(7))), "no")
		r.srv.Faults().Clear()
		r.srv.Faults().Set(testserver.Fault{On: "CreatePreparedStatement", SQL: "SELECT ?", Do: testserver.Fail(codes.Internal, "it is run")})
		require.NoError(r, drained(q.Query(r.Context(), int64(7))))
	})
}
