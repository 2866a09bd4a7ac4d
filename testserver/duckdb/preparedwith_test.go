package duckdb

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
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

// SwanLake stores the parameters of an INSERT as they are, whatever it makes of them, unless they are a row that is bound by itself.
func TestAnInsertStoresWhatItMakesOfItsParametersOrNothing(t *testing.T) {
	asGizmoSQL := testserver.Strict()
	asGizmoSQL.Name, asGizmoSQL.IgnoreTxID, asGizmoSQL.EndsAnyTx, asGizmoSQL.AbortedCommitOK = "as GizmoSQL", true, true, true
	for _, profile := range []testserver.Profile{testserver.SwanLake(), asGizmoSQL, testserver.Strict()} {
		for _, sql := range []string{"INSERT INTO t (x) SELECT ?::BIGINT + 100", "INSERT INTO t VALUES (?::BIGINT + 100)", "INSERT INTO t VALUES (?)"} {
			for name, run := range map[string]func(ctx context.Context, s *flightpool.SessionHandle, sql string, arg any) error{
				"Update": func(ctx context.Context, s *flightpool.SessionHandle, sql string, arg any) error {
					_, err := s.Update(ctx, sql, arg)
					return err
				},
				"in a transaction": func(ctx context.Context, s *flightpool.SessionHandle, sql string, arg any) error {
					return s.WithTransaction(ctx, func(ctx context.Context, s *flightpool.SessionHandle) error {
						_, err := s.Update(ctx, sql, arg)
						return err
					})
				},
				"PreparedQuery": func(ctx context.Context, s *flightpool.SessionHandle, sql string, arg any) error {
					q, err := s.PrepareQuery(ctx, sql)
					if err == nil {
						_, err = q.Update(ctx, arg)
					}
					return err
				},
			} {
				t.Run(profile.Name+" "+name+" "+sql, func(t *testing.T) {
					srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: profile})
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, srv.Close()) })
					pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1})
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
					table, arg, computed := "t", int64(103), sql != "INSERT INTO t VALUES (?)"
					if profile.AppendTo != "" {
						table = profile.AppendTo + ".t"
					}
					if computed {
						arg = 3
					}
					_, err = pool.Update(t.Context(), "CREATE TABLE "+table+" (x BIGINT)")
					require.NoError(t, err)
					s, err := pool.AcquireSession(t.Context())
					require.NoError(t, err)
					sql := strings.Replace(sql, "INTO t", "INTO "+table, 1)
					if computed && profile.AppendTo != "" {
						require.ErrorContains(t, run(t.Context(), s, sql, record(t, arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil), `[{"1": 3}, {"1": 3}]`)), "send its rows one by one")
					}
					err = run(t.Context(), s, sql, arg)
					require.NoError(t, s.Close())
					stored, readErr := flightpool.CollectRows[int64](pool.Query(t.Context(), "SELECT x FROM "+table))
					require.NoError(t, readErr)
					require.NoError(t, err)
					require.Equal(t, []int64{103}, stored)
				})
			}
		}
	}
}
