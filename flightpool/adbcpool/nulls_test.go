package adbcpool

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
)

// GizmoSQL takes a NULL among the parameters for the text null, which a column of texts stores.
func TestANullIsNotStoredAsAText(t *testing.T) {
	profile := testserver.GizmoSQL()
	profile.NullsAsText = true
	profile.SQLInfo = map[flightsql.SqlInfo]any{flightsql.SqlInfoFlightSqlServerName: "gizmosql"}
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := script.New()
				engine.On("SELECT CAST(? AS VARCHAR)", func(_ context.Context, _ string, params arrow.RecordBatch) (array.RecordReader, error) {
					if params == nil { // it is prepared
						return array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true}}, nil), nil)
					}
					return array.NewRecordReader(params.Schema(), []arrow.RecordBatch{params})
				})
				s, err := testserver.Start(testserver.Options{Profile: profile, Engine: engine, Listen: testserver.InMemory})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				r := rig{t, s}
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize = 1 })
				r.update(p, "CREATE TABLE t (k BIGINT, s VARCHAR)")
				_, err = p.Update(r.Context(), "INSERT INTO t VALUES (?, ?)", 1, nil)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
				_, err = p.Query(r.Context(), "SELECT * FROM t WHERE s = ?", nil)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
				_, err = p.Update(r.Context(), "INSERT INTO t VALUES (?, ?)", 2, "x")
				require.NoError(r, err)
				require.EqualValues(r, 1, r.count(p, "t"))
				rows, err := array.NewRecordReader(arrow.NewSchema([]arrow.Field{{Name: "b", Type: &arrow.FixedSizeBinaryType{ByteWidth: 4}}}, nil), nil)
				require.NoError(r, err)
				_, err = p.Ingest(r.Context(), "u", rows, flightpool.IngestOptions{}) // of which it stores a text, too
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err), "%v", err)
				require.ErrorContains(r, err, "a text of its own")
				require.EqualValues(r, 1, p.Stats().Opens)
			})
		})
	}
}
