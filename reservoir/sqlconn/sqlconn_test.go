package sqlconn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// bubble runs f in virtual time with a Lifecycle on a fake server.
func bubble(t *testing.T, cfg sqlconn.Config, f func(t *testing.T, s *server, target *sqlconn.Lifecycle)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		wrapper := sqlconn.NewWrapper()
		defer func() { require.NoError(t, wrapper.Close()) }()
		cfg.Connector = s
		target, err := sqlconn.New(wrapper, cfg)
		require.NoError(t, err)
		f(t, s, target)
	})
}

func open(t *testing.T, target *sqlconn.Lifecycle) *sqlconn.Conn {
	c, err := target.Open(t.Context())
	require.NoError(t, err)
	return c
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := sqlconn.New(nil, sqlconn.Config{Check: 9})
	for _, field := range []string{"Wrapper", "Connector", "Check"} {
		require.ErrorContains(t, err, field)
	}
}

func TestTheEndOfALoanKeepsThePhysicalConnection(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		for range 3 {
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), "INSERT")
			require.NoError(t, err)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
		}
		require.Equal(t, []string{"INSERT", "INSERT", "INSERT"}, s.session(0).seen())
		require.Zero(t, s.session(0).closes())
		require.NoError(t, target.Close(c))
		require.Equal(t, 1, s.session(0).closes())
	})
}

func TestNothingOfAnEndedLoanReachesTheConnection(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		require.NoError(t, sqlconn.Return(t.Context(), conn))

		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		_, err = conn.ExecContext(t.Context(), "INSERT")
		require.ErrorIs(t, err, sql.ErrConnDone)
		require.NotContains(t, s.session(0).seen(), "COMMIT")
		require.NotContains(t, s.session(0).seen(), "INSERT")
	})
}

// Outside a bubble: database/sql waits on a sync.RWMutex, which holds virtual
// time up.
func TestReturnGivesUpOnALoanWhoseTransactionIsOpen(t *testing.T) {
	wrapper := sqlconn.NewWrapper()
	defer func() { require.NoError(t, wrapper.Close()) }()
	target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: &server{}})
	require.NoError(t, err)
	conn, err := open(t, target).Lend(t.Context())
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, sqlconn.Return(ctx, conn), context.Canceled)
	require.NoError(t, tx.Rollback())
}

func TestPingAsksTheDriverAndQueryRunsTheHealthQueryOfTheKind(t *testing.T) {
	for _, c := range []struct {
		kind  sqlconn.Kind
		check sqlconn.CheckKind
		want  []string
	}{
		{sqlconn.MySQL, sqlconn.Ping, []string{"ping"}},
		{sqlconn.MySQL, sqlconn.Query, []string{"SELECT 1"}},
		{sqlconn.Firebird, sqlconn.Query, []string{"SELECT 1 FROM RDB$DATABASE"}},
		{sqlconn.SQLServer, sqlconn.FullValidate, []string{"IF @@TRANCOUNT > 0 ROLLBACK", "reset session", "SELECT 1"}},
		{sqlconn.Kind{HealthSQL: "VALUES (1)"}, sqlconn.Query, []string{"VALUES (1)"}},
	} {
		bubble(t, sqlconn.Config{Kind: c.kind, Check: c.check}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			require.NoError(t, target.Check(t.Context(), open(t, target)))
			require.Equal(t, c.want, s.session(0).seen())
		})
	}
}

func TestAFailedCheckIsAnErrorAndABrokenConnectionIsNotAsked(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.session(0).fail["ping"] = io.ErrUnexpectedEOF
		require.ErrorIs(t, target.Check(t.Context(), c), io.ErrUnexpectedEOF)
		require.ErrorIs(t, c.Lost(), io.ErrUnexpectedEOF)
		require.Error(t, target.Check(t.Context(), c))
		require.Error(t, target.Reset(t.Context(), c))
		require.Equal(t, []string{"ping"}, s.session(0).seen(), "a broken connection is not used again")
	})
}

func TestResetRollsBackAndRunsTheStatementsOfTheKind(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.Kind{ResetSQL: []string{"FORGET"}}}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		require.NoError(t, target.Reset(t.Context(), open(t, target)))
		require.Equal(t, []string{"ROLLBACK", "reset session", "FORGET"}, s.session(0).seen())
	})
	bubble(t, sqlconn.Config{KeepState: true, Kind: sqlconn.Kind{ResetSQL: []string{"FORGET"}}}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		require.NoError(t, target.Reset(t.Context(), open(t, target)))
		require.Equal(t, []string{"ROLLBACK"}, s.session(0).seen())
	})
}

