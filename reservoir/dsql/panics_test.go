package dsql_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
)

// A bomb is a value of the user's that panics.
type bomb struct{}

func (bomb) Value() (driver.Value, error) { panic("the user's") }

func (bomb) Scan(any) error { panic("the user's") }

func (bomb) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	panic("the user's")
}

// A panic in a value of the user's, or in a function of a batch, reaches the caller
// and costs no place in the pool.
func TestPanicsInValuesOfTheUsersLoseNothing(t *testing.T) {
	batch := func(ctx context.Context, p *dsql.Pool, fill func(*pgx.Batch)) {
		b := &pgx.Batch{}
		fill(b)
		_ = p.SendBatch(ctx, b).Close()
	}
	for name, use := range map[string]func(context.Context, *dsql.Pool){
		"Exec":  func(ctx context.Context, p *dsql.Pool) { _, _ = p.Exec(ctx, "select $1::text", bomb{}) },
		"Query": func(ctx context.Context, p *dsql.Pool) { _, _ = p.Query(ctx, "select $1::text", bomb{}) },
		"QueryRow": func(ctx context.Context, p *dsql.Pool) {
			_ = p.QueryRow(ctx, "select $1::text", bomb{}).Scan(new(string))
		},
		"rewriter": func(ctx context.Context, p *dsql.Pool) { _, _ = p.Query(ctx, "select 1", pgx.QueryRewriter(bomb{})) },
		"batch": func(ctx context.Context, p *dsql.Pool) {
			batch(ctx, p, func(b *pgx.Batch) { b.Queue("select $1::text", bomb{}) })
		},
		"function of a batch": func(ctx context.Context, p *dsql.Pool) {
			batch(ctx, p, func(b *pgx.Batch) { b.Queue("select 1").QueryRow(func(pgx.Row) error { panic("the user's") }) })
		},
		"Scan of a row": func(ctx context.Context, p *dsql.Pool) { _ = p.QueryRow(ctx, "select 'a'").Scan(&bomb{}) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
			ctx := within(t, 20*time.Second)
			require.NoError(t, p.Ping(ctx))
			require.PanicsWithValue(t, "the user's", func() { use(ctx, p) })
			require.NoError(t, p.Ping(ctx))
		})
	}
}

// database/sql lets go of neither its connection nor the locks of a transaction where a call of the
// driver's panics: a place in the pool was taken for good, and Rollback hung.
func TestPanicsBehindDatabaseSQLAreErrorsAndLoseNothing(t *testing.T) {
	const text = "select $1::text"
	inTx := func(ctx context.Context, db *sql.DB, use func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		err = use(tx)
		ended := make(chan struct{})
		go func() { defer close(ended); _ = tx.Rollback() }()
		select {
		case <-ended:
		case <-ctx.Done():
			t.Error("Rollback hangs")
		}
		return err
	}
	for name, use := range map[string]func(context.Context, *sql.DB) error{
		"Query": func(ctx context.Context, db *sql.DB) error { _, err := db.QueryContext(ctx, text, bomb{}); return err }, //nolint:rowserrcheck,sqlclosecheck // there are none
		"Exec":  func(ctx context.Context, db *sql.DB) error { _, err := db.ExecContext(ctx, text, bomb{}); return err },
		"QueryRow": func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, text, bomb{}).Scan(new(string))
		},
		"Stmt.Query": func(ctx context.Context, db *sql.DB) error {
			st, err := db.PrepareContext(ctx, text)
			require.NoError(t, err)
			_, err = st.QueryContext(ctx, bomb{}) //nolint:rowserrcheck,sqlclosecheck // there are none
			require.NoError(t, st.Close())
			return err
		},
		"Tx.Query": func(ctx context.Context, db *sql.DB) error {
			return inTx(ctx, db, func(tx *sql.Tx) error { _, err := tx.QueryContext(ctx, text, bomb{}); return err }) //nolint:rowserrcheck,sqlclosecheck // there are none
		},
		"Tx.Exec": func(ctx context.Context, db *sql.DB) error {
			return inTx(ctx, db, func(tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text, bomb{}); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
			ctx := within(t, 20*time.Second)
			require.NoError(t, db.PingContext(ctx))
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("it panicked: %v", p)
					}
				}()
				return use(within(t, 5*time.Second), db)
			}()
			require.ErrorContains(t, err, "panicked: the user's")
			require.Zero(t, db.Stats().InUse)
			require.NoError(t, db.PingContext(within(t, 5*time.Second)))
		})
	}
}

