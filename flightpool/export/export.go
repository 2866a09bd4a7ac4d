package export

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Format is a form in which a result is written.
type Format string

// The forms.
const (
	CSV     Format = "csv"
	JSON    Format = "json"
	Arrow   Format = "arrow"
	Parquet Format = "parquet"
)

// Formats are all of them.
func Formats() []Format { return []Format{CSV, JSON, Arrow, Parquet} }

// Write writes all rows of a result to w and returns how many it wrote. It reads the
// result to its end, where a result of a pool gives its connection back by itself; after
// an error, Release does so. Write neither releases the result nor closes w.
//
// The error is that of the result, of w, or of a value that the form lacks. Only without
// one is the output whole.
func Write(w io.Writer, rows array.RecordReader, f Format) (int64, error) {
	out, err := NewWriter(w, rows.Schema(), f)
	if err != nil {
		return 0, err
	}
	if held, ok := out.(*arrowWriter); ok {
		defer func() { _ = held.release() }() // also without Close
	}
	var n int64
	for rows.Next() {
		batch := rows.RecordBatch()
		if err := out.Write(batch); err != nil {
			return n, err
		}
		n += batch.NumRows()
	}
	if err := rows.Err(); err != nil {
		return n, err // without Close, so that a file of Parquet has no footer
	}
	return n, out.Close()
}

// A Writer writes batches that come one by one. It keeps none of them behind Write, but for the dictionaries of the last one
// as Arrow, up to Close or an error.
type Writer interface {
	Write(batch arrow.RecordBatch) error
	// Close writes what is left. It does not close the io.Writer, and is not called after an error.
	Close() error
}

// NewWriter makes a Writer of batches with that schema.
func NewWriter(w io.Writer, schema *arrow.Schema, f Format) (Writer, error) {
	switch f {
	case CSV:
		return newCSV(w, schema)
	case JSON:
		return &jsonWriter{out: w}, nil
	case Arrow:
		return newArrow(w, schema)
	case Parquet:
		return newParquet(w, schema)
	}
	return nil, fmt.Errorf("export: no format %q: it is one of %v", f, Formats())
}