func TestMySQLReusesOnlyWhatIsKnownToLeaveNothing(t *testing.T) {
	for query, reused := range map[string]bool{
		"SELECT 1": true, " (select 1)": true, "INSERT INTO t VALUES (1)": true, "insert into t values (1);": true, "START TRANSACTION": true,
		"SET NAMES latin1": false, "SELECT @x := 1": false, "SELECT get_lock('a', 1)": false, "CREATE TEMPORARY TABLE t (a int)": false,
		"SELECT NEXTVAL(s)": false, "select next\n value for s": false, "SELECT next_value FROM t": true,
		"USE other": false, "SELECT 1; SET autocommit = 0": false, "/* hello */ SELECT 1": false, "": false,
	} {
		bubble(t, sqlconn.Config{Kind: sqlconn.MySQL}, func(t *testing.T, _ *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), query)
			require.NoError(t, err)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.Equal(t, reused, target.Reset(t.Context(), c) == nil, "%q", query)
		})
	}
}

// What functions of the session tell is taken back where a statement may have set it.
func TestMySQLForgetsTheLastInsertIDAfterWrites(t *testing.T) {
	for query, forgets := range map[string]bool{
		"SELECT 1": false, "BEGIN": false, "SHOW TABLES": false, "INSERT INTO t VALUES (1)": true, "REPLACE t VALUES (1)": true,
		"UPDATE t SET n = last_insert_id(n + 1)": true, "SELECT last_insert_id(7)": true, "SELECT SQL_CALC_FOUND_ROWS * FROM t": true,
	} {
		bubble(t, sqlconn.Config{Kind: sqlconn.MySQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
			c := open(t, target)
			conn, err := c.Lend(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), query)
			require.NoError(t, err)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.NoError(t, target.Reset(t.Context(), c))
			require.Equal(t, forgets, slices.Contains(s.session(0).seen(), sqlconn.MySQL.ResetSQL[0]), query)
		})
	}
}

func TestOnlyTheStatementsOfBorrowersCount(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		s.session(0).fail["BAD"] = errors.New("syntax error")
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "GOOD")
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "BAD")
		require.Error(t, err)
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.NoError(t, target.Reset(t.Context(), c))
		queries, failures, _ := c.Queries()
		require.Equal(t, []uint64{2, 1}, []uint64{queries, failures})
		require.NoError(t, c.Lost(), "a statement's error is not the connection's")
	})
}

func TestRawReachesTheDriversConnectionAndTrustsNothingAfterwards(t *testing.T) {
	bubble(t, sqlconn.Config{Kind: sqlconn.MySQL}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		c := open(t, target)
		conn, err := c.Lend(t.Context())
		require.NoError(t, err)
		require.NoError(t, sqlconn.Raw(conn, func(dc any) error {
			require.Same(t, s.session(0), dc)
			return nil
		}))
		require.NoError(t, sqlconn.Return(t.Context(), conn))
		require.Error(t, target.Reset(t.Context(), c))
	})
}

func TestOpenReturnsAtTheEndOfItsContextAndTheLateConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{hang: make(chan struct{})}
		wrapper := sqlconn.NewWrapper()
		defer func() { require.NoError(t, wrapper.Close()) }()
		target, err := sqlconn.New(wrapper, sqlconn.Config{Connector: s})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = target.Open(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, sqlconn.Unreachable(err))
		require.Equal(t, 1050*time.Millisecond, time.Since(began))
		close(s.hang)
		synctest.Wait()
		require.Equal(t, 1, s.session(0).closes())
	})
}

type pgError string

func (e pgError) Error() string    { return "server says " + string(e) }
func (e pgError) SQLState() string { return string(e) }

func TestConnectionFaultsAreToldFromTheServersAnswers(t *testing.T) {
	for _, c := range []struct {
		err                 error
		broken, unreachable bool
	}{
		{driver.ErrBadConn, true, true},
		{io.EOF, true, true},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, true, true},
		{fmt.Errorf("wrapped: %w", net.ErrClosed), true, true},
		{pgError("08006"), true, true},
		{pgError("57P01"), true, true},
		{pgError("42601"), false, false},
		{pgError("28P01"), false, false},
		{context.Canceled, false, false},
		{context.DeadlineExceeded, false, true},
		{errors.New("no such table"), false, false},
	} {
		require.Equal(t, c.broken, sqlconn.Broken(c.err), "%v", c.err)
		require.Equal(t, c.unreachable, sqlconn.Unreachable(c.err), "%v", c.err)
	}
}

func TestAReservoirOfSQLConnectionsLendsCleanSessions(t *testing.T) {
	bubble(t, sqlconn.Config{}, func(t *testing.T, s *server, target *sqlconn.Lifecycle) {
		pool, err := reservoir.New(reservoir.Config[*sqlconn.Conn]{
			Open: target.Open, Close: target.Close, Check: target.Check, Reset: target.Reset, MaxSize: 1,
		})
		require.NoError(t, err)
		for range 2 {
			loan, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			conn, err := loan.Value().Lend(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), "SET x = 1")
			require.NoError(t, err)
			require.NoError(t, sqlconn.Return(t.Context(), conn))
			require.NoError(t, loan.Release())
		}
		require.NoError(t, pool.Close(t.Context()))
		require.Equal(t, []string{"SET x = 1", "ROLLBACK", "reset session", "SET x = 1", "ROLLBACK", "reset session"}, s.session(0).seen())
		require.Equal(t, 1, s.session(0).closes())
	})
}
