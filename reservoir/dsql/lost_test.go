package dsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A lossyConn passes one more request on when it is armed, and loses the answer
// together with the connection.
type lossyConn struct {
	net.Conn
	armed *atomic.Bool
	sent  atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.armed.CompareAndSwap(true, false) {
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.sent.Load() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

var modes = map[string]pgx.QueryExecMode{
	"cached statements": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
}

func TestWhateverMayHaveBeenSentRunsOnce(t *testing.T) {
	g := startGate(t, nil)
	var armed atomic.Bool
	value := 0 // each case has its own: the server may end what a connection has left, a COPY for one, beside the next case
	for mode, exec := range modes {
		c := newCluster(t, g, func(c *dsql.Config) {
			c.MaxSize, c.CheckInterval = 2, -1
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := g.Dial(ctx, network, address)
				return &lossyConn{Conn: conn, armed: &armed}, err
			}
			c.Pgx = func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = exec }
		})
		ctx := within(t, 30*time.Second)
		pool, err := c.NewPool(dsql.View{})
		require.NoError(t, err)
		db, err := c.OpenDB(dsql.View{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = pool.Exec(ctx, "create table if not exists once (n int)")
		require.NoError(t, err)
		const with = "insert into once values ($1)"
		plain := func() string { return fmt.Sprintf("insert into once values (%d)", value) }
		returning := func() string { return plain() + " returning n" }
		stmt, err := db.PrepareContext(ctx, with)
		require.NoError(t, err)
		var n int
		for name, run := range map[string]func() error{
			"pgx Exec":                func() error { _, err := pool.Exec(ctx, plain()); return err },
			"pgx Exec with arguments": func() error { _, err := pool.Exec(ctx, with, value); return err },
			"pgx Query":               func() error { rows, _ := pool.Query(ctx, returning()); return drain(rows) },
			"pgx QueryRow":            func() error { return pool.QueryRow(ctx, with+" returning n", value).Scan(&n) },
			"pgx batch":               func() error { return inBatch(ctx, pool, with, value, func(pgx.BatchResults) error { return nil }) },
			"pgx batch read": func() error {
				return inBatch(ctx, pool, with+" returning n", value, func(b pgx.BatchResults) error { rows, _ := b.Query(); return drain(rows) })
			},
			"pgx batch read, one row": func() error {
				return inBatch(ctx, pool, with+" returning n", value, func(b pgx.BatchResults) error { return b.QueryRow().Scan(&n) })
			},
			"pgx batch executed": func() error {
				return inBatch(ctx, pool, with, value, func(b pgx.BatchResults) error { _, err := b.Exec(); return err })
			},
			"pgx CopyFrom": func() error {
				_, err := pool.CopyFrom(ctx, pgx.Identifier{"once"}, []string{"n"}, pgx.CopyFromRows([][]any{{value}}))
				return err
			},
			"sql Exec":                   func() error { _, err := db.ExecContext(ctx, plain()); return err },
			"sql Exec with arguments":    func() error { _, err := db.ExecContext(ctx, with, value); return err },
			"sql QueryRow":               func() error { return db.QueryRowContext(ctx, returning()).Scan(&n) },
			"sql QueryRow with argument": func() error { return db.QueryRowContext(ctx, with+" returning n", value).Scan(&n) },
			"sql prepared":               func() error { _, err := stmt.ExecContext(ctx, value); return err },
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				value++
				require.NoError(t, run(), "prepares what is to be prepared, on one connection")
				require.NoError(t, run(), "and on the other")
				_, err := pool.Exec(ctx, "delete from once")
				require.NoError(t, err)
				reach(t, "nothing else is sent", func() bool { s := pool.Stats().Reservoir; return s.Idle == 2 && s.Total == 2 })
				armed.Store(true)
				err = run()
				armed.Store(false)
				require.Error(t, err)
				require.NotErrorIs(t, err, driver.ErrBadConn)
				require.False(t, pgconn.SafeToRetry(err), "%v", err)
				var stored int
				require.NoError(t, pool.QueryRow(ctx, "select count(*) from once where n = $1", value).Scan(&stored))
				require.LessOrEqual(t, stored, 1)
			})
		}
	}
}

// inBatch runs one statement as a batch.
func inBatch(ctx context.Context, p *dsql.Pool, sql string, arg int, read func(pgx.BatchResults) error) error {
	b := &pgx.Batch{}
	b.Queue(sql, arg)
	results := p.SendBatch(ctx, b)
	err := read(results)
	if closed := results.Close(); err == nil {
		err = closed
	}
	return err
}

// The connection of a call whose context ends is closed; the call still says
// why.
// pgx says of a COMMIT whose answer was lost that it is safe to retry.
func TestALostCommitIsNotSafeToRetry(t *testing.T) {
	g := startGate(t, nil)
	var armed atomic.Bool
	c := newCluster(t, g, func(c *dsql.Config) {
		c.MaxSize, c.CheckInterval = 1, -1
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := g.Dial(ctx, network, address)
			return &lossyConn{Conn: conn, armed: &armed}, err
		}
	})
	pool, db := both(t, c)
	ctx := within(t, 30*time.Second)
	for name, run := range map[string]func() error{
		"pgx": func() error {
			return pool.InTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "select 1")
				armed.Store(err == nil)
				return err
			})
		},
		"sql": func() error {
			return dsql.InTx(ctx, db, nil, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "select 1")
				armed.Store(err == nil)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := run()
			require.ErrorIs(t, err, dsql.ErrCommitUnknown)
			require.False(t, pgconn.SafeToRetry(err), "%v", err)
			require.NotErrorIs(t, err, driver.ErrBadConn)
		})
	}
}

func TestACallThatItsContextEndsSaysSoInEveryMode(t *testing.T) {
	g := startGate(t, nil)
	const slow = "select 1 from pg_sleep(2)"
	for mode, exec := range modes {
		c := newCluster(t, g, func(c *dsql.Config) {
			c.CloseTimeout = 200 * time.Millisecond
			c.Pgx = func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = exec }
		})
		pool, err := c.NewPool(dsql.View{})
		require.NoError(t, err)
		db, err := c.OpenDB(dsql.View{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		var n int
		for name, run := range map[string]func(context.Context) error{
			"pgx Exec":     func(ctx context.Context) error { _, err := pool.Exec(ctx, slow); return err },
			"pgx Query":    func(ctx context.Context) error { rows, _ := pool.Query(ctx, slow); return drain(rows) },
			"pgx QueryRow": func(ctx context.Context) error { return pool.QueryRow(ctx, slow+" where $1 = 1", 1).Scan(&n) },
			"pgx batch": func(ctx context.Context) error {
				return inBatch(ctx, pool, slow+" where $1 = 1", 1, func(b pgx.BatchResults) error { return b.QueryRow().Scan(&n) })
			},
			"sql Exec":     func(ctx context.Context) error { _, err := db.ExecContext(ctx, slow); return err },
			"sql QueryRow": func(ctx context.Context) error { return db.QueryRowContext(ctx, slow).Scan(&n) },
		} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				require.NoError(t, c.WaitReady(within(t, 20*time.Second), 1))
				err := run(within(t, 200*time.Millisecond))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, dsql.ErrReservoirEmpty, "it ran")
			})
		}
	}
}
