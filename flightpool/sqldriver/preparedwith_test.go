package sqldriver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake runs what begins with WITH to prepare it, and refuses it as an update then.
func TestExecStoresNothingThatItSaysHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored atomic.Int32
		engine := script.New()
		engine.On("WITH", func(context.Context, string, arrow.RecordBatch) (array.RecordReader, error) {
			stored.Add(1)
			return array.NewRecordReader(arrow.NewSchema(nil, nil), nil)
		})
		server, err := testserver.Start(testserver.Options{Profile: testserver.SwanLake(), Engine: engine, Listen: testserver.InMemory})
		require.NoError(t, err)
		defer func() { require.NoError(t, server.Close()) }()
		pool, err := flightpool.New(t.Context(), "grpc://server:1", flightpool.Config{MaxSize: 1, Dialer: server.Dial})
		require.NoError(t, err)
		defer func() { require.NoError(t, pool.Close(t.Context())) }()
		db := OpenDB(pool)
		defer func() { require.NoError(t, db.Close()) }()

		for _, sql := range []string{
			"WITH a AS (SELECT ? AS x) INSERT INTO t SELECT x FROM a RETURNING x", "WITH a AS (SELECT ? AS x) INSERT INTO t SELECT x FROM a",
		} {
			_, err = db.ExecContext(t.Context(), sql, 7)
			require.ErrorContains(t, err, "write them into the text")
			require.Zero(t, stored.Load(), sql)
		}
		stmt, err := db.PrepareContext(t.Context(), "WITH a AS (SELECT 7 AS x) INSERT INTO t SELECT x FROM a")
		require.NoError(t, err)
		for i := range int32(3) {
			require.Equal(t, i, stored.Load())
			_, err = stmt.ExecContext(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, stmt.Close())
		require.EqualValues(t, 3, stored.Load())
	})
}
