package flightpool

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// TestTheSchemaOfATableIsReadOrRefused: it is that of Arrow's own function, and of bytes that a server
// has made up an error.
func TestTheSchemaOfATableIsReadOrRefused(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true}}, nil)
	serialized := flight.SerializeSchema(schema, memory.DefaultAllocator)
	got, err := TableSchema(serialized)
	require.NoError(t, err)
	require.True(t, schema.Equal(got), "%v", got)
	for cut := range serialized[:len(serialized)-8] { // the end of a stream is behind it
		_, err := TableSchema(serialized[:cut])
		require.Error(t, err, "%d of %d bytes", cut, len(serialized))
	}
	_, err = TableSchema([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x70})
	require.ErrorContains(t, err, "cut off")
	_, err = TableSchema(bytes.Repeat([]byte{0xff}, 100))
	require.Error(t, err)
}
