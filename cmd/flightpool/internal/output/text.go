package output

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
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
			if col.IsNull(row) {
				if i > 0 {
					_ = c.out.WriteByte(',')
				}
				continue
			}
			c.field(i, text(col, row))
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
	out  *bufio.Writer
	keys []string // with colon, quoted
}

func newJSON(w io.Writer, schema *arrow.Schema) *jsonWriter {
	j := &jsonWriter{out: bufio.NewWriter(w)}
	seen := map[string]int{}
	for _, f := range schema.Fields() {
		name := f.Name
		if seen[f.Name]++; seen[f.Name] > 1 {
			name = fmt.Sprintf("%s#%d", f.Name, seen[f.Name])
		}
		key, _ := json.Marshal(name) // a string cannot fail
		j.keys = append(j.keys, string(key)+":")
	}
	return j
}

func (j *jsonWriter) Write(batch arrow.RecordBatch) error {
	columns := batch.Columns()
	for row := range int(batch.NumRows()) {
		for i, col := range columns {
			separator := byte(',')
			if i == 0 {
				separator = '{'
			}
			_ = j.out.WriteByte(separator)
			_, _ = j.out.WriteString(j.keys[i])
			value, err := jsonValue(col, row)
			if err != nil {
				return fmt.Errorf("column %s, as JSON: %w", batch.ColumnName(i), err)
			}
			_, _ = j.out.Write(value)
		}
		if _, err := j.out.WriteString("}\n"); err != nil {
			return err
		}
	}
	return j.out.Flush()
}

func (j *jsonWriter) Close() error { return j.out.Flush() }
