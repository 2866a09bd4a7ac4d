package export

import (
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// The writer of Parquet gave these other values: 0 for the NULL, another day, another time.
func TestAValueThatParquetLacksIsAnErrorWhereverItStands(t *testing.T) {
	number := arrow.PrimitiveTypes.Int64
	member := func(of arrow.DataType) arrow.DataType { return arrow.StructOf(arrow.Field{Name: "x", Type: of}) }
	for _, c := range []struct {
		of            arrow.Field
		sound, lacked string
		says          string
	}{
		{arrow.Field{Type: number}, `7`, `null`, "has a NULL"},
		{arrow.Field{Type: member(number), Nullable: true}, `null`, `{"x":null}`, "has a NULL"},
		{arrow.Field{Type: arrow.ListOfNonNullable(number), Nullable: true}, `null`, `[7,null]`, "has a NULL"},
		{arrow.Field{Type: arrow.FixedSizeListOfNonNullable(1, number), Nullable: true}, `null`, `[null]`, "has a NULL"},
		{arrow.Field{Type: arrow.FixedWidthTypes.Date64, Nullable: true}, `-86400000`, `-1`, "time of day"},
		{arrow.Field{Type: arrow.FixedWidthTypes.Date64, Nullable: true}, `185542587100800000`, `185542587187200000`, "beyond"},
		{arrow.Field{Type: arrow.FixedWidthTypes.Date64, Nullable: true}, `-185542587187200000`, `-185542587273600000`, "beyond"},
		{arrow.Field{Type: arrow.ListOf(arrow.FixedWidthTypes.Date64), Nullable: true}, `[null,0]`, `[1]`, "time of day"},
		{arrow.Field{Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date64), Nullable: true}, `[{"key":"a","value":0}]`, `[{"key":"a","value":1}]`, "time of day"},
		{arrow.Field{Type: arrow.FixedWidthTypes.Time32s, Nullable: true}, `86399`, `2147484`, "beyond"},
	} {
		c.of.Name = "v"
		columns := arrow.NewSchema([]arrow.Field{c.of}, nil)
		write := func(rows string) error {
			batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, columns, strings.NewReader(rows))
			require.NoError(t, err, rows)
			defer batch.Release()
			w, err := NewWriter(io.Discard, columns, Parquet)
			require.NoError(t, err)
			if err := w.Write(batch); err != nil {
				return err
			}
			return w.Close()
		}
		require.NoError(t, write(`[{"v":`+c.sound+`}]`), c.of)
		require.ErrorContains(t, write(`[{"v":`+c.sound+`},{"v":`+c.lacked+`}]`), `as Parquet: column "v": `, c.of)
		require.ErrorContains(t, write(`[{"v":`+c.lacked+`}]`), c.says, c.of)
	}
	_, err := NewWriter(io.Discard, arrow.NewSchema(nil, nil), Parquet)
	require.EqualError(t, err, "as Parquet: there is no column")
}
