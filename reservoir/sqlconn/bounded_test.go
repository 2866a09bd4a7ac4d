package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// Drivers wait for the end of a transaction without a context.
func TestTheEndOfATransactionIsBounded(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"COMMIT": (*sql.Tx).Commit, "ROLLBACK": (*sql.Tx).Rollback} {
		for bound, cfg := range map[string]sqlconn.Config{"the context": {}, "the query's time": {QueryTimeout: time.Second}} {
			bubble(t, cfg, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
				s.stuckEnds = make(chan struct{})
				c := open(t, target)
				conn, err := c.Lend(t.Context())
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if cfg.QueryTimeout > 0 {
					ctx = t.Context()
				}
				tx, err := conn.BeginTx(ctx, nil)
				require.NoError(t, err)
				began := time.Now()
				err = end(tx)
				require.ErrorIs(t, err, context.DeadlineExceeded, bound)
				require.ErrorContains(t, err, name+" was not answered")
				require.Equal(t, 1050*time.Millisecond, time.Since(began))
				_, err = conn.ExecContext(t.Context(), "INSERT")
				require.ErrorIs(t, err, driver.ErrBadConn, "the driver is at work on it")
				require.NoError(t, sqlconn.Return(t.Context(), conn))
				require.Error(t, c.Lost())
				require.Error(t, target.Reset(t.Context(), c))
				close(s.stuckEnds)
				synctest.Wait()
				require.NoError(t, target.Close(c))
				require.NotContains(t, s.session(0).seen(), "INSERT")
			})
		}
	}
}

// A connection that is found broken at the end of a transaction or among rows is lost as one that
// is found so by a statement, also where the driver has no word for it.
func TestAConnectionThatBreaksAtAnEndOrAmongRowsIsLost(t *testing.T) {
	transact := func(end func(*sql.Tx) error) func(context.Context, *sql.Conn) error {
		return func(ctx context.Context, conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return end(tx)
		}
	}
	read := func(ctx context.Context, conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, "SELECT")
		if err != nil {
			return err
		}
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
			}
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	ways := map[string]func(context.Context, *sql.Conn) error{
		"COMMIT": transact((*sql.Tx).Commit), "tx rollback": transact((*sql.Tx).Rollback), "next": read, "next set": read,
		"close": func(ctx context.Context, conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, "SELECT") //nolint:rowserrcheck // none is read
			if err != nil {
				return err
			}
			return rows.Close()
		},
	}
	for at, use := range ways {
		for _, fault := range []error{driver.ErrBadConn, io.ErrUnexpectedEOF, fmt.Errorf("read: %w", syscall.ECONNRESET)} {
			bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
				c := open(t, target)
				conn, err := c.Lend(t.Context())
				require.NoError(t, err)
				s.session(0).fail[at] = fault
				require.ErrorIs(t, use(t.Context(), conn), fault, at)
				require.NoError(t, sqlconn.Return(t.Context(), conn))
				require.ErrorIs(t, c.Lost(), fault, at)
				seen := len(s.session(0).seen())
				require.ErrorIs(t, target.Reset(t.Context(), c), fault, at)
				require.Len(t, s.session(0).seen(), seen, at)
				require.NoError(t, target.Close(c))
			})
		}
		bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			s.session(0).fail[at] = errors.New("deadlock found")
			require.Error(t, use(t.Context(), conn), at)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.NoError(t, c.Lost(), at)
			require.NoError(t, target.Close(c))
		})
	}
}

// A connection that a driver has closed for the end of a transaction's context is not held against
// the server by the rollback that finds it so.
func TestARollbackOnAConnectionThatItsContextHasClosed(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		s.session(0).fail["tx rollback"] = driver.ErrBadConn
		cancel()
		synctest.Wait()
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.Error(t, c.Lost())
		require.NotErrorIs(t, c.Lost(), driver.ErrBadConn)
		require.NoError(t, target.Close(c))
	})
}

