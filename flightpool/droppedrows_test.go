package flightpool

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake has a parser in front of DuckDB, and takes for a command what that does not know, where it is prepared, and
// SHOW DATABASES and CALL always. Their rows are dropped, and the result has no columns.
func TestRowsThatTheServerDropsAreNoEmptyResult(t *testing.T) {
	read := func(sql string, args ...any) func(ctx context.Context, s *SessionHandle) (int, error) {
		return func(ctx context.Context, s *SessionHandle) (int, error) {
			rows, err := CollectRows[int64](s.Query(ctx, sql, args...))
			return len(rows), err
		}
	}
	const withArg = "SUMMARIZE SELECT * FROM t WHERE a = ?"
	calls := map[string]struct {
		run   func(ctx context.Context, s *SessionHandle) (int, error)
		drops bool
	}{
		"a text":         {read("SUMMARIZE t"), false},
		"with values":    {read(withArg, 7), true},
		"SHOW DATABASES": {read("SHOW DATABASES"), true},
		"CALL":           {read("CALL pragma_version()"), true},
		"PreparedQuery": {func(ctx context.Context, s *SessionHandle) (int, error) {
			q, err := s.PrepareQuery(ctx, withArg)
			if err != nil {
				return 0, err
			}
			rows, err := CollectRows[int64](q.Query(ctx, 7))
			return len(rows), err
		}, true},
		"RouteQuery of a change": {func(ctx context.Context, s *SessionHandle) (int, error) { // whose rows are not asked for
			r, err := s.QueryWithOptions(ctx, "DELETE FROM t", QueryOptions{Route: RouteQuery})
			return 1, drained(r, err)
		}, false},
	}
	for _, profile := range []testserver.Profile{testserver.SwanLake(), testserver.Strict()} {
		for name, call := range calls {
			t.Run(fmt.Sprint(profile.Name, " ", name), func(t *testing.T) {
				engine := script.New()
				for _, prefix := range []string{"SUMMARIZE", "SHOW DATABASES", "CALL"} {
					engine.On(prefix, script.Rows(ints("a", 1)))
				}
				inBubbleOn(t, testserver.Options{Profile: profile, Engine: engine}, Config{MaxSize: 1}, func(r *rig) {
					s := r.session()
					_, err := s.Update(r.Context(), "CREATE TABLE t (a BIGINT)")
					require.NoError(r, err)
					n, err := call.run(r.Context(), s)
					if call.drops && profile.Name == "swanlake" {
						require.ErrorContains(r, err, "dropped its rows")
					} else {
						require.NoError(r, err)
						require.Equal(r, 1, n)
					}
					require.NoError(r, s.Close())
					require.NoError(r, drained(r.pool.Query(r.Context(), "SELECT 1")))
					require.EqualValues(r, 1, r.pool.Stats().Opens, "the connection is as good as before")
				})
			})
		}
	}
}