// A tripwire is a tracer of pgx that panics at the end of a query.
type tripwire struct{ armed atomic.Bool }

func (*tripwire) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (w *tripwire) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	if w.armed.Load() {
		panic("the user's")
	}
}

func TestPanicsInTracersOfPgxLoseNothing(t *testing.T) {
	for name, end := range map[string]func(pgx.Rows){"Close": pgx.Rows.Close, "Next": func(r pgx.Rows) { r.Next(); r.Next() }} {
		t.Run(name, func(t *testing.T) {
			w := &tripwire{}
			p := newPool(t, startGate(t, nil), func(c *dsql.Config) {
				c.MaxSize = 1
				c.Pgx = func(c *pgx.ConnConfig) { c.Tracer = w }
			})
			ctx := within(t, 5*time.Second)
			rows, err := p.Query(ctx, "select 1")
			require.NoError(t, err)
			w.armed.Store(true)
			require.PanicsWithValue(t, "the user's", func() { end(rows) })
			w.armed.Store(false)
			require.NoError(t, p.Ping(ctx))
		})
	}
}

func TestPanicsOfTracersBehindDatabaseSQLLoseNothing(t *testing.T) {
	w := &tripwire{}
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) {
		c.MaxSize = 1
		c.Pgx = func(c *pgx.ConnConfig) { c.Tracer = w }
	})
	armed := func(call func() error) error {
		w.armed.Store(true)
		defer w.armed.Store(false)
		return call()
	}
	ctx := within(t, 20*time.Second)
	inTx := func(end func(*sql.Tx) error) func() error {
		return func() error {
			w.armed.Store(false)
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			w.armed.Store(true)
			return end(tx)
		}
	}
	for name, call := range map[string]func() error{
		"BeginTx": func() error { _, err := db.BeginTx(ctx, nil); return err },
		"Prepare": func() error {
			st, err := db.PrepareContext(ctx, "select 1")
			if err == nil {
				_, err = st.ExecContext(ctx)
				_ = st.Close()
			}
			return err
		},
		"Commit": inTx((*sql.Tx).Commit), "Rollback": inTx((*sql.Tx).Rollback),
	} {
		err := armed(call)
		require.ErrorContains(t, err, "panicked: the user's", name)
		require.Equal(t, name == "Commit", errors.Is(err, dsql.ErrCommitUnknown), name)
		require.Zero(t, db.Stats().InUse, name)
		require.NoError(t, db.PingContext(within(t, 5*time.Second)), name)
	}
}

// A transaction that its borrower left open is rolled back behind the borrower, where
// a panic would end the process.
func TestAPanicInARepairCostsTheConnectionAlone(t *testing.T) {
	w := &tripwire{}
	g := startGate(t, nil)
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize = 1
		c.Pgx = func(c *pgx.ConnConfig) { c.Tracer = w }
	})
	ctx := within(t, 20*time.Second)
	conn, err := p.Acquire(ctx)
	require.NoError(t, err)
	_, err = conn.Begin(ctx)
	require.NoError(t, err)
	w.armed.Store(true)
	conn.Release()
	reach(t, "the connection is given back", func() bool { return p.Stats().Reservoir.InUse == 0 })
	w.armed.Store(false)
	require.NoError(t, p.Ping(ctx))
	require.Equal(t, 2, g.Stats().Admitted)
}

// A connection that was hijacked from pgx is lost to the pool, not its place.
func TestAConnectionThatWasHijackedHoldsNoPlace(t *testing.T) {
	p := newPool(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize, c.CloseTimeout = 1, 100*time.Millisecond })
	ctx := within(t, 20*time.Second)
	require.NoError(t, p.AcquireFunc(ctx, func(c *dsql.Conn) error {
		_, err := c.Conn().PgConn().Hijack()
		return err
	}))
	require.NoError(t, p.Ping(ctx))
	require.Equal(t, 1, p.Stats().Leases.InUse)
}