// database/sql rolls back when the context of a transaction has ended.
func TestTheRollbackAfterTheEndOfAContextHasATimeOfItsOwn(t *testing.T) {
	for _, sticks := range []bool{false, true} {
		bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			s.stuckEnds = make(chan struct{})
			_, err = conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			cancel()
			time.Sleep(4 * time.Second)
			if !sticks {
				close(s.stuckEnds)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			if sticks {
				require.Error(t, c.Lost())
				close(s.stuckEnds)
			} else {
				require.NoError(t, c.Lost())
				require.Contains(t, s.session(0).seen(), "tx rollback")
			}
			synctest.Wait()
			require.NoError(t, target.Close(c))
		})
	}
}

// database/sql closes a *sql.Conn itself where it has rolled back, and then says that it is
// done, also while its rows are read.
func TestAConnectionIsNotResetUnderOpenRows(t *testing.T) {
	s := &server{}
	wrapper := sqlconn.NewWrapper()
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: s})
	require.NoError(t, err)
	for _, closes := range []bool{false, true} {
		c, err := target.Open(t.Context())
		require.NoError(t, err)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		rows, err := conn.QueryContext(t.Context(), "SELECT")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		cancel()
		for conn.Raw(func(any) error { return nil }) == nil {
			runtime.Gosched() // until database/sql has noticed
		}
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		if closes {
			require.NoError(t, rows.Close())
			require.NoError(t, target.Reset(t.Context(), c))
		} else {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.ErrorContains(t, target.Reset(ctx, c), "still open")
			require.NotContains(t, s.session(0).seen(), "ROLLBACK")
			require.NoError(t, rows.Close())
		}
		require.NoError(t, target.Close(c))
	}
	require.NoError(t, wrapper.Close())
}

// A deaf driver does not look at contexts: what it does, it does for each call.
type deaf struct {
	does   func()
	closed chan struct{}
}

func (d *deaf) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (*deaf) Driver() driver.Driver                          { return nil }
func (*deaf) Prepare(string) (driver.Stmt, error)            { return nil, errors.New("no") }
func (*deaf) Begin() (driver.Tx, error)                      { return nil, errors.New("no") }
func (d *deaf) Close() error                                 { close(d.closed); return nil }
func (d *deaf) Ping(context.Context) error                   { d.does(); return nil }
func (d *deaf) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	d.does()
	return driver.RowsAffected(0), nil
}

func TestCallsIntoADriverAreBounded(t *testing.T) {
	calls := map[string]func(target *sqlconn.Lifecycle, ctx context.Context, c *sqlconn.Conn) error{
		"check": (*sqlconn.Lifecycle).Check, "reset": (*sqlconn.Lifecycle).Reset,
	}
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			d := &deaf{closed: make(chan struct{})}
			d.does = func() { <-d.closed } // as a read of a socket does
			wrapper := sqlconn.NewWrapper()
			target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: d})
			require.NoError(t, err)
			c, err := target.Open(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			err = call(target, ctx, c)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.True(t, sqlconn.Unreachable(err))
			require.Equal(t, 1050*time.Millisecond, time.Since(began))
			require.ErrorIs(t, c.Lost(), context.DeadlineExceeded, "it is not used again")
			began = time.Now()
			require.NoError(t, target.Close(c))
			require.Equal(t, 5*time.Second, time.Since(began), "what was given up may yet return")
			synctest.Wait()
			require.NoError(t, wrapper.Close())
		})
	}
}

func TestADriverThatPanicsOrExitsHarmsNobody(t *testing.T) {
	for name, does := range map[string]func(){"panicked": func() { panic("secret") }, "goroutine": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			d := &deaf{closed: make(chan struct{}), does: does}
			wrapper := sqlconn.NewWrapper()
			target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: d})
			require.NoError(t, err)
			c, err := target.Open(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, target.Check(ctx, c), name)
			require.NoError(t, target.Close(c))
			require.NoError(t, wrapper.Close())
		})
	}
}

// socketTimeout is what a driver says that carries deadlines out by its socket.
type socketTimeout struct{}

