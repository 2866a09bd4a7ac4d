package backendtest

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/cancel"
)

func slow(s Suite) bool        { return s.SQL.Slow != "" }
func slowAndRPC(s Suite) bool  { return slow(s) && s.Has.RPCCancel }
func slowAndStop(s Suite) bool { return slow(s) && s.Has.ServerCancel }

var cancelCases = []testCase{
	{"a call whose context has ended sends nothing", always, func(c *check) {
		conn := c.open()
		ctx, end := context.WithCancel(c.ctx())
		end()
		insert := c.SQL.Insert("never", 1)
		for _, call := range c.calls(conn, insert) {
			err := call(ctx)
			e := c.fault(err)
			require.Equal(c, backend.FaultContext, e.Fault)
			require.ErrorIs(c, err, context.Canceled)
			require.True(c, e.Unsent)
		}
		if c.server.Executions != nil {
			require.Zero(c, c.server.Executions(insert))
		}
		c.usable(conn)
	}},

	{"a caller returns when its context ends", slow, func(c *check) {
		for _, run := range []func(context.Context, backend.Conn) error{c.runQuery, c.runUpdate} {
			conn := c.open()
			const limit = 200 * time.Millisecond
			ctx, cancel := context.WithTimeout(c.ctx(), limit)
			began := time.Now()
			err := run(ctx, conn)
			cancel()
			require.LessOrEqual(c, time.Since(began), limit+c.patience())
			require.ErrorIs(c, err, context.DeadlineExceeded)
			e := c.fault(err)
			require.Equal(c, backend.FaultContext, e.Fault)
			require.ErrorIs(c, e.Ctx, context.DeadlineExceeded)
			require.False(c, e.Fault.KeepsConn())
		}
	}},

	{"the end of a call stops its statement on servers that heed it", slowAndRPC, func(c *check) {
		conn := c.open()
		ctx, cancel := context.WithTimeout(c.ctx(), 200*time.Millisecond)
		defer cancel()
		require.Error(c, c.runQuery(ctx, conn))
		if c.server.Idle != nil {
			require.NoError(c, c.server.Idle(c.ctx()))
		}
		c.usable(conn)
	}},

	{"the cancel steps stop a statement", slowAndStop, func(c *check) {
		conn := c.open()
		op := &backend.Operation{}
		var running sync.WaitGroup
		running.Go(func() { require.Error(c, c.runSlow(c.ctx(), conn, op)) })
		require.NoError(c, c.server.Started(c.ctx(), 1))
		report := cancel.Chain{Steps: conn.CancelSteps(op)}.Run(c.ctx())
		require.True(c, report.Confirmed, report)
		require.True(c, report.Safe(), report)
		running.Wait()
		require.NoError(c, c.server.Idle(c.ctx()))
		c.usable(conn)
	}},

	{"cancelling nothing is harmless", always, func(c *check) {
		conn := c.open()
		for _, op := range []*backend.Operation{nil, {}} {
			report := cancel.Chain{Steps: conn.CancelSteps(op)}.Run(c.ctx())
			require.False(c, report.Confirmed && !c.Has.ServerCancel, report)
		}
		c.usable(conn)
	}},
}

// calls is one of each call that takes a context.
func (c *check) calls(conn backend.Conn, update string) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error { _, err := conn.Query(ctx, c.SQL.Rows(1), backend.Call{}); return err },
		func(ctx context.Context) error { _, err := conn.Update(ctx, update, backend.Call{}); return err },
		func(ctx context.Context) error { _, err := conn.Prepare(ctx, update, backend.Call{}); return err },
		func(ctx context.Context) error {
			_, err := conn.Ingest(ctx, c.reader(c.batch(1)), backend.IngestOptions{Table: "never"}, backend.Call{})
			return err
		},
		func(ctx context.Context) error {
			_, err := conn.Metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataCatalogs}, backend.Call{})
			return err
		},
		func(ctx context.Context) error { _, err := conn.Begin(ctx); return err },
		func(ctx context.Context) error { return conn.EndTx(ctx, "tx", true) },
		func(ctx context.Context) error { _, err := conn.Savepoint(ctx, "tx", "s"); return err },
		func(ctx context.Context) error { return conn.EndSavepoint(ctx, "s", backend.SavepointRelease) },
		func(ctx context.Context) error { return conn.SetOptions(ctx, map[string]any{"a": "b"}) },
		func(ctx context.Context) error { _, err := conn.Options(ctx); return err },
		conn.Ping,
	}
}

func (c *check) runQuery(ctx context.Context, conn backend.Conn) error {
	return c.runSlow(ctx, conn, nil)
}

// runSlow runs the slow query until it fails.
func (c *check) runSlow(ctx context.Context, conn backend.Conn, op *backend.Operation) error {
	s, err := conn.Query(ctx, c.SQL.Slow, backend.Call{Op: op})
	if err != nil {
		return err
	}
	defer s.Close()
	for err == nil {
		_, err = s.Next()
	}
	return err
}

func (c *check) runUpdate(ctx context.Context, conn backend.Conn) error {
	_, err := conn.Update(ctx, c.SQL.Slow, backend.Call{})
	return err
}
