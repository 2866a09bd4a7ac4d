package session

import (
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/rowscan"
	"github.com/stretchr/testify/require"
)

// batchStream gives out batches that exist.
type batchStream struct {
	schema  *arrow.Schema
	batches []arrow.RecordBatch
}

func (s *batchStream) Schema() *arrow.Schema       { return s.schema }
func (s *batchStream) RowsAffected() (int64, bool) { return 0, false }
func (s *batchStream) Close()                      {}
func (s *batchStream) Next() (arrow.RecordBatch, error) {
	if len(s.batches) == 0 {
		return nil, io.EOF
	}
	b := s.batches[0]
	s.batches = s.batches[1:]
	return b, nil
}

func resultOfBatch(t *testing.T, b arrow.RecordBatch) *QueryResult {
	r := newRig(t, &fakeConn{})
	c, err := r.handle.begin(t.Context(), "Query", QueryOptions{}, cancelWhenLeft)
	require.NoError(t, err)
	return newResult(c, &batchStream{b.Schema(), []arrow.RecordBatch{b}}, nil, nil)
}

func TestRowsReleaseTheResultHoweverTheLoopEnds(t *testing.T) {
	alloc := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer alloc.AssertSize(t, 0)
	b := array.NewInt64Builder(alloc)
	b.AppendValues([]int64{1, 2, 3}, nil)
	col := b.NewArray()
	b.Release()
	batch := array.NewRecordBatch(fakeSchema, []arrow.Array{col}, 3)
	col.Release()
	for range rowscan.Rows[struct{ N int }](resultOfBatch(t, batch)) {
		break
	}
	batch.Release()
}

// A function that defers Release and returns its result, and a second loop over
// one, have lost the rows: that must not look like a result without any.
func TestAReleasedResultIsNotAnEmptyOne(t *testing.T) {
	type row struct{ N int64 }
	reads := map[string]func(r *QueryResult) error{
		"Rows": func(r *QueryResult) (err error) {
			for _, err = range rowscan.Rows[row](r) {
			}
			return err
		},
		"Maps": func(r *QueryResult) (err error) {
			for _, err = range rowscan.Maps(r) {
			}
			return err
		},
		"Batches": func(r *QueryResult) (err error) {
			for _, err = range r.Batches() {
			}
			return err
		},
		"ReadAll": func(r *QueryResult) error {
			table, err := r.ReadAll(t.Context())
			if err == nil {
				table.Release()
			}
			return err
		},
	}
	gone := map[string]func(r *QueryResult){
		"released": func(r *QueryResult) { r.Release() },
		"closed":   func(r *QueryResult) { _ = r.Close() },
		"read":     func(r *QueryResult) { _ = reads["Maps"](r) },
	}
	for name, read := range reads {
		for how, end := range gone {
			r := resultOfBatch(t, int64Batch(1, 2))
			end(r)
			err := read(r)
			require.ErrorIs(t, err, backend.ErrHandleClosed, "%s of a result that was %s", name, how)
			require.Equal(t, backend.FaultUsage, backend.FaultIn(err))
			require.NoError(t, r.Err(), "it is the reader's own doing")
		}
		r := resultOfBatch(t, int64Batch(1, 2))
		for r.Next() {
		}
		require.NoError(t, read(r), "%s of what is left: nothing", name)
	}
}

func TestMapsOfAResultThatFailsEndWithItsError(t *testing.T) {
	r := resultOfBatch(t, int64Batch(1, 2))
	cause := errors.New("cut")
	seen := 0
	var last error
	for row, err := range rowscan.Maps(r) {
		if seen == 0 {
			r.interrupt(cause)
		}
		if last = err; err == nil {
			require.NotNil(t, row)
			seen++
		}
	}
	require.Equal(t, 2, seen, "the batch at hand is read to its end")
	require.ErrorIs(t, last, cause)
}