func (socketTimeout) Error() string   { return "read tcp: i/o timeout" }
func (socketTimeout) Timeout() bool   { return true }
func (socketTimeout) Temporary() bool { return true }

// impatient ends statements with the deadline, or a moment before it.
type impatient struct {
	deaf
	before time.Duration
	says   error
	dead   bool
}

func (d *impatient) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *impatient) IsValid() bool                                { return !d.dead }
func (d *impatient) ExecContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Result, error) {
	end, _ := ctx.Deadline()
	time.Sleep(time.Until(end) - d.before)
	d.dead = true
	return nil, d.says
}

type serverSaid struct{ error }

func (serverSaid) SQLState() string { return "57P01" }

func TestTheEndOfAStatementsTimeIsNoFaultOfTheServer(t *testing.T) {
	for _, c := range []struct {
		before time.Duration
		says   error
		fault  bool
	}{
		{0, socketTimeout{}, false},
		{10 * time.Millisecond, socketTimeout{}, false},
		{-time.Millisecond, driver.ErrBadConn, false},
		{500 * time.Millisecond, socketTimeout{}, true},
		{10 * time.Millisecond, driver.ErrBadConn, true},
		{-time.Millisecond, serverSaid{errors.New("shutting down")}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			wrapper := sqlconn.NewWrapper()
			target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: &impatient{deaf: deaf{closed: make(chan struct{})}, before: c.before, says: c.says}})
			require.NoError(t, err)
			conn, err := target.Open(t.Context())
			require.NoError(t, err)
			lent, err := conn.Lend(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = lent.ExecContext(ctx, "x")
			require.Error(t, err)
			require.Error(t, conn.Lost())
			require.Equal(t, c.fault, sqlconn.Unreachable(conn.Lost()), "%v before the end: %v: %v", c.before, c.says, conn.Lost())
			require.NoError(t, sqlconn.Return(t.Context(), lent))
			require.NoError(t, target.Close(conn))
			require.NoError(t, wrapper.Close())
		})
	}
}

// A server such as SQLite refuses ROLLBACK where no transaction is open, and BEGIN
// where one is. ROLLBACK goes first each time: where it was refused once for another
// reason, BEGIN would commit what is open.
func TestRollbackWhereNoTransactionIsOpen(t *testing.T) {
	refusing := errors.New("cannot rollback - no transaction is active")
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.session(0).transactions = refusing
		for range 2 {
			require.NoError(t, target.Reset(t.Context(), c))
		}
		use(t, c, "BEGIN")
		require.NoError(t, target.Reset(t.Context(), c))
		require.False(t, s.session(0).inTransaction)
		require.Equal(t, []string{"ROLLBACK", "BEGIN", "ROLLBACK", "reset session", "ROLLBACK", "BEGIN", "ROLLBACK", "reset session",
			"BEGIN", "ROLLBACK", "reset session"}, s.session(0).seen())
		s.session(0).fail["ROLLBACK"] = errors.New("no")
		require.ErrorContains(t, target.Reset(t.Context(), c), "no", "one that is refused always")
		require.NoError(t, target.Close(c))
	})
}

