package registry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// A wild driver panics, or ends the goroutine, in one of its methods.
type wild struct {
	at   atomic.Pointer[string]
	exit bool
	live atomic.Int64
}

func (w *wild) do(method string) {
	if at := w.at.Load(); at == nil || *at != method {
		return
	}
	if w.exit {
		runtime.Goexit()
	}
	panic("in " + method)
}

func (w *wild) Driver() driver.Driver { return nil }
func (w *wild) Connect(context.Context) (driver.Conn, error) {
	w.do("Connect")
	w.live.Add(1)
	return &wildConn{w}, nil
}

// wildConnector has something of its own to close.
type wildConnector struct{ *wild }

func (c wildConnector) Close() error { c.do("Connector.Close"); return nil }

type wildConn struct{ w *wild }

func (c *wildConn) Prepare(string) (driver.Stmt, error) { c.w.do("Prepare"); return wildStmt{c}, nil }
func (c *wildConn) Begin() (driver.Tx, error)           { c.w.do("Begin"); return wildTx{c}, nil }
func (c *wildConn) Ping(context.Context) error          { c.w.do("Ping"); return nil }
func (c *wildConn) IsValid() bool                       { c.w.do("IsValid"); return true }
func (c *wildConn) ResetSession(context.Context) error  { c.w.do("ResetSession"); return nil }

func (c *wildConn) CheckNamedValue(*driver.NamedValue) error {
	c.w.do("CheckNamedValue")
	return driver.ErrSkip
}

func (c *wildConn) Close() error {
	c.w.live.Add(-1)
	c.w.do("Close")
	return nil
}

func (c *wildConn) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.w.do("Exec " + query)
	return driver.RowsAffected(1), nil
}

func (c *wildConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.w.do("Query")
	return &wildRows{c: c, left: 2}, nil
}

type wildStmt struct{ c *wildConn }

func (s wildStmt) Close() error  { s.c.w.do("Stmt.Close"); return nil }
func (s wildStmt) NumInput() int { s.c.w.do("NumInput"); return -1 }
func (s wildStmt) Exec([]driver.Value) (driver.Result, error) {
	s.c.w.do("Stmt.Exec")
	return driver.RowsAffected(1), nil
}

func (s wildStmt) Query([]driver.Value) (driver.Rows, error) {
	s.c.w.do("Stmt.Query")
	return &wildRows{c: s.c}, nil
}

// wildValue is an argument of the borrower's that panics when it is asked for its value.
type wildValue struct{ w *wild }

func (v wildValue) Value() (driver.Value, error) { v.w.do("Value"); return int64(1), nil }

type wildTx struct{ c *wildConn }

func (x wildTx) Commit() error   { x.c.w.do("Commit"); return nil }
func (x wildTx) Rollback() error { x.c.w.do("Rollback"); return nil }

type wildRows struct {
	c    *wildConn
	left int
}

func (r *wildRows) Columns() []string { return []string{"x"} }
func (r *wildRows) Close() error      { r.c.w.do("Rows.Close"); return nil }
func (r *wildRows) Next([]driver.Value) error {
	r.c.w.do("Rows.Next")
	if r.left--; r.left < 0 {
		return io.EOF
	}
	return nil
}

// story is a loan that calls all of a driver.
func (w *wild) story(t *testing.T, r *registry.Registry, end func(c *registry.Conn) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := r.Acquire(ctx, "s", "a")
	if err != nil {
		return
	}
	defer func() {
		began := time.Now()
		_ = end(c)
		require.Zero(t, time.Since(began), "the end of the loan waits for nothing")
	}()
	if rows, err := c.SQL().QueryContext(ctx, "q"); err == nil {
		for rows.Next() {
			continue
		}
		_ = rows.Close()
	}
	_, _ = c.SQL().ExecContext(ctx, "x")
	if rows, err := c.SQL().QueryContext(ctx, "q", wildValue{w}); err == nil {
		_ = rows.Close()
	}
	if s, err := c.SQL().PrepareContext(ctx, "x"); err == nil {
		_, _ = s.ExecContext(ctx)
		if rows, err := s.QueryContext(ctx); err == nil {
			_ = rows.Close()
		}
		_ = s.Close()
	}
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		if tx, err := c.SQL().BeginTx(ctx, nil); err == nil {
			_ = end(tx)
		}
	}
	_ = c.SQL().PingContext(ctx)
}

// A driver that panics, wherever it does, harms neither the program nor the other
// borrowers: the connection is lost, and its slot is there again. So does one that
// ends the goroutine, but for the borrowers' own.
func TestADriverThatPanicsCostsItsConnectionAlone(t *testing.T) {
	panics := strings.Split("Connect,Prepare,Begin,Ping,IsValid,ResetSession,Close,Exec x,Exec ROLLBACK,Query,Stmt.Close,Stmt.Exec,Stmt.Query,Commit,Rollback,Rows.Close,Rows.Next,Connector.Close,NumInput,CheckNamedValue,Value", ",")
	exits := []string{"Connect", "ResetSession", "Close", "Connector.Close"}
	for i, method := range append(panics, exits...) {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wild{exit: i >= len(panics)}
				r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{{Name: "wild", Connector: func(registry.ConnectParams) (driver.Connector, error) { return wildConnector{w}, nil }}}})
				require.NoError(t, err)
				require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
					Name: "s", Kind: "wild", MinIdle: -1, WarmupConnections: -1, MaxSize: 2, ValidateOnRelease: true, Users: map[string]registry.UserMapping{"a": {}},
				}))
				w.story(t, r, (*registry.Conn).Release)
				w.at.Store(&method)
				if method == "Value" {
					w.story(t, r, (*registry.Conn).Release)
					require.EqualValues(t, 1, w.live.Load(), "a value costs no connection")
				}
				for range 3 {
					w.story(t, r, (*registry.Conn).Release)
					w.story(t, r, func(c *registry.Conn) error { return c.Fail(errors.New("so it is")) })
					_ = r.CheckNow(t.Context(), "s")
					_ = r.CloseAll(t.Context(), "s") // the next pool has a connector of its own
				}
				w.at.Store(nil)
				var held []*registry.Conn
				for range 2 { // both slots are there
					c, err := r.Acquire(t.Context(), "s", "a")
					require.NoError(t, err)
					held = append(held, c)
				}
				for _, c := range held {
					require.NoError(t, c.Release())
				}
				if method == "Close" || method == "Connector.Close" {
					w.at.Store(&method)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = r.Close(ctx)
				synctest.Wait()
				require.Zero(t, w.live.Load(), "each connection is closed once")
			})
		})
	}
}
