package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// ClickHouse runs a prepared update with what was bound for a query, whatever comes with the update.
func TestAnUpdateHasItsOwnParametersBehindAQuery(t *testing.T) {
	profile := testserver.Strict()
	profile.BoundUpdates = true
	inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
		ctx := r.Context()
		r.exec("CREATE TABLE t (x INT)")
		s, err := r.pool.AcquireSession(ctx)
		require.NoError(r, err)
		defer func() { require.NoError(r, s.Close()) }()
		q, err := s.PrepareQuery(ctx, "INSERT INTO t VALUES (?)")
		require.NoError(r, err)
		_, err = q.Update(ctx, 1)
		require.ErrorContains(r, err, "not bound", "nothing was bound for a query")
		for i := range 3 {
			result, err := q.QueryWithOptions(ctx, QueryOptions{Route: RouteQuery, Args: []any{10 + i}})
			require.NoError(r, err)
			require.NoError(r, result.Close())
			_, err = q.Update(ctx, 20+i)
			require.NoError(r, err)
			for x := 20; x <= 20+i; x++ {
				require.Equal(r, "1", r.value(s, "SELECT count(*) FROM t WHERE x = "+string(rune('0'+x/10))+string(rune('0'+x%10))))
			}
		}
	})
}