// counting counts the connections that are not closed.
type counting struct {
	net.Conn
	open   *atomic.Int32
	closed atomic.Bool
}

func (c *counting) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

func TestAnOpenThatPanicsLeavesNoSocket(t *testing.T) {
	g := startGate(t, nil)
	var open atomic.Int32
	p := newPool(t, g, func(c *dsql.Config) {
		c.MaxSize, c.OnDemand = 1, true
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := g.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &counting{Conn: conn, open: &open}, nil
		}
		c.TLS = c.TLS.Clone()
		c.TLS.VerifyConnection = func(tls.ConnectionState) error { panic("the user's") }
	})
	require.ErrorContains(t, p.Ping(within(t, 5*time.Second)), "the user's")
	closeSoon(t, p.Close)
	require.Zero(t, open.Load())
}

// A function of the user's that does not end with its context holds no place.
func TestAnOpenThatHangsHoldsNoPlace(t *testing.T) {
	for _, which := range []string{"Dial", "ValidateConnect of pgx", "AfterConnect"} {
		t.Run(which, func(t *testing.T) {
			g := startGate(t, nil)
			hold := make(chan struct{})
			defer close(hold)
			var hung atomic.Bool
			hang := func(where string) {
				if where == which && !hung.Swap(true) {
					<-hold
				}
			}
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize, c.OpenTimeout = 1, 500*time.Millisecond
				c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					hang("Dial")
					return g.Dial(ctx, network, address)
				}
				c.Pgx = func(c *pgx.ConnConfig) {
					c.ValidateConnect = func(context.Context, *pgconn.PgConn) error { hang("ValidateConnect of pgx"); return nil }
				}
				c.AfterConnect = func(context.Context, *pgx.Conn) error { hang("AfterConnect"); return nil }
			})
			ctx := within(t, 20*time.Second)
			reach(t, "the next open succeeds", func() bool { return p.Ping(ctx) == nil })
			require.True(t, hung.Load())
			reach(t, "the server has one session", func() bool { return g.Stats().Live == 1 })
			closeSoon(t, p.Close)
			require.Zero(t, p.Stats().Leases.InUse)
		})
	}
}

// Nor does one that is called when a connection comes back, or is closed. It may go
// on with the connection, which nobody else uses meanwhile.
func TestAFunctionThatHangsAfterALoanHoldsNobody(t *testing.T) {
	for _, which := range []string{"OnReturn", "BeforeClose"} {
		t.Run(which, func(t *testing.T) {
			g := startGate(t, nil)
			hold, over := make(chan struct{}), make(chan struct{})
			var hung atomic.Bool
			hang := func(where string, conn *pgx.Conn) {
				if where == which && !hung.Swap(true) {
					defer close(over)
					for range 1000 {
						_ = conn.Ping(context.WithoutCancel(t.Context()))
					}
					<-hold
				}
			}
			p := newPool(t, g, func(c *dsql.Config) {
				c.MaxSize, c.CheckTimeout, c.CloseTimeout = 1, 100*time.Millisecond, 500*time.Millisecond
				c.OnReturn = func(_ context.Context, conn *pgx.Conn) error { hang("OnReturn", conn); return nil }
				c.BeforeClose = func(conn *pgx.Conn) { hang("BeforeClose", conn) }
			})
			ctx := within(t, 20*time.Second)
			conn, err := p.Acquire(ctx)
			require.NoError(t, err)
			if which == "OnReturn" {
				conn.Release()
			} else {
				conn.Discard(context.Canceled)
			}
			require.NoError(t, p.Ping(ctx))
			require.True(t, hung.Load())
			require.Equal(t, 1, p.Stats().Leases.InUse)
			require.Equal(t, 2, g.Stats().Admitted)
			closeSoon(t, p.Close)
			reach(t, "nothing is left at the server", func() bool { return g.Stats().Live == 0 })
			close(hold)
			<-over
		})
	}
}