func use(t *testing.T, c *sqlconn.Conn, statements ...string) {
	lent, err := c.Lend(t.Context())
	require.NoError(t, err)
	for _, sql := range statements {
		_, err := lent.ExecContext(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, sqlconn.Return(t.Context(), lent))
}

func TestDSQLIsResetAfterSettingsAndClosedAfterTheRest(t *testing.T) {
	for sql, want := range map[string][]string{
		"SELECT 1": nil, "insert into t values (1)": nil, "CREATE TABLE t (v int);": nil,
		"SET search_path = 'x'": {"RESET ALL"}, "reset all": {"RESET ALL"}, "SELECT set_config('a.b', 'x', false)": {"RESET ALL"},
		"UPDATE pg_settings SET setting = 'x' WHERE name = 'search_path'": {"RESET ALL"}, "with s as (update Pg_Settings set setting = 'x' where name = 'a.b' returning 1) select 1": {"RESET ALL"},
		"UPDATE pg_catalog.pg_settings SET setting = 'other' WHERE name = 'role'": {"closed"},
		"SET ROLE other": {"closed"}, "SET SESSION AUTHORIZATION other": {"closed"}, "PREPARE p AS SELECT 1": {"closed"},
		"SELECT 1; SET ROLE other": {"closed"}, "/* */ SET a.b = 'x'": {"closed"}, "DECLARE c CURSOR WITH HOLD FOR SELECT 1": {"closed"},
	} {
		bubble(t, sqlconn.Config{Kind: sqlconn.DSQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			use(t, c, sql)
			var got []string
			if target.Reset(t.Context(), c) != nil {
				got = []string{"closed"}
			} else if seen := s.session(0).seen(); seen[len(seen)-1] == "RESET ALL" {
				got = []string{"RESET ALL"}
			}
			require.Equal(t, want, got, "%s", sql)
			require.NoError(t, target.Close(c))
		})
	}
}

func TestATargetPrintsNoCredentials(t *testing.T) {
	wrapper := sqlconn.NewWrapper()
	defer func() { require.NoError(t, wrapper.Close()) }()
	cfg := sqlconn.Config{Connector: passwordConnector{"hunter2"}, Kind: sqlconn.MySQL}
	target, err := sqlconn.New(wrapper, cfg)
	require.NoError(t, err)
	for _, v := range []any{cfg, &cfg, target} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			require.NotContains(t, fmt.Sprintf(verb, v), "hunter2", "%s of %T", verb, v)
		}
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(text), "hunter2", "JSON of %T", v)
	}
}

type passwordConnector struct{ Password string }

func (passwordConnector) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("no") }
func (passwordConnector) Driver() driver.Driver                        { return nil }

// A driver that panics or ends its goroutine where no borrower waits ends neither
// the program nor the wait for it.
type wild struct {
	dies   func()
	stage  string // where: connect, close or kill
	opened atomic.Int64
}

func (w *wild) Driver() driver.Driver { return nil }
func (w *wild) Connect(ctx context.Context) (driver.Conn, error) {
	if w.stage == "late" {
		time.Sleep(time.Minute)
	}
	w.die("connect")
	w.opened.Add(1)
	return &wildConn{w}, nil
}

func (w *wild) die(stage string) {
	if w.stage == stage {
		w.dies()
	}
}

type wildConn struct{ w *wild }

func (*wildConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no") }
func (*wildConn) Begin() (driver.Tx, error)           { return nil, errors.New("no") }
func (c *wildConn) Close() error                      { c.w.die("late"); c.w.die("close"); return nil }
func (c *wildConn) IsValid() bool                     { c.w.die("valid"); return true }

func TestADriverThatPanicsWhereNoBorrowerWaits(t *testing.T) {
	for name, dies := range map[string]func(){"panicked": func() { panic("so it is") }, "ended": runtime.Goexit} {
		for _, stage := range []string{"connect", "late", "valid"} {
			synctest.Test(t, func(t *testing.T) {
				w := &wild{dies: dies, stage: stage}
				wrapper := sqlconn.NewWrapper()
				defer func() { require.NoError(t, wrapper.Close()) }()
				target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: w})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				c, err := target.Open(ctx)
				switch stage {
				case "connect":
					require.ErrorContains(t, err, "the driver "+name)
					require.Zero(t, time.Since(began), "nobody waits for what cannot come")
				case "late":
					require.ErrorIs(t, err, context.DeadlineExceeded)
					time.Sleep(time.Hour) // what came too late is closed
					require.EqualValues(t, 1, w.opened.Load())
				default:
					require.NoError(t, err)
					w.stage = ""
					conn, err := c.Lend(ctx)
					require.NoError(t, err)
					w.stage = "valid"
					err = sqlconn.Return(ctx, conn)
					if name == "panicked" {
						require.NoError(t, err)
						err = c.Lost()
					}
					require.ErrorContains(t, err, "the driver "+name)
					w.stage = ""
					require.NoError(t, target.Close(c))
				}
				synctest.Wait()
			})
		}
	}
}

