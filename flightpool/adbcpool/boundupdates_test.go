package adbcpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// ClickHouse runs a prepared update with what was bound for a query, whatever comes with the update, and refuses one for which
// nothing was.
func TestAnUpdateHasNotTheParametersOfAQueryBeforeIt(t *testing.T) {
	for _, bound := range []bool{true, false} {
		profile := testserver.Strict()
		profile.BoundUpdates = bound
		for _, kind := range kinds {
			t.Run(kind, func(t *testing.T) {
				inBubble(t, profile, func(r rig) {
					p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize = 1 })
					r.update(p, "CREATE TABLE t (v BIGINT)")
					s, err := p.AcquireSession(r.Context())
					require.NoError(r, err)
					defer func() { require.NoError(r, s.Close()) }()
					q, err := s.PrepareQuery(r.Context(), "INSERT INTO t VALUES (?)")
					require.NoError(r, err)
					for i := range 2 {
						rows, err := q.QueryWithOptions(r.Context(), flightpool.QueryOptions{Route: flightpool.RouteQuery, Args: []any{10 + i}})
						require.NoError(r, err)
						require.NoError(r, rows.Close())
						_, err = q.Update(r.Context(), 20+i)
						if !bound || kind == "native" {
							require.NoError(r, err)
						}
						stored, failed := flightpool.CollectRows[int64](s.Query(r.Context(), "SELECT * FROM t"))
						require.NoError(r, failed)
						want := []int64{10, 20, 11, 21}[:2*i+2]
						if err != nil {
							want = []int64{10, 11}[:i+1]
						}
						require.ElementsMatch(r, want, stored)
					}
				})
			})
		}
	}
}
