package export

import (
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// fewWrites is a writer that takes so many writes.
type fewWrites struct{ left int }

func (f *fewWrites) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// cutRows are rows that end in an error.
type cutRows struct{ array.RecordReader }

func (cutRows) Err() error { return errors.New("the server has gone") }

// writeBatches writes batch by batch up to an error, behind which there is no Close.
func writeBatches(w io.Writer, rows array.RecordReader, f Format) error {
	out, err := NewWriter(w, rows.Schema(), f)
	for err == nil && rows.Next() {
		err = out.Write(rows.RecordBatch())
	}
	if err == nil {
		err = errors.Join(out.Close(), rows.Err())
	}
	return err
}

// Nothing is kept of a result that could not be written, or ends in an error: its memory may be another's than Go's.
func TestNothingIsKeptOfWhatHasFailed(t *testing.T) {
	for how, write := range map[string]func(w io.Writer, rows array.RecordReader, f Format) error{
		"Write":     func(w io.Writer, rows array.RecordReader, f Format) error { _, err := Write(w, rows, f); return err },
		"NewWriter": writeBatches,
	} {
		for _, f := range Formats() {
			for _, writes := range []int{0, 1, 2, 3, 5, 8, 13, 21, 1000} {
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				rows := codedRows(t, mem)
				require.Error(t, write(&fewWrites{writes}, cutRows{rows}, f))
				rows.Release()
				require.Zero(t, mem.CurrentAlloc(), "%s as %s, %d writes", how, f, writes)
			}
		}
	}
}

// codedRows are batches with a dictionary each.
func codedRows(t *testing.T, mem memory.Allocator) array.RecordReader {
	b := array.NewDictionaryBuilder(mem, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}).(*array.BinaryDictionaryBuilder)
	defer b.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: b.Type(), Nullable: true}}, nil)
	var batches []arrow.RecordBatch
	for _, text := range []string{"a", "b", "b\x00"} {
		require.NoError(t, b.AppendString(text))
		column := b.NewArray()
		defer column.Release()
		b.ResetFull()
		batch := array.NewRecordBatch(schema, []arrow.Array{column}, 1)
		defer batch.Release()
		batches = append(batches, batch)
	}
	rows, err := array.NewRecordReader(schema, batches)
	require.NoError(t, err)
	return rows
}
