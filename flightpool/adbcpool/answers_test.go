package adbcpool

import (
	"context"
	"io"
	"runtime"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/flightpool"
)

// answering is a connection whose server answers each catalogue call with one row of so
// many columns, each of them a text or the schema of a table.
type answering struct {
	backend.Conn
	columns int
	text    func() arrow.Array
}

func (answering) Lost() error                                  { return nil }
func (answering) Close() error                                 { return nil }
func (answering) Ping(context.Context) error                   { return nil }
func (answering) CancelSteps(*backend.Operation) []cancel.Step { return nil }

func (answering) RejectsUnknownTx(context.Context) (bool, error) { return true, nil }

func (a answering) Query(ctx context.Context, _ string, call backend.Call) (backend.Stream, error) {
	return a.Metadata(ctx, backend.MetadataRequest{}, call)
}

func (a answering) Metadata(context.Context, backend.MetadataRequest, backend.Call) (backend.Stream, error) {
	var fields []arrow.Field
	var columns []arrow.Array
	for range a.columns {
		columns = append(columns, a.text())
		fields = append(fields, arrow.Field{Name: "x", Type: columns[0].DataType()})
	}
	return &oneRow{batch: array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)}, nil
}

type oneRow struct {
	batch arrow.RecordBatch
	given bool
}

func (o *oneRow) Schema() *arrow.Schema       { return o.batch.Schema() }
func (o *oneRow) RowsAffected() (int64, bool) { return 0, false }
func (o *oneRow) Close()                      {}
func (o *oneRow) Next() (arrow.RecordBatch, error) {
	if o.given {
		return nil, io.EOF
	}
	o.given = true
	return o.batch, nil
}

func answeringADBC(t *testing.T, a answering) adbc.Connection {
	t.Helper()
	pool, err := flightpool.NewWith(t.Context(), func(context.Context) (backend.Conn, error) { return a, nil },
		flightpool.Config{OnReturn: flightpool.ResetNone, HealthCheck: flightpool.HealthCheck{Kind: flightpool.Ping}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(context.WithoutCancel(t.Context()))) })
	conn, err := Database(pool).Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

func text(t arrow.DataType) func() arrow.Array {
	return func() arrow.Array {
		b := array.NewBuilder(memory.DefaultAllocator, t)
		defer b.Release()
		_ = b.AppendValueFromString("x")
		return b.NewArray()
	}
}

// A server may leave out columns, such as those of tables. It must not end the program.
func TestAnAnswerWithTooFewColumnsIsAnError(t *testing.T) {
	for columns := range 13 {
		c := answeringADBC(t, answering{columns: columns, text: text(arrow.BinaryTypes.String)})
		_, err := c.GetObjects(t.Context(), adbc.ObjectDepthColumns, nil, nil, nil, nil, nil)
		require.Error(t, err, "%d columns", columns) // at last because the schema of the table is none
		_, err = c.GetTableSchema(t.Context(), nil, nil, "x")
		require.Error(t, err, "%d columns", columns)
		_, err = c.GetInfo(t.Context(), nil)
		require.Equal(t, columns < 2, err != nil, "%v", err)
		_, err = c.GetTableTypes(t.Context())
		require.Equal(t, columns < 1, err != nil, "%v", err)
	}
}

// Flight SQL's names are utf8. What else is a text is not read as an empty one.
func TestANameIsReadOfWhateverTypeItsColumnIs(t *testing.T) {
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for _, of := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView, dictionary} {
		c := answeringADBC(t, answering{columns: 4, text: text(of)})
		types, err := c.GetTableTypes(t.Context())
		require.NoError(t, err)
		require.True(t, types.Next())
		require.Equal(t, "x", types.RecordBatch().Column(0).ValueStr(0), "%v", of)
		types.Release()
		objects, err := c.GetObjects(t.Context(), adbc.ObjectDepthTables, nil, nil, nil, nil, nil)
		require.NoError(t, err)
		require.True(t, objects.Next())
		require.Equal(t, "x", objects.RecordBatch().Column(0).ValueStr(0), "%v", of)
		require.Contains(t, objects.RecordBatch().Column(1).ValueStr(0), `"table_name":"x"`, "%v", of)
		objects.Release()
	}
}

// The schema of a table comes in a cell. What that claims to be long is not made.
func TestTheSchemaOfATableTakesNoMoreThanItsCell(t *testing.T) {
	claims := []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x10} // a message of 256 MiB
	c := answeringADBC(t, answering{columns: 5, text: func() arrow.Array {
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		defer b.Release()
		b.Append(claims)
		return b.NewArray()
	}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.GetObjects(t.Context(), adbc.ObjectDepthColumns, nil, nil, nil, nil, nil)
	runtime.ReadMemStats(&after)
	require.ErrorContains(t, err, "the schema of a table: ")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}
