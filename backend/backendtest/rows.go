package backendtest

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

// ints runs a query outside transactions and returns its first column.
func (c *check) ints(conn backend.Conn, sql string) []int64 {
	c.Helper()
	s, err := conn.Query(c.ctx(), sql, backend.Call{})
	require.NoError(c, err)
	return c.drain(s)
}

// reads checks that a query gives its rows.
func (c *check) reads(conn backend.Conn) {
	c.Helper()
	if !c.Has.Canned {
		require.Equal(c, sequence(3), c.ints(conn, c.SQL.Rows(3)))
		return
	}
	s, err := conn.Query(c.ctx(), c.SQL.Rows(3), backend.Call{})
	require.NoError(c, err)
	defer s.Close()
	rows := int64(0)
	for {
		batch, err := s.Next()
		if eof.Reached(err) {
			break
		}
		require.NoError(c, err)
		rows += batch.NumRows()
	}
	require.Positive(c, rows)
}

// drain reads a stream to its end and closes it.
func (c *check) drain(s backend.Stream) []int64 {
	c.Helper()
	defer s.Close()
	out := []int64{}
	for {
		batch, err := s.Next()
		if eof.Reached(err) {
			return out
		}
		require.NoError(c, err)
		require.IsType(c, &array.Int64{}, batch.Column(0))
		out = append(out, batch.Column(0).(*array.Int64).Int64Values()...)
	}
}

// count is the number of rows of a table.
func (c *check) count(conn backend.Conn, table string) int64 {
	c.Helper()
	got := c.ints(conn, c.SQL.Count(table))
	require.Len(c, got, 1)
	return got[0]
}

// update runs an update that must succeed.
func (c *check) update(conn backend.Conn, sql string, tx backend.TxID) int64 {
	c.Helper()
	n, err := conn.Update(c.ctx(), sql, backend.Call{Tx: tx})
	require.NoError(c, err)
	return n
}

var schema = arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// batch is a record batch of one int64 column, released at the end.
func (c *check) batch(values ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	batch := b.NewRecordBatch()
	c.Cleanup(batch.Release)
	return batch
}

// reader gives batches.
func (c *check) reader(batches ...arrow.RecordBatch) array.RecordReader {
	rows, err := array.NewRecordReader(schema, batches)
	require.NoError(c, err)
	c.Cleanup(rows.Release)
	return rows
}

func sequence(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}
