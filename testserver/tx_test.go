package testserver_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

func begin(t *testing.T, c *client) *flightsql.Txn {
	t.Helper()
	tx, err := c.BeginTransaction(t.Context())
	require.NoError(t, err)
	return tx
}

// txBubble is bubble with a connection and a table t with a primary key a.
func txBubble(t *testing.T, p testserver.Profile, test func(t *testing.T, srv *testserver.Server, c *client)) {
	t.Helper()
	bubble(t, p, func(t *testing.T, srv *testserver.Server) {
		c := dial(t, srv)
		c.mustUpdate("CREATE TABLE t (a BIGINT PRIMARY KEY)")
		test(t, srv, c)
	})
}

func TestTransactionsCommitAndRollBack(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		other := dial(t, srv)
		tx := begin(t, c)
		n, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		require.Equal(t, 1, srv.Ledger().Snapshot().Transactions)
		require.Equal(t, [][]string{{"0"}}, other.mustQuery("SELECT count(*) FROM t"))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
		require.Equal(t, [][]string{{"1"}}, other.mustQuery("SELECT count(*) FROM t"))

		tx = begin(t, c)
		_, err = c.updateIn(tx, "DELETE FROM t")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestStrictRefusesStatementsThatNameTheWrongTransaction(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, _ *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.update("INSERT INTO t VALUES (1)")
		requireCode(t, codes.FailedPrecondition, err)
		_, err = c.query(t.Context(), "SELECT 1")
		requireCode(t, codes.FailedPrecondition, err)
		_, err = c.BeginTransaction(t.Context())
		requireCode(t, codes.FailedPrecondition, err)
		require.NoError(t, tx.Commit(t.Context()))

		_, err = c.updateIn(tx, "INSERT INTO t VALUES (1)") // it has ended
		require.Error(t, err)
		requireCode(t, codes.InvalidArgument, updateAs(t, c, "no such", "INSERT INTO t VALUES (1)"))
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestTheEndOfAnUnknownTransactionIsRefusedAndEndsNoOther(t *testing.T) {
	for _, p := range []testserver.Profile{{}, {IgnoreTxID: true}} {
		txBubble(t, p, func(t *testing.T, srv *testserver.Server, c *client) {
			tx := begin(t, c)
			requireCode(t, codes.InvalidArgument, endTx(t, c, "no such", true))
			requireCode(t, codes.InvalidArgument, endTx(t, c, "no such", false))
			require.Equal(t, 1, srv.Ledger().Snapshot().Transactions)
			require.NoError(t, tx.Commit(t.Context()))
		})
	}
}

func TestAFailedStatementAbortsTheTransactionAndItsCommitFails(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1), (1)")
		requireCode(t, codes.InvalidArgument, err)
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)")
		requireCode(t, codes.InvalidArgument, err)
		require.Error(t, tx.Commit(t.Context()))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
		require.Equal(t, [][]string{{"0"}}, c.mustQuery("SELECT count(*) FROM t"))
	})
}

func TestAMistypedStatementLeavesTheTransactionUsable(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, _ *testserver.Server, c *client) {
		tx := begin(t, c)
		for _, sql := range []string{"INSRT INTO t", "INSERT INTO nowhere VALUES (1)", "INSERT INTO t VALUES (1, 2)"} {
			_, err := c.updateIn(tx, sql)
			requireCode(t, codes.InvalidArgument, err)
		}
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	})
}

func TestSavepointsGoBackAndMendAnAbortedTransaction(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		sp, err := tx.BeginSavepoint(t.Context(), "s")
		require.NoError(t, err)
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.Error(t, err)
		require.NoError(t, tx.RollbackSavepoint(t.Context(), sp))
		_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)")
		require.NoError(t, err)
		require.NoError(t, tx.ReleaseSavepoint(t.Context(), sp))
		requireCode(t, codes.InvalidArgument, tx.ReleaseSavepoint(t.Context(), sp))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, [][]string{{"2"}}, c.mustQuery("SELECT count(*) FROM t"))
		require.Equal(t, 0, srv.Ledger().Snapshot().Transactions)
	})
}

func TestATransactionBegunInSQLIsInTheLedgerUntilItEnds(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		c.mustUpdate("BEGIN")
		require.Equal(t, 1, srv.Ledger().Snapshot().Transactions)
		require.False(t, srv.Ledger().Snapshot().Idle())
		c.mustUpdate("INSERT INTO t VALUES (1)")
		c.mustUpdate("ROLLBACK")
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
	})
}

func TestATransactionDiesWithItsSession(t *testing.T) {
	txBubble(t, testserver.Strict(), func(t *testing.T, srv *testserver.Server, c *client) {
		tx := begin(t, c)
		_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, srv.Ledger().WaitIdle(t.Context()))
		require.Equal(t, [][]string{{"0"}}, dial(t, srv).mustQuery("SELECT count(*) FROM t"))
	})
}

func TestAFailureNeedNotAbortItsTransaction(t *testing.T) {
	for _, aborts := range []bool{true, false} {
		p := testserver.Strict()
		p.FailuresDoNotAbort = !aborts
		txBubble(t, p, func(t *testing.T, _ *testserver.Server, c *client) {
			tx := begin(t, c)
			_, err := c.updateIn(tx, "INSERT INTO t VALUES (1)")
			require.NoError(t, err)
			_, err = c.updateIn(tx, "SAVEPOINT s")
			require.NoError(t, err)
			_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			_, err = c.updateIn(tx, "INSERT INTO t VALUES (2)")
			require.ErrorContains(t, err, "2")
			_, err = c.updateIn(tx, "INSERT INTO t VALUES (3)")
			require.Equal(t, aborts, err != nil, err)
			_, err = c.updateIn(tx, "ROLLBACK TO s")
			require.NoError(t, err, "the savepoint of the client is still there")
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, [][]string{{"1"}}, c.mustQuery("SELECT * FROM t"))
		})
	}
}
