package adbcconn

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

// Arrow's export to drivers in C tells twice where the slice of a struct begins.
func TestSlicesOfStructsAreGivenToDriversFromTheirBeginning(t *testing.T) {
	allocator := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer allocator.AssertSize(t, 0)
	kind := arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64})
	values, _, err := array.FromJSON(allocator, kind, strings.NewReader(`[{"x":0},{"x":1},{"x":2},{"x":3}]`))
	require.NoError(t, err)
	defer values.Release()
	whole := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: kind}}, nil), []arrow.Array{values}, 4)
	defer whole.Release()
	one, two := whole.NewSlice(1, 2), whole.NewSlice(2, 4)
	defer one.Release()
	defer two.Release()

	for _, name := range []string{"ADBC DuckDB Driver", "another"} {
		rows, err := array.NewRecordReader(whole.Schema(), []arrow.RecordBatch{one, two})
		require.NoError(t, err)
		d := &copying{name: name}
		require.NoError(t, load(t, d, rows, backend.IngestOptions{Mode: backend.IngestAppend}), name)
		require.Equal(t, []int{0, 0}, d.offsets)
		require.Equal(t, []string{`{"x":1}`, `{"x":2}`, `{"x":3}`}, d.loaded)
		d = &copying{name: name}
		require.ErrorContains(t, load(t, d, failing{rows, errors.New("the reader's")}, backend.IngestOptions{}), "the reader's")
		rows.Release()
	}
	rows, err := array.NewRecordReader(whole.Schema(), []arrow.RecordBatch{one, two})
	require.NoError(t, err)
	require.NoError(t, load(t, &copying{name: "another", stops: true}, rows, backend.IngestOptions{}))
	rows.Release()

	d := &zoning{name: "ADBC DuckDB Driver"}
	conn, err := OpenGeneric(t.Context(), d, GenericConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	p, err := conn.Prepare(t.Context(), "change", backend.Call{})
	require.NoError(t, err)
	_, err = p.Update(t.Context(), two, backend.Call{})
	require.NoError(t, err)
	require.Zero(t, d.boundAt)
	result, err := p.Query(t.Context(), two, backend.Call{})
	require.NoError(t, err)
	require.Equal(t, `{"x":2}`, d.bound.Column(0).ValueStr(0), "while they are bound")
	result.Close()
	require.NoError(t, p.Close(t.Context())) // behind the release
}
