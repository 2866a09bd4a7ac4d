package duckdb

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// SwanLake loads the parameters of an INSERT in bulk, and executes one that is asked for its rows.
func TestAnInsertThatIsAskedForItsRowsIsExecutedAsItIsWritten(t *testing.T) {
	srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: testserver.SwanLake()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	_, err = pool.Update(t.Context(), "CREATE TABLE swanlake.d (id INTEGER, n BIGINT DEFAULT 5, s VARCHAR)")
	require.NoError(t, err)

	_, err = pool.Update(t.Context(), "INSERT INTO swanlake.d (ID) VALUES (?)", 1)
	require.ErrorContains(t, err, `write "id" instead of "ID"`)
	_, err = pool.Update(t.Context(), "INSERT INTO swanlake.d (id) VALUES (?)", 1<<40)
	require.ErrorContains(t, err, `stores NULL in column "id"`)
	r, err := pool.QueryWithOptions(t.Context(), "INSERT INTO swanlake.d (ID, s) VALUES (? + 1, upper(?))", flightpool.QueryOptions{Route: flightpool.RouteQuery, Args: []any{1, "x"}})
	require.NoError(t, err)
	require.NoError(t, r.Close())
	n, known := r.RowsAffected()
	require.True(t, known)
	require.EqualValues(t, 1, n)
	_, err = pool.Update(t.Context(), "INSERT INTO swanlake.d (id) VALUES (?)", 3)
	require.NoError(t, err)

	type row struct {
		ID, N *int64
		S     *string
	}
	two, three, five, x := int64(2), int64(3), int64(5), "X"
	rows, err := flightpool.CollectRows[row](pool.Query(t.Context(), "SELECT * FROM swanlake.d ORDER BY id"))
	require.NoError(t, err)
	require.Equal(t, []row{{&two, &five, &x}, {&three, nil, nil}}, rows, "what is loaded in bulk has no defaults")
}
