package backendtest

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func prepares(s Suite) bool { return s.Has.Prepared }

var updateCases = []testCase{
	{"an update takes effect once and counts", computes, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("once"), "")
		insert := c.SQL.Insert("once", 7)
		n := c.update(conn, insert, "")
		if c.Has.UpdateCounts {
			require.EqualValues(c, 1, n)
		}
		require.EqualValues(c, 1, c.count(conn, "once"))
		if c.server.Executions != nil {
			require.Equal(c, 1, c.server.Executions(insert))
		}
	}},
}

var cannedCases = []testCase{
	{"a server without updates says so", func(s Suite) bool { return s.Has.Canned }, func(c *check) {
		conn := c.open()
		_, err := conn.Update(c.ctx(), c.SQL.Rows(1), backend.Call{})
		c.unsupported(conn, err)
	}},
}

var preparedCases = []testCase{
	{"a prepared query runs again with other parameters", prepares, func(c *check) {
		conn := c.open()
		p, err := conn.Prepare(c.ctx(), c.SQL.Param, backend.Call{})
		require.NoError(c, err)
		for _, v := range []int64{7, 8, 9} {
			s, err := p.Query(c.ctx(), c.batch(v), backend.Call{})
			require.NoError(c, err)
			require.Equal(c, []int64{v}, c.drain(s))
		}
		require.NoError(c, p.Close(c.ctx()))
		require.NoError(c, p.Close(c.ctx()))
		_, err = p.Query(c.ctx(), c.batch(1), backend.Call{})
		require.ErrorIs(c, err, backend.ErrHandleClosed)
		c.usable(conn)
	}},

	{"a prepared update runs for each row of its parameters", prepares, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("each"), "")
		p, err := conn.Prepare(c.ctx(), c.SQL.InsertParam("each"), backend.Call{})
		require.NoError(c, err)
		n, err := p.Update(c.ctx(), c.batch(sequence(100)...), backend.Call{})
		require.NoError(c, err)
		if c.Has.UpdateCounts {
			require.EqualValues(c, 100, n)
		}
		require.NoError(c, p.Close(c.ctx()))
		require.EqualValues(c, 100, c.count(conn, "each"))
	}},

	{"a statement that cannot be prepared keeps the connection", prepares, func(c *check) {
		conn := c.open()
		p, err := conn.Prepare(c.ctx(), c.SQL.Invalid, backend.Call{})
		if err == nil { // some servers look when they run
			_, err = p.Update(c.ctx(), nil, backend.Call{})
		}
		require.True(c, c.fault(err).Fault.KeepsConn(), "%v", err)
		c.usable(conn)
	}},

	{"parameters without rows are the caller's fault", prepares, func(c *check) {
		conn := c.open()
		p, err := conn.Prepare(c.ctx(), c.SQL.Param, backend.Call{})
		require.NoError(c, err)
		_, err = p.Query(c.ctx(), c.batch(), backend.Call{})
		require.Equal(c, backend.FaultUsage, c.fault(err).Fault)
		two := arrow.NewSchema([]arrow.Field{schema.Field(0), {Name: "w", Type: arrow.PrimitiveTypes.Int64}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, two)
		defer b.Release()
		b.Field(0).AppendNull()
		b.Field(1).AppendNull()
		wide := b.NewRecordBatch()
		defer wide.Release()
		if want := p.ParameterSchema(); want != nil && want.NumFields() == 1 {
			_, err = p.Query(c.ctx(), wide, backend.Call{})
			require.Equal(c, backend.FaultUsage, c.fault(err).Fault)
		}
		require.NoError(c, p.Close(c.ctx()))
		c.usable(conn)
	}},
}
