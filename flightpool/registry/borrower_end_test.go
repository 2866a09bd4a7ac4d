package registry_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// stateError is an error of another database.
type stateError string

func (stateError) Error() string      { return "FATAL: of another database" }
func (e stateError) SQLState() string { return string(e) }

// tardyConn is a connection of a driver that knows no contexts, and whose server takes its time.
type tardyConn struct{ begins, ends, prepares time.Duration }

func (c tardyConn) Driver() driver.Driver                        { return nil }
func (c tardyConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (tardyConn) Close() error                                   { return nil }
func (c tardyConn) Begin() (driver.Tx, error)                    { time.Sleep(c.begins); return tardyTx(c), nil }
func (c tardyConn) Prepare(string) (driver.Stmt, error) {
	time.Sleep(c.prepares)
	return tardyStmt{}, nil
}

type tardyTx struct{ begins, ends, prepares time.Duration }

func (t tardyTx) Commit() error   { time.Sleep(t.ends); return nil }
func (t tardyTx) Rollback() error { time.Sleep(t.ends); return nil }

type tardyStmt struct{}

func (tardyStmt) Close() error                               { return nil }
func (tardyStmt) NumInput() int                              { return 0 }
func (tardyStmt) Exec([]driver.Value) (driver.Result, error) { return driver.RowsAffected(0), nil }
func (tardyStmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.New("none") }

// That a borrower has no time left for what the server is doing, or is cancelled for whatever cause, is no fault of the server.
func TestTheEndOfABorrowersContextIsNoFaultOfTheServer(t *testing.T) {
	const slow, patience = 200 * time.Millisecond, 20 * time.Millisecond
	begin := func(ctx context.Context, c *sql.Conn) error { _, err := c.BeginTx(ctx, nil); return err }
	commit := func(ctx context.Context, c *sql.Conn) error {
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	rollback := func(ctx context.Context, c *sql.Conn) error {
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return tx.Rollback()
	}
	prepare := func(ctx context.Context, c *sql.Conn) error { _, err := c.PrepareContext(ctx, "X"); return err }
	for name, tc := range map[string]struct {
		conn tardyConn
		call func(context.Context, *sql.Conn) error
	}{
		"BEGIN":    {tardyConn{begins: slow}, begin},
		"COMMIT":   {tardyConn{ends: slow}, commit},
		"ROLLBACK": {tardyConn{ends: slow}, rollback},
		"prepare":  {tardyConn{prepares: slow}, prepare},
	} {
		for how, end := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
			"late": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, patience)
			},
			"cancelled for another database's fault": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(patience, func() { cancel(fmt.Errorf("the other call: %w", stateError("57P01"))) })
				return ctx, func() { cancel(nil) }
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, err := registry.NewWith(registry.Config{Kinds: []registry.Kind{{Name: "tardy", Connector: func(registry.ConnectParams) (driver.Connector, error) { return tc.conn, nil }}}})
					require.NoError(t, err)
					defer func() { require.NoError(t, r.Close(context.WithoutCancel(t.Context()))) }()
					require.NoError(t, r.Register(t.Context(), registry.ServerDefinition{
						Name: "s", Kind: "tardy", MinIdle: -1, WarmupConnections: -1, KeepSession: true,
						Users: map[string]registry.UserMapping{"a": {User: "a"}},
					}))
					for range 5 {
						c, err := r.Acquire(t.Context(), "s", "a")
						require.NoError(t, err)
						ctx, stop := end(t.Context())
						require.Error(t, tc.call(ctx, c.SQL()))
						stop()
						_ = c.Release()
						time.Sleep(10 * time.Millisecond)
						synctest.Wait()
						require.True(t, r.Healthy("s"))
					}
				})
			})
		}
	}
}
