package duckdb

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
)

// SwanLake loads the parameters of an INSERT in bulk, but for those of a single row that are bound by themselves.
func TestAnInsertOfOneRowIsExecutedAsItIsWritten(t *testing.T) {
	pool := newSwanLakePool(t)
	ctx := t.Context()
	for _, sql := range []string{
		"CREATE TABLE swanlake.d (id INTEGER, n BIGINT DEFAULT 5, s VARCHAR, day DATE, time TIMESTAMP, zoned TIMESTAMPTZ, clock TIME, price DECIMAL(6, 2), tags VARCHAR[])", "CREATE SCHEMA swanlake.sales", "CREATE TABLE swanlake.sales.d (id SMALLINT)",
		"CREATE TABLE swanlake.k (id INTEGER PRIMARY KEY, n INTEGER)",
	} {
		_, err := pool.Update(ctx, sql)
		require.NoError(t, err, sql)
	}
	s, err := pool.AcquireSession(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	stored := func(sql string, args ...any) {
		t.Helper()
		done, err := s.Update(ctx, sql, args...)
		require.NoError(t, err, sql)
		require.EqualValues(t, 1, done.RowsAffected)
	}
	refused := func(words, sql string, args ...any) {
		t.Helper()
		_, err := s.Update(ctx, sql, args...)
		require.ErrorContains(t, err, words, sql)
		var told *flightpool.Error
		require.ErrorAs(t, err, &told)
		require.False(t, told.Partial)
		require.NotEqual(t, backend.StageFetch, told.Stage)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	stored("INSERT INTO swanlake.d (ID) VALUES (?)", 1)
	stored("INSERT INTO swanlake.d (ID, s) VALUES (? + 1, upper(?))", 1, "x")
	stored("INSERT INTO swanlake.d (id, day, time, clock, price) VALUES (?, ?, ?, ?, ?)", 3, at, at, at, "12.5")
	stored("INSERT INTO swanlake.d (id, n, zoned) VALUES (?, ?, ?)", 4, 4, at) // not bound
	stored("INSERT INTO swanlake.d (id, n, tags) VALUES (?, ?, ?)", 5, 5, []string{"a"})
	refused("Conversion Error", "INSERT INTO swanlake.d (id) VALUES (?)", 1<<40)
	refused("Conversion Error", "INSERT INTO swanlake.d (id) VALUES (?)", "one")
	refused("Table with name d does not exist", "INSERT INTO d (id) VALUES (?)", 1)
	refused("send its rows one by one", "INSERT INTO swanlake.d (id, zoned) VALUES (? + 1, ?)", 1, at)
	stored("INSERT INTO swanlake.k VALUES (?, ?)", 1, 1)
	refused("Constraint Error", "INSERT INTO swanlake.k VALUES (?, ?)", 1, 2)
	stored("INSERT INTO swanlake.k VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET n = excluded.n", 1, 3)
	_, err = s.Update(ctx, "USE swanlake.sales")
	require.NoError(t, err)
	stored("INSERT INTO d VALUES (?)", 7)
	stored("INSERT INTO swanlake.d VALUES (?)", 8)
	q, err := s.PrepareQuery(ctx, "INSERT INTO d VALUES (? * 10)")
	require.NoError(t, err)
	for id := range 2 {
		_, err = q.Update(ctx, id)
		require.NoError(t, err)
	}
	_, err = q.Update(ctx, 1<<20)
	require.ErrorContains(t, err, "Conversion Error")
	_, err = q.Update(ctx, 2)
	require.NoError(t, err)

	texts, err := flightpool.CollectRows[string](s.Query(ctx, "SELECT concat_ws(' ', id, n, s, day, time, epoch(zoned), clock, price, tags) FROM swanlake.main.d ORDER BY id"))
	require.NoError(t, err)
	require.Equal(t, []string{"1 5", "2 5 X", "3 5 2026-01-02 2026-01-02 03:04:05.000006 03:04:05.000006 12.50", fmt.Sprintf("4 4 %d.000006", at.Unix()), "5 5 [a]"}, texts)
	ids, err := flightpool.CollectRows[int64](s.Query(ctx, "SELECT id FROM swanlake.sales.d ORDER BY id"))
	require.NoError(t, err)
	require.Equal(t, []int64{0, 7, 8, 10, 20}, ids)
	n, err := flightpool.CollectRows[int64](s.Query(ctx, "SELECT n FROM swanlake.main.k"))
	require.NoError(t, err)
	require.Equal(t, []int64{3}, n)
	require.EqualValues(t, 1, pool.Stats().Opens)
}