func TestADriverThatMakesNothingIsToldOf(t *testing.T) {
	wrapper := sqlconn.NewWrapper()
	defer func() { require.NoError(t, wrapper.Close()) }()
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: nothing{}})
	require.NoError(t, err)
	_, err = target.Open(t.Context())
	require.ErrorContains(t, err, "made no connection")
}

type nothing struct{}

func (nothing) Connect(context.Context) (driver.Conn, error) { return nil, nil } //nolint:nilnil // that is the point
func (nothing) Driver() driver.Driver                        { return nil }

func TestWhatDropsADriversPreparedStatements(t *testing.T) {
	for sql, keeps := range map[string]bool{
		"SELECT 1": true, "": true, "d": true, "DEALLOCATE mine": true, "SELECT discarded FROM deallocated": true, "DISCARD TEMP": true, "DISCARD PLANS": true,
		"DISCARD ALL": false, "discard\n\tall;": false, "DISCARD/**/ALL": false, "DEALLOCATE ALL": false, "deallocate prepare all": false, "SELECT 1; DEALLOCATE all": false,
		"DO $$ BEGIN EXECUTE 'discard all'; END $$": false, "DEALLOCATE stmtcache_0": false, `DEALLOCATE "stmtcache_0"`: false, "DISCARD": false,
	} {
		require.Equal(t, keeps, sqlconn.PostgreSQL.Resettable(sql), sql)
	}
}

// A silentDriver is one on whose connections nothing is answered until they are closed.
type silentDriver struct{ server }

func (s *silentDriver) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.server.Connect(ctx)
	return silentConn{c.(*session), make(chan struct{})}, err //nolint:forcetypeassert // the server makes no others
}

type silentConn struct {
	*session
	closed chan struct{}
}

func (c silentConn) Close() error { close(c.closed); return nil }

func (c silentConn) PrepareContext(ctx context.Context, _ string) (driver.Stmt, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c silentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	<-c.closed
	return nil, net.ErrClosed
}

// What comes before a statement has its time, too: drivers that interpolate nothing
// prepare each statement with arguments.
func TestTheTimeOfAStatementBoundsWhatComesBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		call func(ctx context.Context, conn *sql.Conn) error
		took time.Duration
	}{
		"prepare": {func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.PrepareContext(ctx, "SELECT ?")
			return err
		}, time.Second},
		"begin": {func(ctx context.Context, conn *sql.Conn) error { _, err := conn.BeginTx(ctx, nil); return err }, 1050 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			wrapper := sqlconn.NewWrapper()
			target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: &silentDriver{}, QueryTimeout: time.Second})
			require.NoError(t, err)
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			began := time.Now()
			require.ErrorIs(t, tc.call(context.WithoutCancel(t.Context()), conn), context.DeadlineExceeded, name)
			require.Equal(t, tc.took, time.Since(began), name)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.NoError(t, target.Close(c))
			require.NoError(t, wrapper.Close())
		})
	}
}

// What a borrower closes by Raw, as database/sql lets it, is not used again.
func TestAConnectionThatItsBorrowerClosesIsNotUsedAgain(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.Raw(func(driverConn any) error { return driverConn.(driver.Conn).Close() }))
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.ErrorIs(t, target.Reset(t.Context(), c), net.ErrClosed)
		require.NoError(t, target.Close(c))
		require.Equal(t, 1, s.session(0).closes())
	})
}

// The server has the session until it is closed.
func TestAConnectionThatCannotBeIdentifiedCountsUntilItIsClosed(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		s.stuckIdentify = make(chan struct{})
		pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{Open: target.Open, Close: target.Close, MaxSize: 1, MinIdle: 1, OpenTimeout: time.Second})
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		s.mu.Lock()
		require.Greater(t, len(s.conns), 1)
		require.Equal(t, 1, s.mostOpen)
		s.mu.Unlock()
		close(s.stuckIdentify)
		require.NoError(t, pool.Close(t.Context()))
	})
}
