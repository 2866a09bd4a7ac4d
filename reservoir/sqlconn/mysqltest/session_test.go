package mysqltest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir/sqlconn"
)

// What a session can be left with is not there for the next borrower: of an open
// transaction the connection is freed, with anything else it is closed.
func TestNothingOfASessionIsLeftForTheNextBorrower(t *testing.T) {
	r := newRig(t, nil)
	admin := r.admin()
	for _, s := range []string{"CREATE TABLE t (n INT PRIMARY KEY) ENGINE=InnoDB", "CREATE DATABASE other", "CREATE SEQUENCE s", "CREATE TABLE numbered (n INT PRIMARY KEY AUTO_INCREMENT, m INT)"} {
		_, err := admin.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		leave, look, want string
		reused            bool
	}{
		{"INSERT INTO t VALUES (1)", "SELECT COUNT(*) FROM t", "1", true},
		{"START TRANSACTION; INSERT INTO t VALUES (2)", "SELECT COUNT(*) FROM t", "1", true},
		{"START TRANSACTION; SELECT * FROM t FOR UPDATE", "SELECT @@in_transaction", "0", true},
		{"BEGIN; SAVEPOINT s; DELETE FROM t", "SELECT COUNT(*) FROM t", "1", true},
		{"SET @mine = 'left'", "SELECT COALESCE(@mine, '-')", "-", false},
		{"SELECT 'left' INTO @mine", "SELECT COALESCE(@mine, '-')", "-", false},
		{"CREATE TEMPORARY TABLE mine (n INT)", "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'mine'", "0", false},
		{"SET autocommit = 0", "SELECT @@autocommit", "1", false},
		{"SET SESSION sql_mode = 'ANSI'", "SELECT @@sql_mode = @@GLOBAL.sql_mode", "1", false},
		{"SET NAMES latin1", "SELECT @@character_set_client", "utf8mb4", false},
		{"SET SESSION TRANSACTION READ ONLY", "SELECT @@tx_read_only", "0", false},
		{"LOCK TABLES t READ", "SELECT COUNT(*) FROM mysql.user WHERE User = 'nobody'", "0", false},
		{"DO GET_LOCK('mine', 0)", "SELECT GET_LOCK('mine', 10)", "1", false},
		{"SELECT GET_LOCK('mine', 0)", "SELECT GET_LOCK('mine', 10)", "1", false},
		{"USE other", "SELECT DATABASE()", "test", false},
		{"PREPARE mine FROM 'SELECT 1'", "SELECT COUNT(*) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'COM_STMT_PREPARE' AND VARIABLE_VALUE > 0", "0", false},
		{"INSERT INTO numbered (m) VALUES (7)", "SELECT LAST_INSERT_ID()", "0", true},
		{"UPDATE numbered SET m = LAST_INSERT_ID(m + 100)", "SELECT LAST_INSERT_ID()", "0", true},
		{"SELECT LAST_INSERT_ID(77)", "SELECT LAST_INSERT_ID()", "0", true},
		{"SELECT SQL_CALC_FOUND_ROWS seq FROM seq_1_to_50 LIMIT 3", "SELECT FOUND_ROWS()", "1", true},
		{"INSERT IGNORE INTO t VALUES (1), (1)", "SELECT @@warning_count", "0", true},
		{"SELECT NEXTVAL(s)", "SELECT COALESCE(LASTVAL(s), '-')", "-", false},
		{"SELECT NEXT  VALUE FOR s", "SELECT COALESCE(LASTVAL(s), '-')", "-", false},
		{"BEGIN NOT ATOMIC SET @mine = 'left'; END", "SELECT COALESCE(@mine, '-')", "-", false},
	} {
		first := r.use(func(conn *sql.Conn) { run(t, conn, c.leave) })
		second := r.use(func(conn *sql.Conn) { require.Equal(t, c.want, r.ask(conn, c.look), "%s", c.leave) })
		require.Equal(t, c.reused, first == second, "%s", c.leave)
	}
	require.NoError(t, r.pool.CheckOne(t.Context()))
}

// run runs statements that are separated by "; " one by one, and reads their rows.
func run(t *testing.T, conn *sql.Conn, statements string) {
	for _, s := range split(statements) {
		rows, err := conn.QueryContext(t.Context(), s)
		require.NoError(t, err, s)
		for rows.Next() {
			continue
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
}

func TestATransactionOfALoanEndsWithIt(t *testing.T) {
	r := newRig(t, nil)
	admin := r.admin()
	_, err := admin.ExecContext(t.Context(), "CREATE TABLE t (n INT) ENGINE=InnoDB")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	first := r.use(func(c *sql.Conn) {
		tx, err := c.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO t VALUES (?)", 1)
		require.NoError(t, err)
		cancel()
		require.Error(t, tx.Commit())
	})
	second := r.use(func(c *sql.Conn) { require.Equal(t, "0", r.ask(c, "SELECT COUNT(*) FROM t")) })
	require.Equal(t, first, second, "the end of a transaction's context rolls back and costs no connection")
}

func TestAStatementWithArgumentsCountsOnce(t *testing.T) {
	r := newRig(t, nil)
	loan, err := r.pool.Acquire(t.Context())
	require.NoError(t, err)
	c, err := loan.Value().Lend(t.Context())
	require.NoError(t, err)
	require.Equal(t, "7", r.ask(c, "SELECT ? + 3", 4))
	_, err = c.ExecContext(t.Context(), "DO ?", 1)
	require.NoError(t, err)
	_, err = c.ExecContext(t.Context(), "no SQL ?", 1)
	require.Error(t, err)
	require.NoError(t, sqlconn.Return(t.Context(), c))
	queries, failures, busy := loan.Value().Queries()
	require.Equal(t, []uint64{3, 1}, []uint64{queries, failures})
	require.Positive(t, busy)
	require.NoError(t, loan.Release())
}

func TestAKilledConnectionAndAServerThatGoesAwayAreNotLentAgain(t *testing.T) {
	r := newRig(t, nil)
	admin := r.admin()
	killed := r.use(func(c *sql.Conn) {
		_, err := admin.ExecContext(t.Context(), "KILL "+r.ask(c, "SELECT CONNECTION_ID()"))
		require.NoError(t, err)
		_, err = c.ExecContext(t.Context(), "SELECT 1")
		require.Error(t, err)
	})
	loan, err := r.pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, killed, loan.Value().ID())
	c, err := loan.Value().Lend(t.Context())
	require.NoError(t, err)
	r.server.Kill()
	_, err = c.ExecContext(t.Context(), "SELECT 1")
	require.Error(t, err)
	require.True(t, sqlconn.Broken(loan.Value().Lost()), "%v", loan.Value().Lost())
	require.NoError(t, sqlconn.Return(t.Context(), c))
	require.NoError(t, loan.Release())
	require.NoError(t, r.server.Start(t.Context()))
	require.NotEqual(t, loan.Value().ID(), r.use(func(c *sql.Conn) { require.Equal(t, "1", r.ask(c, "SELECT 1")) }))
	require.Empty(t, r.told, "nothing was stopped that no context had ended")
}
