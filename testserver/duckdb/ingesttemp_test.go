package duckdb

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// DuckDB drops the temporary table first where a table is replaced, in a transaction or outside.
func TestAnIngestionTakesAwayNothingOfOnConnects(t *testing.T) {
	type row struct{ A int64 }
	_, pool, session := startAtStart(t, func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "CREATE TEMP TABLE mine (a BIGINT)")
		return err
	})
	start := session()
	for _, opts := range []flightpool.IngestOptions{
		{Mode: flightpool.IngestReplace}, {Temporary: true, Mode: flightpool.IngestReplace}, {Catalog: "temp", Schema: "main", Mode: flightpool.IngestReplace},
		{Mode: flightpool.IngestCreate}, {Temporary: true}, {},
	} {
		for _, table := range []string{"mine", "another"} {
			into := func(q flightpool.Querier) {
				_, _ = flightpool.IngestRows(t.Context(), q, table, slices.Values([]row{}), opts) // some are refused
			}
			into(pool)
			require.Equal(t, start, session(), "%+v into %s", opts, table)
			tx, err := pool.BeginTx(t.Context(), flightpool.TxOptions{})
			require.NoError(t, err)
			into(tx)
			_ = tx.Commit(t.Context())
			require.Equal(t, start, session(), "%+v into %s, in a transaction", opts, table)
			pool.Reset() // what is stored is gone with the session
		}
	}
}
