package adbcpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// slowRows take a second for each batch, and never end, or fail behind the second, or have another schema from the second on.
type slowRows struct {
	array.RecordReader
	given int
	err   error
	other arrow.RecordBatch // or nil
}

func newSlowRows(t *testing.T, err error) *slowRows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	batch := b.NewRecordBatch()
	inner, e := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	require.NoError(t, e)
	return &slowRows{RecordReader: inner, err: err}
}

func newRowsOfTwoSchemas(t *testing.T) *slowRows {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int32}}, nil))
	defer b.Release()
	b.Field(0).(*array.Int32Builder).Append(1)
	rows := newSlowRows(t, nil)
	rows.other = b.NewRecordBatch()
	return rows
}

func (r *slowRows) RecordBatch() arrow.RecordBatch {
	if r.given > 1 && r.other != nil {
		return r.other
	}
	return r.RecordReader.RecordBatch()
}

func (r *slowRows) Next() bool {
	time.Sleep(time.Second)
	if r.given++; r.given > 2 && r.err != nil {
		return false
	}
	return r.given > 1 || r.RecordReader.Next()
}

func (r *slowRows) Err() error {
	if r.given > 2 {
		return r.err
	}
	return nil
}

// No connection is lent again on which an ingestion may go on: what the next borrower changed would run in its transaction.
func TestAnIngestionThatIsCutCostsItsConnection(t *testing.T) {
	for kind, opens := range map[string]uint64{"native": 1, "open": 1, "new": 2} {
		for name, broken := range map[string]error{"left": nil, "failed": errors.New("the file is corrupt")} {
			t.Run(kind+" "+name, func(t *testing.T) {
				inBubble(t, testserver.Strict(), func(r rig) {
					p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize, cfg.MinIdle = 1, -1 })
					r.update(p, "CREATE TABLE t (v BIGINT)")
					ctx, stop := context.WithTimeout(r.Context(), 5500*time.Millisecond)
					defer stop()
					_, err := p.Ingest(ctx, "t", newSlowRows(t, broken), flightpool.IngestOptions{})
					if broken != nil {
						require.ErrorIs(r, err, broken)
					} else {
						require.ErrorIs(r, err, context.DeadlineExceeded)
					}
					rows, err := p.Query(r.Context(), "SELECT count(*) FROM t")
					require.NoError(r, err)
					rows.Release()
					require.Equal(r, opens, p.Stats().Opens)
				})
			})
		}
	}
}

// Drivers find out by themselves, and give their stream up, of which those in C read what the batch is not.
func TestRowsOfTwoSchemasFailAsRowsDo(t *testing.T) {
	for kind, opens := range map[string]uint64{"native": 1, "open": 1, "new": 2} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize, cfg.MinIdle = 1, -1 })
				r.update(p, "CREATE TABLE t (v BIGINT)")
				_, err := p.Ingest(r.Context(), "t", newRowsOfTwoSchemas(t), flightpool.IngestOptions{})
				require.ErrorContains(r, err, "a batch has the schema")
				rows, err := p.Query(r.Context(), "SELECT count(*) FROM t")
				require.NoError(r, err)
				rows.Release()
				require.Equal(r, opens, p.Stats().Opens)
			})
		})
	}
}

// Drivers send the schema of rows that fail at once, and their server would make the table, or drop the one that it replaces.
func TestRowsThatFailAtOnceAreNotSent(t *testing.T) {
	for _, kind := range []string{"native", "open", "new"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize, cfg.MinIdle = 1, -1 })
				r.update(p, "CREATE TABLE t (v BIGINT)")
				r.update(p, "INSERT INTO t VALUES (1)")
				broken := errors.New("the file is not there")
				schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)
				rows := array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) { yield(nil, broken) })
				defer rows.Release()
				_, err := p.Ingest(r.Context(), "t", rows, flightpool.IngestOptions{Mode: flightpool.IngestReplace})
				require.ErrorIs(r, err, broken)
				require.Empty(r, r.server.Ledger().Executions("INGEST t"))
				require.EqualValues(r, 1, p.Stats().Opens)
			})
		})
	}
}
