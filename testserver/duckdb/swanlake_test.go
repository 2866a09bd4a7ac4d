package duckdb

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// newSwanLakePool is a pool of one connection to a server of SwanLake's profile, both of which end with the test.
func newSwanLakePool(t *testing.T) *flightpool.FlightSQLPool {
	srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: testserver.SwanLake()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	pool, err := flightpool.New(t.Context(), srv.URI(), flightpool.Config{MaxSize: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	return pool
}
