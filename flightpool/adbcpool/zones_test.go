package adbcpool

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/script"
	"github.com/stretchr/testify/require"
)

// Arrow compares types of large lists and dictionaries by reflection, which finds them different once
// somebody has read a time of one of them, and panics where a table is made of the two.
func TestWhatIsLeftOfAResultCanBeReadWhenItsTimesHaveBeen(t *testing.T) {
	times := arrow.LargeListOf(&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
	coded := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "at", Type: times, Nullable: true}, {Name: "c", Type: coded, Nullable: true}}, nil)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"at":["2026-01-02T03:04:05Z"],"c":"a"}]`))
	require.NoError(t, err)
	answers := script.New()
	answers.On("SELECT 1", script.Rows(batch, batch))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := testserver.Start(testserver.Options{Engine: answers, Listen: testserver.InMemory})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				r := rig{t, s}
				pool := r.pool(kind)
				result, err := pool.Query(r.Context(), "SELECT 1")
				require.NoError(r, err)
				require.True(r, result.Next())
				require.NotNil(r, rowscan.Value(result.RecordBatch().Column(0), 0))
				table, err := result.ReadAll(r.Context())
				require.NoError(r, err)
				require.Equal(r, int64(1), table.NumRows())
				table.Release()
			})
		})
	}
}
