//go:build duckdb_arrow

package duckdb

import (
	"context"
	"testing"
	"time"

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

// A transaction that DuckDB has left refuses the settings that its session is to put back: it is ended
// before. They are the whole server's.
func TestSettingsArePutBackBehindAStatementThatLeavesATransaction(t *testing.T) {
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	_, err = pool.Update(t.Context(), "CREATE TABLE t AS SELECT 1 AS a")
	require.NoError(t, err)
	for _, bad := range []string{
		"ALTER TABLE t ADD COLUMN b INT DEFAULT error('x')", "COPY FROM DATABASE memory TO nosuch", "CREATE TABLE n AS PIVOT t ON a USING sum(nosuch)", "EXPLAIN PIVOT t ON a USING sum(nosuch)", "PIVOT t ON a USING sum(nosuch)",
	} {
		h, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		_, err = h.Update(t.Context(), "SET threads = 2")
		require.NoError(t, err)
		require.True(t, run(t, h, bad), bad)
		require.NoError(t, h.Close(), bad)
		now, err := allRows(t.Context(), pool, "SELECT current_setting('threads')")
		require.NoError(t, err)
		require.Equal(t, "[3]", now, bad)
	}
	require.EqualValues(t, 1, pool.Stats().Opens)
}

// So are they where the statement was cut, which leaves the same.
func TestSettingsArePutBackBehindAStatementThatIsCutBetweenItsSteps(t *testing.T) {
	srv, err := Start(t.Context(), Config{Settings: map[string]string{"threads": "3"}}, testserver.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1, HealthCheck: flightpool.HealthCheck{Interval: -1}})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close(t.Context())) }()
	_, err = pool.Update(t.Context(), "CREATE TABLE t AS SELECT i % 7 AS a, i AS v FROM range(10000000) r(i)")
	require.NoError(t, err)
	for range 3 {
		h, err := pool.AcquireSession(t.Context())
		require.NoError(t, err)
		_, err = h.Update(t.Context(), "SET threads = 2")
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = h.Update(ctx, "CREATE OR REPLACE TABLE n AS PIVOT t ON a USING sum(v) GROUP BY v")
		stop()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, h.Close())
		now, err := allRows(t.Context(), pool, "SELECT current_setting('threads')")
		require.NoError(t, err)
		require.Equal(t, "[3]", now)
	}
}
