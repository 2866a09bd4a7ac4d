package adbcpool

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/flightpool/flightpool/testserver"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/script"
)

// keepingEngine keeps what is ingested, as JSON.
type keepingEngine struct {
	engine.Engine
	kept []string
}

type keepingSession struct {
	engine.Session
	e *keepingEngine
}

func (e *keepingEngine) Open(ctx context.Context) (engine.Session, error) {
	s, err := e.Engine.Open(ctx)
	return &keepingSession{s, e}, err
}

func (s *keepingSession) Ingest(_ context.Context, _ engine.IngestTarget, rows array.RecordReader) (int64, error) {
	n := int64(0)
	for rows.Next() {
		batch := rows.RecordBatch()
		for row := range int(batch.NumRows()) {
			s.e.kept = append(s.e.kept, string(rowscan.AppendJSON(nil, batch.Column(0), row)))
			n++
		}
	}
	return n, rows.Err()
}

// codedBatches are batches of a row each, every one with a dictionary of its own.
func codedBatches(t testing.TB, of arrow.DataType, values ...string) (*arrow.Schema, []arrow.RecordBatch) {
	t.Helper()
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: of}
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: dictionary, Nullable: true}}, nil)
	var batches []arrow.RecordBatch
	for _, value := range values {
		index, _, err := array.FromJSON(memory.DefaultAllocator, dictionary.IndexType, strings.NewReader("[0]"))
		require.NoError(t, err)
		only, _, err := array.FromJSON(memory.DefaultAllocator, of, strings.NewReader("["+value+"]"))
		require.NoError(t, err)
		batches = append(batches, array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(dictionary, index, only)}, 1))
	}
	return schema, batches
}

// Arrow's writer leaves out a dictionary that is about the one before: the rows of the next
// batch were stored with the values of the batch before.
func TestRowsAreIngestedWithTheDictionariesThatTheyHave(t *testing.T) {
	for _, kind := range kinds {
		for _, c := range []struct {
			of     arrow.DataType
			values []string
		}{
			{arrow.PrimitiveTypes.Float64, []string{"0.000001", "0.000002", "0.000003", "0.000003"}},
			{arrow.BinaryTypes.String, []string{`"a"`, `"a\u0000"`, `"b"`}},
		} {
			synctest.Test(t, func(t *testing.T) {
				kept := &keepingEngine{Engine: script.New()}
				s, err := testserver.Start(testserver.Options{Engine: kept, Listen: testserver.InMemory})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.Close()) })
				pool := rig{t, s}.pool(kind)
				schema, batches := codedBatches(t, c.of, c.values...)
				rows, err := array.NewRecordReader(schema, batches)
				require.NoError(t, err)
				defer rows.Release()
				_, err = pool.Ingest(t.Context(), "t", rows, flightpool.IngestOptions{})
				if kind == "new" && err != nil { // ADBC's own driver writes itself
					require.ErrorContains(t, err, "dictionar")
					return
				}
				require.NoError(t, err)
				want := []string{}
				for _, b := range batches {
					want = append(want, string(rowscan.AppendJSON(nil, b.Column(0), 0)))
				}
				require.Equal(t, want, kept.kept, "%s, %s", kind, c.of)
			})
		}
	}
}
