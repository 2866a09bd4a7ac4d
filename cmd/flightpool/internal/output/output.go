// Package output writes the batches of a result as a table, CSV, lines of JSON,
// an Arrow IPC stream or Parquet. No writer keeps more than one batch, but for
// Parquet, which keeps a row group, of 16 MiB as Arrow data.
package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Format is a form of output.
type Format string

// The forms of output.
const (
	Table   Format = "table"
	CSV     Format = "csv"
	JSON    Format = "json"
	Arrow   Format = "arrow"
	Parquet Format = "parquet"
)

// Formats are all of them.
func Formats() []Format { return []Format{Table, CSV, JSON, Arrow, Parquet} }

// Parse finds a format by its name.
func Parse(name string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if name == string(f) {
			return f, nil
		}
		names = append(names, string(f))
	}
	return "", fmt.Errorf("no format %q: it is one of %s", name, strings.Join(names, ", "))
}

// Binary reports whether the format is no text.
func (f Format) Binary() bool { return f == Arrow || f == Parquet }

// A Writer writes the batches of one result.
type Writer interface {
	Write(batch arrow.RecordBatch) error
	Close() error // writes what is left, and does not close the io.Writer
}

// New makes a Writer of results with that schema.
func New(f Format, w io.Writer, schema *arrow.Schema) (Writer, error) {
	switch f {
	case CSV:
		return newCSV(w, schema)
	case JSON:
		return &jsonWriter{out: w}, nil
	case Arrow:
		return newArrow(w, schema), nil
	case Parquet:
		return newParquet(w, schema)
	default:
		return newTable(w, schema), nil
	}
}
