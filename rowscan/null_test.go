package rowscan

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

func TestAColumnOfTypeNullHoldsNulls(t *testing.T) {
	b := array.NewBuilder(memory.DefaultAllocator, arrow.Null)
	defer b.Release()
	b.AppendNull()
	col := b.NewArray()
	defer col.Release()
	require.False(t, col.IsNull(0), "if this fails, isNull has had its day")
	require.Nil(t, Value(col, 0))
}
