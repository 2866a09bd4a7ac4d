package adbcpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// Older releases of StarRocks give prepared statements no handles, and run by any what the session was sent last.
func TestNoStatementRunsInPlaceOfAnotherThatHasNoHandle(t *testing.T) {
	profile := testserver.Strict()
	profile.NoHandles = true
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, profile, func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize = 1 })
				r.update(p, "CREATE TABLE t (v BIGINT)")
				s, err := p.AcquireSession(r.Context())
				require.NoError(r, err)
				defer func() { _ = s.Close() }()
				const insert = "INSERT INTO t VALUES (1) RETURNING v"
				read, err := s.PrepareQuery(r.Context(), "SELECT count(*) FROM t")
				if err == nil {
					rows, err := s.QueryWithOptions(r.Context(), insert, flightpool.QueryOptions{Route: flightpool.RouteQuery})
					require.NoError(r, err)
					require.NoError(r, rows.Close())
					rows, err = read.Query(r.Context())
					require.NoError(r, err)
					require.NoError(r, rows.Close())
					require.Equal(r, 1, r.executions(insert))
				}
				require.ErrorContains(r, err, "handle")
			})
		})
	}
}
