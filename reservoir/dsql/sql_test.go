package dsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/dsql"
	"github.com/flightpool/flightpool/testserver/dsqlgate"
)

func openDB(t *testing.T, g *dsqlgate.Gate, set func(*dsql.Config)) *sql.DB {
	t.Helper()
	db, err := dsql.OpenDB(t.Context(), config(g, set))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestTheReservoirIsTheOnlyIdleStore(t *testing.T) {
	g := startGate(t, nil)
	connector, err := dsql.NewConnector(t.Context(), config(g, nil))
	require.NoError(t, err)
	db := sql.OpenDB(connector) // with database/sql's own default of two idle connections
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxIdleConns(10)
	ctx := within(t, 20*time.Second)
	require.NoError(t, connector.Cluster().WaitReady(ctx, 4))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			var n int
			if err := db.QueryRowContext(ctx, "select 1").Scan(&n); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Zero(t, db.Stats().OpenConnections)
	s := connector.Cluster().Stats().Reservoir
	require.Equal(t, 4, s.Idle)
	require.Equal(t, 4, g.Stats().Admitted, "nothing was opened beside the reservoir")
}

func TestDatabaseSQLHasAllOfPgx(t *testing.T) {
	db := openDB(t, startGate(t, nil), nil)
	ctx := within(t, 20*time.Second)
	var sum int
	require.NoError(t, db.QueryRowContext(ctx, "select sum(n) from unnest($1::int[]) n", []int32{1, 2, 3}).Scan(&sum),
		"a slice is an argument: NamedValueChecker")
	require.Equal(t, 6, sum)
	stmt, err := db.PrepareContext(ctx, "select $1::int + 1")
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stmt.QueryRowContext(ctx, 1).Scan(&sum))
	}
	require.NoError(t, stmt.Close())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(c any) error {
		require.NotZero(t, c.(interface{ Conn() *pgx.Conn }).Conn().PgConn().PID())
		require.Implements(t, (*driver.ConnPrepareContext)(nil), c)
		return nil
	}))
	require.NoError(t, conn.Close())
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var readOnly string
	require.NoError(t, tx.QueryRowContext(ctx, "show transaction_read_only").Scan(&readOnly))
	require.Equal(t, "on", readOnly)
	require.NoError(t, tx.Commit())
	require.NoError(t, db.PingContext(ctx))
}

func TestAnEmptyReservoirIsATypedErrorAndNeverBadConn(t *testing.T) {
	connector, err := dsql.NewConnector(t.Context(), config(startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 }))
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { require.NoError(t, db.Close()) }()
	held, err := db.Conn(within(t, 10*time.Second))
	require.NoError(t, err)
	began := time.Now()
	_, err = db.ExecContext(within(t, 200*time.Millisecond), "select 1")
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond, "it waits on the caller's context")
	require.EqualValues(t, 1, connector.Cluster().Stats().Failures, "once")
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	var empty *dsql.EmptyError
	require.ErrorAs(t, err, &empty)
	require.Equal(t, 1, empty.InUse)
	require.NoError(t, held.Close())
	require.NoError(t, db.PingContext(within(t, 10*time.Second)))
}

func TestAReleasedConnectionGoesToWhoWaits(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	held, err := db.Conn(ctx)
	require.NoError(t, err)
	got := make(chan error)
	go func() { got <- db.PingContext(ctx) }()
	require.NoError(t, held.Close())
	require.NoError(t, <-got)
}

func TestTheSeedsModeDoesNotWait(t *testing.T) {
	g := startGate(t, nil)
	connector, err := dsql.NewConnector(t.Context(), config(g, func(c *dsql.Config) { c.MaxSize, c.NoWait = 1, true }))
	require.NoError(t, err)
	defer func() { require.NoError(t, connector.Close()) }()
	require.NoError(t, connector.Cluster().WaitReady(within(t, 10*time.Second), 1))
	held, err := connector.Connect(t.Context())
	require.NoError(t, err)
	_, err = connector.Connect(t.Context())
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	require.NoError(t, held.Close())
	require.NoError(t, held.Close(), "again is no harm")
	again, err := connector.Connect(t.Context())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestALostCommitOfDatabaseSQLIsUnknown(t *testing.T) {
	g := startGate(t, nil)
	db := openDB(t, g, nil)
	tx, err := db.BeginTx(within(t, 20*time.Second), nil)
	require.NoError(t, err)
	g.DropAtCommit(1)
	require.ErrorIs(t, tx.Commit(), dsql.ErrCommitUnknown)

	g.FailCommits(1, "OC000")
	runs := 0
	require.NoError(t, dsql.RetryOCC(t.Context(), func(ctx context.Context) error {
		runs++
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return tx.Commit()
	}))
	require.Equal(t, 2, runs)
}

func TestASessionCutByDSQLIsNotLent(t *testing.T) {
	g := startGate(t, func(o *dsqlgate.Options) { o.SessionLimit = 200 * time.Millisecond })
	db := openDB(t, g, func(c *dsql.Config) { c.MaxSize = 2 })
	ctx := within(t, 20*time.Second)
	for range 3 {
		require.NoError(t, db.PingContext(ctx))
		reach(t, "all are cut", func() bool { s := g.Stats(); return s.Sockets == 0 && s.Expired == s.Admitted })
	}
}

func TestTheDocumentsModeIsBadConnAtOnceAndThreeTimes(t *testing.T) {
	g := startGate(t, nil)
	connector, err := dsql.NewConnector(t.Context(), config(g, func(c *dsql.Config) { c.MaxSize, c.NoWait, c.BadConnWhenEmpty = 1, true, true }))
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	defer func() { require.NoError(t, db.Close()) }()
	ctx := within(t, 20*time.Second)
	require.NoError(t, connector.Cluster().WaitReady(ctx, 1))
	held, err := db.Conn(ctx)
	require.NoError(t, err)
	err = db.PingContext(ctx)
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.ErrorIs(t, err, dsql.ErrReservoirEmpty, "it still tells what happened")
	require.EqualValues(t, 3, connector.Cluster().Stats().Failures)
	require.NoError(t, held.Close())
	require.NoError(t, db.PingContext(ctx))
}

func TestTransactionOptionsReachTheServer(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	for level, want := range map[sql.IsolationLevel]string{
		sql.LevelDefault: "repeatable read", sql.LevelRepeatableRead: "repeatable read", sql.LevelSnapshot: "repeatable read", sql.LevelSerializable: "serializable",
	} {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: level == sql.LevelSnapshot})
		require.NoError(t, err)
		var isolation, readOnly string
		require.NoError(t, tx.QueryRowContext(ctx, "select current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(&isolation, &readOnly))
		require.Equal(t, want, isolation)
		require.Equal(t, level == sql.LevelSnapshot, readOnly == "on")
		require.NoError(t, tx.Rollback())
	}
	_, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelLinearizable})
	require.ErrorContains(t, err, "isolation")
	require.NoError(t, db.PingContext(ctx), "the connection came back")
}

