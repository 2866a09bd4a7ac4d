package output

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/tools/valuegen"
)

func TestATableKeepsItsShapeWhateverAServerSends(t *testing.T) {
	names := arrow.NewSchema([]arrow.Field{{Name: "a\x1b[2J", Type: arrow.BinaryTypes.String}, {Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, names, strings.NewReader(
		`[{"a\u001b[2J":"two\nlines","n":1},{"a\u001b[2J":"世界","n":null},{"a\u001b[2J":"`+strings.Repeat("x", 70)+`","n":100}]`))
	require.NoError(t, err)
	defer batch.Release()
	var out bytes.Buffer
	w, err := New(Table, &out, names)
	require.NoError(t, err)
	require.NoError(t, w.Write(batch))
	require.NoError(t, w.Close())
	pad := func(text string, width int) string { return text + strings.Repeat(" ", 60-width) }
	require.Equal(t, " "+pad(`a\x1b[2J`, 8)+" | n\n"+strings.Repeat("-", 62)+"+------\n "+
		pad(`two\nlines`, 10)+" |    1\n "+pad("世界", 4)+" | NULL\n "+strings.Repeat("x", 70)+" |  100\n", out.String())
}

// A table sets its widths by the first batch, which is gone when the next comes.
func TestATableKeepsNoBatch(t *testing.T) {
	names := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	var out bytes.Buffer
	w, err := New(Table, &out, names)
	require.NoError(t, err)
	for _, letter := range []string{"m", "a"} {
		batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, names, strings.NewReader(`[{"s":"`+letter+`"}]`))
		require.NoError(t, err)
		require.NoError(t, w.Write(batch))
		for _, b := range batch.Column(0).Data().Buffers()[1:] {
			clear(b.Bytes())
		}
	}
	require.NoError(t, w.Close())
	require.Equal(t, " s\n---\n m\n a\n", out.String())
}

func TestATableTakesEveryType(t *testing.T) {
	for seed := range uint64(500) {
		column, _ := valuegen.New(seed).Column(6, 2)
		names := arrow.NewSchema([]arrow.Field{{Name: "v", Type: column.DataType(), Nullable: true}}, nil)
		var out bytes.Buffer
		w, err := New(Table, &out, names)
		require.NoError(t, err)
		require.NoError(t, w.Write(array.NewRecordBatch(names, []arrow.Array{column}, int64(column.Len()))))
		require.NoError(t, w.Close())
		require.Equal(t, 2+column.Len(), strings.Count(out.String(), "\n"), "seed %d: %v", seed, column.DataType())
	}
}

// A terminal obeys control characters in every format. Writers cut texts anywhere.
func TestATerminalIsNotControlledByTexts(t *testing.T) {
	text := "a,\x1b[2J\t\u202eb\u009b1m\r\n世界 \U0001f600 \x9b\xff\u00ad\x00é\n"
	const want = `a,\x1b[2J` + "\t" + `\u202eb\u009b1m\r` + "\n世界 \U0001f600 " + `\x9b\xff\u00ad\x00é` + "\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := Visible(&out)
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			n, err := io.WriteString(w, rest[:min(size, len(rest))])
			require.NoError(t, err)
			require.Equal(t, min(size, len(rest)), n)
		}
		require.Equal(t, want, out.String(), size)
	}
	require.Equal(t, `a\x9b\n`, Printable("a\x9b\n"))
}
