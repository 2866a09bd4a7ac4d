package duckdb

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// SwanLake stores rows that it does not bind, as several are, in the schema main, wherever the session is. That the connection is closed behind them changes nothing of it.
func TestRowsForAnotherSchemaAreRefusedOnAConnectionThatIsClosedNext(t *testing.T) {
	srv, err := Start(t.Context(), Config{}, testserver.Options{Profile: testserver.SwanLake()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	open := func(cfg flightpool.Config) *flightpool.FlightSQLPool {
		cfg.MaxSize = 1
		pool, err := flightpool.New(t.Context(), srv.URI(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
		return pool
	}
	admin := open(flightpool.Config{})
	for _, sql := range []string{"CREATE SCHEMA swanlake.sales", "CREATE TABLE swanlake.sales.d (id BIGINT, at_time TIMESTAMPTZ)", "CREATE TABLE swanlake.main.d (id BIGINT, at_time TIMESTAMPTZ)"} {
		_, err := admin.Update(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	pool := open(flightpool.Config{OnReturn: flightpool.ResetDiscard, OnConnect: func(ctx context.Context, s *flightpool.SessionHandle) error {
		_, err := s.Update(ctx, "USE swanlake.sales")
		return err
	}})
	const insert = "INSERT INTO d (id) VALUES (?)"
	_, err = pool.Update(t.Context(), insert, 1)
	require.NoError(t, err)
	rows := record(t, columns(arrow.PrimitiveTypes.Int64), `[{"a": 2}, {"a": 3}]`)
	_, err = pool.UpdateWithRecordBatch(t.Context(), insert, rows)
	require.ErrorContains(t, err, "the schema main")
	_, err = pool.Update(t.Context(), "INSERT INTO d VALUES (?, ?)", 4, time.Now()) // which is not bound
	require.ErrorContains(t, err, "the schema main")
	var n, elsewhere int64
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM swanlake.sales.d), (SELECT count(*) FROM swanlake.main.d)").Scan(&n, &elsewhere))
	require.Equal(t, []int64{1, 0}, []int64{n, elsewhere})
}
