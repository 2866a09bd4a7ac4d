package duckdb

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// Only what runs a query to prepare it fails as it prepares SELECT error('…').
func TestAChangeBehindAWithIsStoredOnceOrRefused(t *testing.T) {
	asGizmoSQL := testserver.Strict()
	asGizmoSQL.Name, asGizmoSQL.IgnoreTxID, asGizmoSQL.EndsAnyTx, asGizmoSQL.AbortedCommitOK = "as GizmoSQL", true, true, true
	for _, profile := range []testserver.Profile{testserver.SwanLake(), asGizmoSQL} {
		t.Run(profile.Name, func(t *testing.T) {
			srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: profile})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, srv.Close()) })
			pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
			_, err = pool.Update(t.Context(), "CREATE TABLE t (x BIGINT)")
			require.NoError(t, err)
			count := func() (rows, nulls int) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*), count(*) - count(x) FROM t").Scan(&rows, &nulls))
				return rows, nulls
			}
			_, err = pool.Update(t.Context(), "WITH a AS (SELECT ?::BIGINT AS x) INSERT INTO t SELECT x FROM a", 7)
			rows, nulls := count()
			require.Zero(t, nulls)
			if profile.Name == "swanlake" {
				require.ErrorContains(t, err, "write them into the text")
				require.Zero(t, rows)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, rows)
		})
	}
}
