package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func transacts(s Suite) bool  { return s.Has.Transactions }
func stores(s Suite) bool     { return transacts(s) && computes(s) }
func cannotTx(s Suite) bool   { return !s.Has.Transactions }
func savepoints(s Suite) bool { return s.Has.Savepoints }
func cannotSavepoint(s Suite) bool {
	return s.Has.Transactions && !s.Has.Savepoints
}
func txEndsWithConn(s Suite) bool {
	return s.Has.Transactions && s.Has.TxEndsWithConn && s.Has.Cut
}
func hasTemp(s Suite) bool { return s.Has.TempTables }

var txCases = []testCase{
	{"commit stores and rollback does not", stores, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("kept"), "")
		for _, commit := range []bool{true, false} {
			tx := c.begin(conn)
			c.update(conn, c.SQL.Insert("kept", 1), tx)
			require.NoError(c, conn.EndTx(c.ctx(), tx, commit))
			require.EqualValues(c, 1, c.count(conn, "kept"))
		}
	}},

	{"a transaction sees what it did", stores, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("mine"), "")
		tx := c.begin(conn)
		c.update(conn, c.SQL.Insert("mine", 1), tx)
		s, err := conn.Query(c.ctx(), c.SQL.Count("mine"), backend.Call{Tx: tx})
		require.NoError(c, err)
		require.Equal(c, []int64{1}, c.drain(s))
		require.NoError(c, conn.EndTx(c.ctx(), tx, false))
	}},

	{"the end of an unknown transaction is refused where that is promised", transacts, func(c *check) {
		conn := c.open()
		for range 2 {
			trusted, err := conn.RejectsUnknownTx(c.ctx())
			require.NoError(c, err)
			if _, watches := conn.(backend.TxWatcher); trusted || !watches { // which need not know its server
				require.Equal(c, c.Has.TrustedTxIDs, trusted)
			}
		}
		tx := c.begin(conn)
		require.NoError(c, conn.EndTx(c.ctx(), tx, true))
		err := conn.EndTx(c.ctx(), tx, true)
		if c.Has.TrustedTxIDs {
			require.True(c, c.fault(err).Fault.KeepsConn(), "%v", err)
		} else {
			require.NoError(c, err)
		}
		c.usable(conn)
	}},

	{"a transaction dies with its connection", txEndsWithConn, func(c *check) {
		keeper := c.open()
		c.update(keeper, c.SQL.Create("cut"), "")
		conn := c.open()
		tx := c.begin(conn)
		c.update(conn, c.SQL.Insert("cut", 1), tx)
		c.server.Cut()
		require.ErrorIs(c, conn.EndTx(c.ctx(), tx, true), backend.ErrSessionLost)
		if c.server.Idle != nil {
			require.NoError(c, c.server.Idle(c.ctx()))
		}
		require.EqualValues(c, 0, c.count(c.open(), "cut"))
	}},

	{"a server without transactions says so", cannotTx, func(c *check) {
		conn := c.open()
		_, err := conn.Begin(c.ctx())
		c.unsupported(conn, err)
	}},

	{"savepoints undo a part", savepoints, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("part"), "")
		tx := c.begin(conn)
		c.update(conn, c.SQL.Insert("part", 1), tx)
		sp, err := conn.Savepoint(c.ctx(), tx, "here")
		require.NoError(c, err)
		c.update(conn, c.SQL.Insert("part", 2), tx)
		require.NoError(c, conn.EndSavepoint(c.ctx(), sp, backend.SavepointRollback))
		kept, err := conn.Savepoint(c.ctx(), tx, "there")
		require.NoError(c, err)
		c.update(conn, c.SQL.Insert("part", 3), tx)
		require.NoError(c, conn.EndSavepoint(c.ctx(), kept, backend.SavepointRelease))
		require.NoError(c, conn.EndTx(c.ctx(), tx, true))
		require.EqualValues(c, 2, c.count(conn, "part"))
	}},

	{"a server without savepoints says so", cannotSavepoint, func(c *check) {
		conn := c.open()
		tx := c.begin(conn)
		_, err := conn.Savepoint(c.ctx(), tx, "here")
		require.Equal(c, backend.FaultUnsupported, c.fault(err).Fault, "%v", err)
		require.NoError(c, conn.EndTx(c.ctx(), tx, false))
		c.usable(conn)
	}},

	{"each connection is a session of its own", hasTemp, func(c *check) {
		one, two := c.open(), c.open()
		c.update(one, c.SQL.CreateTemp("private"), "")
		c.update(one, c.SQL.Insert("private", 1), "")
		require.EqualValues(c, 1, c.count(one, "private"))
		_, err := two.Update(c.ctx(), c.SQL.Insert("private", 2), backend.Call{})
		require.True(c, c.fault(err).Fault.KeepsConn(), "%v", err)
		c.usable(two)
	}},
}

func (c *check) begin(conn backend.Conn) backend.TxID {
	c.Helper()
	tx, err := conn.Begin(c.ctx())
	require.NoError(c, err)
	require.NotEmpty(c, tx)
	return tx
}