func TestALoanThatEndedIsNoConnectionAnyMore(t *testing.T) {
	connector, err := dsql.NewConnector(t.Context(), config(startGate(t, nil), nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, connector.Close()) }()
	c, err := connector.Connect(within(t, 20*time.Second))
	require.NoError(t, err)
	conn := c.(*dsql.SQLConn)
	require.False(t, conn.IsValid(), "database/sql keeps none")
	require.NoError(t, conn.ResetSession(t.Context()))
	require.NoError(t, conn.Close())
	require.ErrorIs(t, conn.ResetSession(t.Context()), driver.ErrBadConn)
}

// At driver.ErrBadConn database/sql waits within the call for what its caller has open.
func TestACallOnALostConnectionDoesNotWaitForWhatItsCallerHasOpen(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	for opened, leaveOpen := range map[string]func(conn *sql.Conn) (end func() error, err error){
		"rows": func(conn *sql.Conn) (func() error, error) {
			rows, err := conn.QueryContext(ctx, "select 1") //nolint:sqlclosecheck,rowserrcheck // by end
			if err != nil {
				return nil, err
			}
			return rows.Close, nil
		},
		"a transaction": func(conn *sql.Conn) (func() error, error) {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			return tx.Rollback, nil
		},
	} {
		for name, call := range map[string]func(conn *sql.Conn) error{
			"Exec":  func(conn *sql.Conn) error { _, err := conn.ExecContext(ctx, "select 2"); return err },
			"Ping":  func(conn *sql.Conn) error { return conn.PingContext(ctx) },
			"Begin": func(conn *sql.Conn) error { _, err := conn.BeginTx(ctx, nil); return err },
			"Prepare": func(conn *sql.Conn) error {
				_, err := conn.PrepareContext(ctx, "select 2") //nolint:sqlclosecheck // there is none
				return err
			},
		} {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			end, err := leaveOpen(conn)
			require.NoError(t, err)
			require.NoError(t, conn.Raw(func(c any) error { return c.(*dsql.SQLConn).Conn().PgConn().Conn().Close() }))
			_ = conn.PingContext(ctx) // pgx learns of it
			require.Error(t, call(conn), "%s beside %s", name, opened)
			_ = end()
			_ = conn.Close()
		}
	}
}

func TestWhatDSQLDoesNotDoIsItsErrorAndLeavesNothing(t *testing.T) {
	db := openDB(t, startGate(t, nil), func(c *dsql.Config) { c.MaxSize = 1 })
	ctx := within(t, 20*time.Second)
	for _, s := range []string{"listen news", "create temporary table t (n int)", "create sequence s"} {
		_, err := db.ExecContext(ctx, s)
		var answer *pgconn.PgError
		require.ErrorAs(t, err, &answer)
		require.Equal(t, "0A000", answer.Code, s)
	}
	require.NoError(t, db.PingContext(ctx))
}

// A transaction whose context has ended is over for its borrower before database/sql rolls it back: what
// follows on the connection is no part of it.
func TestWhatFollowsATransactionWhoseContextHasEndedIsNoPartOfIt(t *testing.T) {
	db := openDB(t, startGate(t, nil), nil)
	ctx := within(t, 20*time.Second)
	_, err := db.ExecContext(ctx, "create table if not exists follows (id int); delete from follows")
	require.NoError(t, err)
	for i := range 50 { // database/sql may be first
		func() {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			short, end := context.WithCancel(ctx)
			defer end()
			tx, err := conn.BeginTx(short, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(short, "insert into follows values (-1)")
			require.NoError(t, err)
			end()
			require.Error(t, tx.Commit())
			after := func() (err error) {
				defer func() {
					if recover() != nil { // where database/sql closes the *sql.Conn at that moment
						err = sql.ErrConnDone
					}
				}()
				_, err = conn.ExecContext(ctx, "insert into follows values ($1)", i)
				return err
			}()
			var stored int
			require.NoError(t, db.QueryRowContext(ctx, "select count(*) from follows where id in (-1, $1)", i).Scan(&stored))
			require.Equal(t, after == nil, stored == 1, "%v", after)
		}()
	}
}
