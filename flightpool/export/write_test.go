package export

import (
	"bytes"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/stretchr/testify/require"
)

// failing is a result that breaks off behind its first batch.
type failing struct {
	array.RecordReader
	err error
}

func (f failing) Err() error { return f.err }

func readerOf(t *testing.T, batches ...arrow.RecordBatch) array.RecordReader {
	t.Helper()
	rows, err := array.NewRecordReader(schema, batches)
	require.NoError(t, err)
	return rows
}

func TestWriteCountsTheRows(t *testing.T) {
	for _, f := range Formats() {
		var out bytes.Buffer
		n, err := Write(&out, readerOf(t, batchOf(t, "m"), batchOf(t, "a")), f)
		require.NoError(t, err)
		require.EqualValues(t, 6, n, f)
		require.Equal(t, f == Arrow, bytes.HasSuffix(out.Bytes(), endOfStream))
	}
}

// endOfStream is what an Arrow stream ends with.
var endOfStream = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

func TestAResultThatFailsIsNotWrittenToAnEnd(t *testing.T) {
	broken := errors.New("broken")
	for _, f := range Formats() {
		var out bytes.Buffer
		n, err := Write(&out, failing{readerOf(t, batchOf(t, "m")), broken}, f)
		require.ErrorIs(t, err, broken)
		require.EqualValues(t, 3, n)
		require.False(t, bytes.HasSuffix(out.Bytes(), endOfStream))
		if f == Parquet {
			_, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
			require.Error(t, err)
		}
	}
}

// full is a disk that takes so many bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

func TestADiskThatIsFullIsAnError(t *testing.T) {
	for _, f := range Formats() {
		var out bytes.Buffer
		_, err := Write(&out, readerOf(t, batchOf(t, "m"), batchOf(t, "a")), f)
		require.NoError(t, err)
		for left := 0; left < out.Len(); left += 7 {
			_, err := Write(&full{left}, readerOf(t, batchOf(t, "m"), batchOf(t, "a")), f)
			require.ErrorContains(t, err, "no space left", "%s, %d of %d bytes", f, left, out.Len())
		}
	}
}

func TestAnEmptyResultIsWrittenWhole(t *testing.T) {
	for _, f := range Formats() {
		var out bytes.Buffer
		n, err := Write(&out, readerOf(t), f)
		require.NoError(t, err)
		require.Zero(t, n)
		if f == CSV {
			require.Equal(t, "s,b,f,n,d,l\n", out.String())
		}
		if f == Parquet {
			read, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
			require.NoError(t, err)
			require.Zero(t, read.NumRows())
		}
	}
	_, err := Write(nil, readerOf(t), "xml")
	require.ErrorContains(t, err, `no format "xml": it is one of [csv json arrow parquet]`)
}
