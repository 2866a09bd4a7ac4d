package duckdb

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// SwanLake tells the columns that parameters are for in the order of the text. A time for a date must not be taken for
// one of another column.
func TestParametersWithNumbersAreSentInTheirOwnForm(t *testing.T) {
	pool := newSwanLakePool(t)
	ctx := t.Context()
	for _, sql := range []string{"CREATE TABLE swanlake.o (id INTEGER, due DATE, made TIMESTAMP)", "INSERT INTO swanlake.o VALUES (1, NULL, NULL)"} {
		_, err := pool.Update(ctx, sql)
		require.NoError(t, err, sql)
	}
	due, made := time.Date(2024, 5, 1, 0, 0, 0, 0, time.FixedZone("", 2*60*60)), time.Date(2024, 5, 2, 10, 30, 0, 0, time.UTC)
	_, err := pool.Update(ctx, "UPDATE swanlake.o SET due = $2 WHERE id = $1", 1, due)
	require.NoError(t, err)
	_, err = pool.Update(ctx, "INSERT INTO swanlake.o (id, made, due) VALUES ($1, $3, $2)", 2, due, made)
	require.NoError(t, err)
	rows, err := flightpool.CollectRows[string](pool.Query(ctx, "SELECT concat_ws(' ', id, due, made) FROM swanlake.o ORDER BY id"))
	require.NoError(t, err)
	require.Equal(t, []string{"1 2024-05-01", "2 2024-05-01 2024-05-02 10:30:00"}, rows)
	ids, err := flightpool.CollectRows[int64](pool.Query(ctx, "SELECT id FROM swanlake.o WHERE made = $2 AND due = $1", due, made))
	require.NoError(t, err)
	require.Equal(t, []int64{2}, ids)
}
