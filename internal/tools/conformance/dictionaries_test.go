package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
)

// Each batch has a dictionary of its own, which is about that of the batch before.
func TestDictionariesAreIngestedIntoDuckDBAsTheyAre(t *testing.T) {
	addr, _ := startDuckDB(t)
	of := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Float64}
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: of, Nullable: true}}, nil)
	var batches []arrow.RecordBatch
	for i := range 3 {
		only, _, err := array.FromJSON(memory.DefaultAllocator, of.ValueType, strings.NewReader(fmt.Sprintf("[%d.5e-6]", i)))
		require.NoError(t, err)
		index, _, err := array.FromJSON(memory.DefaultAllocator, of.IndexType, strings.NewReader("[0]"))
		require.NoError(t, err)
		batches = append(batches, array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(of, index, only)}, 1))
	}
	for name, pool := range pools(t, addr) {
		_, err := pool.Update(t.Context(), "CREATE OR REPLACE TABLE near (v DOUBLE)")
		require.NoError(t, err, name)
		rows, err := array.NewRecordReader(schema, batches)
		require.NoError(t, err)
		_, err = pool.Ingest(t.Context(), "near", rows, flightpool.IngestOptions{})
		if err != nil && strings.Contains(err.Error(), "leave out") {
			continue // ADBC's own driver
		}
		require.NoError(t, err, name)
		got, err := flightpool.CollectRows[float64](pool.Query(t.Context(), "SELECT v FROM near ORDER BY v"))
		require.NoError(t, err, name)
		require.Equal(t, []float64{0.5e-6, 1.5e-6, 2.5e-6}, got, name)
	}
}
