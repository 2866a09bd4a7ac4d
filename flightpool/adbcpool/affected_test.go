package adbcpool

import (
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// SwanLake tells in a header how many rows a change has touched that it was sent as a query, as one row of an INSERT is, and
// so shows that it has taken a read for a command and dropped its rows.
func TestWhatSwanLakeCountsInAHeaderIsTold(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "name", Type: arrow.BinaryTypes.String}}, nil))
				defer names.Release()
				names.Field(0).(*array.StringBuilder).Append("lake")
				databases := names.NewRecordBatch()
				defer databases.Release()
				engine := script.New()
				engine.On("SHOW DATABASES", script.Rows(databases))
				server, err := testserver.Start(testserver.Options{Profile: testserver.SwanLake(), Engine: engine, Listen: testserver.InMemory})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, server.Close()) })
				r := rig{t, server}
				s, err := r.pool(kind).AcquireSession(r.Context())
				require.NoError(r, err)
				defer func() { require.NoError(r, s.Close()) }()
				for _, sql := range []string{"USE swanlake", "CREATE TABLE t (v BIGINT)"} {
					_, err := s.Update(r.Context(), sql)
					require.NoError(r, err)
				}
				done, err := s.Update(r.Context(), "INSERT INTO swanlake.t VALUES (?)", 1)
				require.NoError(r, err)
				require.EqualValues(r, 1, done.RowsAffected)
				rows, err := s.QueryWithOptions(r.Context(), "DELETE FROM swanlake.t", flightpool.QueryOptions{Route: flightpool.RouteQuery})
				require.NoError(r, err)
				require.NoError(r, rows.Close())
				_, told := rows.RowsAffected()
				require.True(r, told)
				_, err = s.Query(r.Context(), "SHOW DATABASES")
				require.ErrorContains(r, err, "dropped its rows")
			})
		})
	}
}
