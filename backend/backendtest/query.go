package backendtest

import (
	"io"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/eof"
)

var queryCases = []testCase{
	{"a query streams its rows in order", computes, func(c *check) {
		conn := c.open()
		for _, n := range []int{1, 10, 5000} {
			require.Equal(c, sequence(n), c.ints(conn, c.SQL.Rows(n)))
		}
	}},

	{"a result without rows keeps its schema", computes, func(c *check) {
		s, err := c.open().Query(c.ctx(), c.SQL.Empty, backend.Call{})
		require.NoError(c, err)
		defer s.Close()
		require.NotZero(c, s.Schema().NumFields())
		for range 2 {
			_, err = s.Next()
			require.ErrorIs(c, err, io.EOF)
		}
		require.NotZero(c, s.Schema().NumFields())
	}},

	{"a statement that fails keeps the connection", computes, func(c *check) {
		conn := c.open()
		s, err := conn.Query(c.ctx(), c.SQL.Invalid, backend.Call{})
		for err == nil { // some servers tell with the rows
			_, err = s.Next()
		}
		require.NotErrorIs(c, err, io.EOF)
		e := c.fault(err)
		require.True(c, e.Fault.KeepsConn(), "%v", err)
		require.False(c, e.Unsent)
		require.NotEmpty(c, e.Target)
		require.NotEmpty(c, e.Op)
		c.usable(conn)

		_, err = conn.Update(c.ctx(), c.SQL.Invalid, backend.Call{})
		require.True(c, c.fault(err).Fault.KeepsConn(), "%v", err)
		c.usable(conn)
	}},

	{"a result may be closed at any time and more than once", always, func(c *check) {
		conn := c.open()
		for range 5 {
			s, err := conn.Query(c.ctx(), c.SQL.Rows(5000), backend.Call{})
			require.NoError(c, err)
			_, err = s.Next()
			require.NoError(c, err)
			s.Close()
			s.Close()
			_, err = s.Next()
			require.ErrorIs(c, err, backend.ErrHandleClosed)
		}
		s, err := conn.Query(c.ctx(), c.SQL.Rows(5000), backend.Call{})
		require.NoError(c, err)
		s.Close() // before any row
		c.usable(conn)
		s, err = conn.Query(c.ctx(), c.SQL.Rows(3), backend.Call{})
		require.NoError(c, err)
		for err == nil {
			_, err = s.Next()
		}
		require.True(c, eof.Reached(err), "%v", err)
		s.Close()
		_, err = s.Next()
		require.True(c, eof.Reached(err), "an end is not taken back: %v", err)
	}},

	{"a retained batch outlives its result", computes, func(c *check) {
		conn := c.open()
		s, err := conn.Query(c.ctx(), c.SQL.Rows(3), backend.Call{})
		require.NoError(c, err)
		batch, err := s.Next()
		require.NoError(c, err)
		batch.Retain()
		defer batch.Release()
		before := batch.Column(0).String()
		s.Close()
		require.Equal(c, []int64{0, 1, 2, 3, 4}, c.ints(conn, c.SQL.Rows(5)))
		require.Equal(c, before, batch.Column(0).String())
	}},

	{"metadata lists a table", computes, func(c *check) {
		conn := c.open()
		table := "listed"
		c.update(conn, c.SQL.Create(table), "")
		s, err := conn.Metadata(c.ctx(), backend.MetadataRequest{Kind: backend.MetadataTables, Table: &table}, backend.Call{})
		require.NoError(c, err)
		defer s.Close()
		name := s.Schema().FieldIndices("table_name")
		require.Len(c, name, 1)
		var found []string
		for {
			batch, err := s.Next()
			if err != nil {
				require.ErrorIs(c, err, io.EOF)
				break
			}
			for i := range int(batch.NumRows()) {
				found = append(found, strings.Clone(batch.Column(name[0]).ValueStr(i))) // the text goes with the batch
			}
		}
		require.Equal(c, []string{table}, found)
	}},

	{"a metadata call without its table is the caller's fault", always, func(c *check) {
		conn := c.open()
		_, err := conn.Metadata(c.ctx(), backend.MetadataRequest{Kind: backend.MetadataPrimaryKeys}, backend.Call{})
		e := c.fault(err)
		require.Equal(c, backend.FaultUsage, e.Fault)
		require.True(c, e.Unsent)
		c.usable(conn)
	}},
}
