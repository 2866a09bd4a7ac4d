package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func ingests(s Suite) bool      { return s.Has.Ingest }
func cannotIngest(s Suite) bool { return !s.Has.Ingest }

var ingestCases = []testCase{
	{"ingest creates, appends and refuses as told", ingests, func(c *check) {
		conn := c.open()
		load := func(mode backend.IngestMode, compression backend.IngestCompression) error {
			rows := c.reader(c.batch(sequence(700)...), c.batch(sequence(300)...))
			n, err := conn.Ingest(c.ctx(), rows, backend.IngestOptions{Table: "loaded", Mode: mode, Compression: compression}, backend.Call{})
			if err == nil {
				require.Contains(c, []int64{-1, 1000}, n)
			}
			return err
		}
		require.Error(c, load(backend.IngestAppend, backend.IngestUncompressed), "there is no table yet")
		require.NoError(c, load(backend.IngestCreate, backend.IngestUncompressed))
		require.NoError(c, load(backend.IngestCreateAppend, backend.IngestLZ4))
		require.NoError(c, load(backend.IngestAppend, backend.IngestZSTD))
		require.EqualValues(c, 3000, c.count(conn, "loaded"))
		require.Error(c, load(backend.IngestCreate, backend.IngestUncompressed), "there is a table")
		require.NoError(c, load(backend.IngestReplace, backend.IngestUncompressed))
		require.EqualValues(c, 1000, c.count(conn, "loaded"))
	}},

	{"ingest belongs to its transaction", func(s Suite) bool { return ingests(s) && transacts(s) && !s.Has.IngestNotInTx }, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("undone"), "")
		tx := c.begin(conn)
		opts := backend.IngestOptions{Table: "undone", Mode: backend.IngestAppend}
		_, err := conn.Ingest(c.ctx(), c.reader(c.batch(1, 2, 3)), opts, backend.Call{Tx: tx})
		require.NoError(c, err)
		require.NoError(c, conn.EndTx(c.ctx(), tx, false))
		require.EqualValues(c, 0, c.count(conn, "undone"))
	}},

	{"an ingest that would be outside of its transaction is refused", func(s Suite) bool { return s.Has.IngestNotInTx }, func(c *check) {
		conn := c.open()
		c.update(conn, c.SQL.Create("outside"), "")
		tx := c.begin(conn)
		opts := backend.IngestOptions{Table: "outside", Mode: backend.IngestAppend}
		_, err := conn.Ingest(c.ctx(), c.reader(c.batch(1, 2, 3)), opts, backend.Call{Tx: tx})
		e := c.fault(err)
		require.Equal(c, backend.FaultUnsupported, e.Fault, "%v", err)
		require.True(c, e.Unsent)
		require.NoError(c, conn.EndTx(c.ctx(), tx, true))
		require.EqualValues(c, 0, c.count(conn, "outside"))
	}},

	{"ingest without a table is the caller's fault", ingests, func(c *check) {
		conn := c.open()
		_, err := conn.Ingest(c.ctx(), c.reader(c.batch(1)), backend.IngestOptions{}, backend.Call{})
		require.Equal(c, backend.FaultUsage, c.fault(err).Fault)
		c.usable(conn)
	}},

	{"a server without ingest says so", cannotIngest, func(c *check) {
		conn := c.open()
		_, err := conn.Ingest(c.ctx(), c.reader(c.batch(1)), backend.IngestOptions{Table: "t"}, backend.Call{})
		c.unsupported(conn, err)
	}},
}

var optionCases = []testCase{
	{"session options are kept by the session", func(s Suite) bool { return s.Has.SessionOptions }, func(c *check) {
		conn := c.open()
		require.NoError(c, conn.SetOptions(c.ctx(), map[string]any{"backendtest": "yes"}))
		got, err := conn.Options(c.ctx())
		require.NoError(c, err)
		require.Equal(c, "yes", got["backendtest"])
		other, err := c.open().Options(c.ctx())
		require.NoError(c, err)
		require.NotContains(c, other, "backendtest")
	}},

	{"a server without session options says so", func(s Suite) bool { return !s.Has.SessionOptions && computes(s) }, func(c *check) {
		conn := c.open()
		_, err := conn.Options(c.ctx())
		c.unsupported(conn, err)
		c.unsupported(conn, conn.SetOptions(c.ctx(), map[string]any{"a": "b"}))
	}},
}
