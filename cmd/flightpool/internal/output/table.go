package output

import (
	"bufio"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/mattn/go-runewidth"

	"github.com/flightpool/flightpool/flightpool/export"
)

// What decides the widths of a table's columns: the first rows, up to as many,
// up to as much text, and no cell for more than so many characters. A cell that
// is wider is printed whole, and moves what stands to the right of it.
const (
	sampledRows  = 1000
	sampledBytes = 1 << 20
	widestSample = 60
)

// A tableWriter prints rows as they come, in columns as wide as the first rows ask for.
type tableWriter struct {
	out    *bufio.Writer
	schema *arrow.Schema
	widths []int // nil before the header is printed
}

func newTable(w io.Writer, schema *arrow.Schema) *tableWriter {
	return &tableWriter{out: bufio.NewWriter(w), schema: schema}
}

func (t *tableWriter) Write(batch arrow.RecordBatch) error {
	if batch.NumRows() == 0 {
		return nil
	}
	if t.widths == nil {
		t.measure(batch)
		t.header()
	}
	for row := range int(batch.NumRows()) {
		for i, col := range batch.Columns() {
			text := cell(col, row)
			if isNumber(col.DataType()) && !col.IsNull(row) {
				t.cell(i, strings.Repeat(" ", max(0, t.widths[i]-runewidth.StringWidth(text)))+text)
			} else {
				t.cell(i, text)
			}
		}
		if err := t.out.WriteByte('\n'); err != nil {
			return err
		}
	}
	return t.out.Flush()
}

func (t *tableWriter) Close() error {
	if t.widths == nil {
		t.measure(nil)
		t.header()
	}
	return t.out.Flush()
}

// measure decides the widths by the names of the columns and the first rows.
func (t *tableWriter) measure(batch arrow.RecordBatch) {
	t.widths = make([]int, t.schema.NumFields())
	for i, f := range t.schema.Fields() {
		t.widths[i] = runewidth.StringWidth(Printable(f.Name))
	}
	if batch == nil {
		return
	}
	for row, bytes := 0, 0; row < min(int(batch.NumRows()), sampledRows) && bytes < sampledBytes; row++ {
		for i, col := range batch.Columns() {
			text := cell(col, row)
			bytes += len(text)
			t.widths[i] = max(t.widths[i], min(runewidth.StringWidth(text), widestSample))
		}
	}
}

func (t *tableWriter) header() {
	for i, f := range t.schema.Fields() {
		t.cell(i, Printable(f.Name))
	}
	_ = t.out.WriteByte('\n') // errors of a bufio.Writer stay until Flush
	for i, width := range t.widths {
		if i > 0 {
			_ = t.out.WriteByte('+')
		}
		_, _ = t.out.WriteString(strings.Repeat("-", width+2))
	}
	_ = t.out.WriteByte('\n')
}

// cell prints a cell with what separates it from the one before; the last of a
// line is not filled up.
func (t *tableWriter) cell(i int, text string) {
	if i > 0 {
		_, _ = t.out.WriteString(" |")
	}
	_ = t.out.WriteByte(' ')
	if i < len(t.widths)-1 {
		text = runewidth.FillRight(text, t.widths[i])
	}
	_, _ = t.out.WriteString(text)
}

// cell is a value as text on one line.
func cell(col arrow.Array, row int) string {
	text, ok := export.Text(col, row)
	if !ok {
		return "NULL"
	}
	return Printable(text)
}

func isNumber(t arrow.DataType) bool {
	return arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID()) || arrow.IsDecimal(t.ID())
}
