package backendtest

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func cuts(s Suite) bool { return s.Has.Cut }

var lifeCases = []testCase{
	{"close may be called by many and again", always, func(c *check) {
		conn := c.open()
		c.usable(conn)
		var closers sync.WaitGroup
		for range 8 {
			closers.Go(func() { require.NoError(c, conn.Close()) })
		}
		closers.Wait()
		require.NoError(c, conn.Close())
		require.Error(c, conn.Lost())
		c.dead(conn)
		if c.server.Gone != nil {
			require.NoError(c, c.server.Gone(c.ctx()))
		}
	}},

	{"close fails the call under way", slow, func(c *check) {
		conn := c.open()
		var running sync.WaitGroup
		running.Go(func() {
			err := c.runSlow(c.ctx(), conn, nil)
			require.Error(c, err)
			require.False(c, c.fault(err).Fault.KeepsConn(), "%v", err)
		})
		if c.server.Started != nil {
			require.NoError(c, c.server.Started(c.ctx(), 1))
		}
		_ = conn.Close() // the server may be too busy to say goodbye
		running.Wait()
		c.dead(conn)
	}},

	{"a transport that is cut is lost for good", cuts, func(c *check) {
		conn := c.open()
		c.server.Cut()
		require.ErrorIs(c, conn.Ping(c.ctx()), backend.ErrSessionLost)
		c.dead(conn)
		c.usable(c.open())
		c.dead(conn)
	}},

	{"a result whose transport is cut fails", func(s Suite) bool { return cuts(s) && computes(s) }, func(c *check) {
		conn := c.open()
		s, err := conn.Query(c.ctx(), c.SQL.Rows(1_000_000), backend.Call{})
		require.NoError(c, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(c, err)
		c.server.Cut()
		for err == nil {
			_, err = s.Next()
		}
		require.ErrorIs(c, err, backend.ErrSessionLost, "never a short result")
		require.Equal(c, backend.FaultTransport, c.fault(err).Fault)
	}},

	{"connections come and go without a trace", always, func(c *check) {
		for range 50 {
			conn, err := c.server.Open(c.ctx())
			require.NoError(c, err)
			c.reads(conn)
			require.NoError(c, conn.Close())
		}
		if c.server.Gone != nil {
			require.NoError(c, c.server.Gone(c.ctx()))
		}
	}},

	{"an open whose context has ended makes nothing", always, func(c *check) {
		ctx, end := context.WithCancel(c.ctx())
		end()
		_, err := c.server.Open(ctx)
		require.ErrorIs(c, err, context.Canceled)
		require.Equal(c, backend.FaultContext, c.fault(err).Fault)
	}},
}

// dead checks that nothing goes through conn any more.
func (c *check) dead(conn backend.Conn) {
	c.Helper()
	require.Error(c, conn.Lost())
	insert := c.SQL.Insert("dead", 1)
	for _, call := range c.calls(conn, insert) {
		err := call(c.ctx())
		require.ErrorIs(c, err, backend.ErrSessionLost)
		e := c.fault(err)
		require.True(c, e.Unsent, "%v", err)
		require.False(c, e.Fault.KeepsConn())
	}
	if c.server.Executions != nil {
		require.Zero(c, c.server.Executions(insert), "nothing may reach a new transport")
	}
}
