package duckdb

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// SwanLake stores what an INSERT is given by the names of its columns.
func TestColumnsInAnotherOrderThanThatOfTheirNamesAreRefused(t *testing.T) {
	pool := newSwanLakePool(t)
	_, err := pool.Update(t.Context(), "CREATE TABLE swanlake.t (a BIGINT, b BIGINT)")
	require.NoError(t, err)
	insert := func(names ...string) error {
		fields := make([]arrow.Field, len(names))
		for i, name := range names {
			fields[i] = arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64}
		}
		batch := record(t, arrow.NewSchema(fields, nil), `[{"`+names[0]+`": 1, "`+names[1]+`": 2}]`)
		_, err := pool.UpdateWithRecordBatch(t.Context(), "INSERT INTO swanlake.t (a, b) VALUES (?, ?)", batch)
		return err
	}
	require.ErrorContains(t, insert("b", "a"), "parameters go by their position")
	require.NoError(t, insert("a", "b"))
	require.NoError(t, insert("1", "2"))
	type row struct{ A, B int64 }
	rows, err := flightpool.CollectRows[row](pool.Query(t.Context(), "SELECT a, b FROM swanlake.t"))
	require.NoError(t, err)
	require.Equal(t, []row{{1, 2}, {1, 2}}, rows)
}
