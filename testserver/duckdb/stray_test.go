//go:build duckdb_arrow

package duckdb

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// COPY FROM DATABASE is several statements to DuckDB. When one fails, its session
// is in an aborted transaction that nobody has begun.
func TestAHandleOutlivesAStatementThatLeavesATransaction(t *testing.T) {
	for _, bad := range []string{"COPY FROM DATABASE memory TO nosuch", "COPY FROM DATABASE memory TO other", "COPY FROM DATABASE memory TO other (DATA)", "IMPORT DATABASE '/nonexistent'"} {
		t.Run(bad, func(t *testing.T) {
			srv, err := Start(t.Context(), Config{}, testserver.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = srv.Close() }) // it ends what a failed test leaves open
			pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 2, HealthCheck: flightpool.HealthCheck{Interval: -1}})
			require.NoError(t, err)
			t.Cleanup(func() { _ = pool.Close(t.Context()) })
			for _, sql := range []string{"CREATE TABLE t AS SELECT 1 AS i", "ATTACH ':memory:' AS other", "CREATE TABLE other.t AS SELECT 'x' AS i, 3 AS j"} {
				_, err = pool.Update(t.Context(), sql)
				require.NoError(t, err)
			}
			h, err := pool.AcquireSession(t.Context())
			require.NoError(t, err)
			_, err = h.Update(t.Context(), "CREATE TEMP TABLE mine AS SELECT 1 AS i")
			require.NoError(t, err)
			_, err = h.Update(t.Context(), bad)
			require.Error(t, err)
			_, err = h.Update(t.Context(), "INSERT INTO t SELECT i + 1 FROM mine")
			require.NoError(t, err)
			require.NoError(t, h.WithTransaction(t.Context(), func(_ context.Context, h *flightpool.SessionHandle) error {
				_, err := h.Update(t.Context(), "INSERT INTO t VALUES (3)")
				return err
			}))
			_ = h.Close()
			res, err := pool.Query(t.Context(), "SELECT count(*) FROM t")
			require.NoError(t, err)
			require.True(t, res.Next())
			require.Equal(t, "3", res.RecordBatch().Column(0).ValueStr(0), "what was answered with nil is stored")
			res.Release()
		})
	}
}
