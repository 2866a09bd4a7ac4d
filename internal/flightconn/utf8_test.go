package flightconn

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// Flight SQL has texts as UTF-8. Another is the caller's fault, of which nothing is sent.
func TestATextThatIsNotUTF8IsTheCallersFault(t *testing.T) {
	const text = "SELECT 'caf\xe9'"
	inBubble(t, &fake{}, func(b *bubble) {
		c, ctx := b.open(), b.Context()
		for name, call := range map[string]func() error{
			"query":   func() error { _, err := c.Query(ctx, text, backend.Call{}); return err },
			"update":  func() error { _, err := c.Update(ctx, text, backend.Call{}); return err },
			"prepare": func() error { _, err := c.Prepare(ctx, text, backend.Call{}); return err },
			"ingest": func() error {
				rows, err := array.NewRecordReader(int64Schema, nil)
				require.NoError(b, err)
				defer rows.Release()
				_, err = c.Ingest(ctx, rows, backend.IngestOptions{Table: text}, backend.Call{})
				return err
			},
			"options": func() error { return c.SetOptions(ctx, map[string]any{"a": text}) },
		} {
			e := failure(b, call())
			require.Equal(b, backend.FaultUsage, e.Fault, name)
			require.True(b, e.Unsent, name)
			require.ErrorContains(b, e, "UTF-8", name)
		}
	})
}
