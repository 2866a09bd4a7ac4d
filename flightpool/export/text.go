package export

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/rowscan"
)

// A csvWriter writes RFC 4180's form: NULL is an empty field, an empty text "".
type csvWriter struct{ out *bufio.Writer }

func newCSV(w io.Writer, schema *arrow.Schema) (*csvWriter, error) {
	c := &csvWriter{bufio.NewWriter(w)}
	for i, f := range schema.Fields() {
		c.field(i, f.Name)
	}
	return c, c.endLine()
}

func (c *csvWriter) field(i int, text string) {
	if i > 0 {
		_ = c.out.WriteByte(',') // errors of a bufio.Writer stay until Flush
	}
	if text == "" || strings.ContainsAny(text, "\",\r\n") || text[0] == ' ' || text[len(text)-1] == ' ' {
		text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	_, _ = c.out.WriteString(text)
}

func (c *csvWriter) endLine() error { return c.out.WriteByte('\n') }

func (c *csvWriter) Write(batch arrow.RecordBatch) error {
	columns := batch.Columns()
	for row := range int(batch.NumRows()) {
		for i, col := range columns {
			if text, ok := Text(col, row); ok {
				c.field(i, text)
			} else if i > 0 {
				_ = c.out.WriteByte(',')
			}
		}
		if err := c.endLine(); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

func (c *csvWriter) Close() error { return c.out.Flush() }

// A jsonWriter writes an object for each row, on a line of its own, with the
// columns in their order. A name that comes again gets #2, #3 and so on added.
type jsonWriter struct {
	out  io.Writer
	line []byte
}

func (j *jsonWriter) Write(batch arrow.RecordBatch) error {
	rows := array.RecordToStructArray(batch)
	defer rows.Release()
	out := bufio.NewWriter(j.out)
	for row := range rows.Len() {
		j.line = append(rowscan.AppendJSON(j.line[:0], rows, row), '\n')
		if _, err := out.Write(j.line); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (j *jsonWriter) Close() error { return nil }

// Text is a value as CSV has it: what JSON has, without the quotes of a string. It is
// false for NULL, wherever in the encodings of the column that stands. It is not what
// ValueStr of the column gives, which makes 00:00:00 of 24:00:00, a text of NULL in a
// dictionary, and no time at all of one in a zone that this machine does not know.
func Text(col arrow.Array, row int) (string, bool) {
	text := string(rowscan.AppendJSON(nil, col, row))
	switch {
	case text == "null":
		return "", false
	case text[0] == '"':
		text, _ = strconv.Unquote(text) // the escapes of JSON are some of Go's
	}
	return text, true
}
