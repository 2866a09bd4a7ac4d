// Package output writes the batches of a result as package export does, or as a table.
// No writer keeps more than one batch, but for Parquet, which keeps a row group, of 16 MiB
// as Arrow data.
package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/flightpool/export"
)

// Format is a form of output.
type Format = export.Format

// The forms of output, beside those of package export.
const (
	Table   Format = "table"
	CSV            = export.CSV
	JSON           = export.JSON
	Arrow          = export.Arrow
	Parquet        = export.Parquet
)

// Formats are all of them.
func Formats() []Format { return append([]Format{Table}, export.Formats()...) }

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

// Binary reports whether a format is no text.
func Binary(f Format) bool { return f == Arrow || f == Parquet }

// New makes a Writer of results with that schema.
func New(f Format, w io.Writer, schema *arrow.Schema) (export.Writer, error) {
	if f == Table {
		return newTable(w, schema), nil
	}
	return export.NewWriter(w, schema, f)
}
