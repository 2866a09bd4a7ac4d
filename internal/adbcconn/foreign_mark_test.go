package adbcconn

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// Derby takes no SELECT without a FROM, and is probed by VALUES 1. Others may take no text alone at all.
func TestStatementsAreKeptOnServersThatTakeNoSelectOfATextAlone(t *testing.T) {
	for probe, want := range map[string]string{"SELECT 1": "SELECT 'x'", "VALUES 1": "VALUES 'x'", "SELECT 1 FROM dual": "SELECT 'x'", "SELECT a FROM t WHERE a = 1": "SELECT 'x'", "": "SELECT 'x'"} {
		require.Equal(t, want, markSQL(probe, "x"))
	}
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, testserver.Strict())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
		require.NoError(t, err)
		s.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "SELECT '", Do: testserver.Fail(codes.InvalidArgument, "syntax error")})
		for range 2 {
			_, err = c.Prepare(t.Context(), "INSERT INTO t VALUES (?)", backend.Call{})
			require.NoError(t, err)
		}
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		_, err = c.Prepare(t.Context(), "INSERT INTO t VALUES (?)", backend.Call{Tx: tx})
		require.NoError(t, err)
		require.NoError(t, c.EndTx(t.Context(), tx, true))
	})
}

// A server that has taken a proof before takes others: one that it refuses, in a session that may be another, shows nothing of that.
func TestNothingIsKeptBehindAProofThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, swanLake())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		for _, table := range []string{"t", "u"} {
			_, err = c.Update(t.Context(), "CREATE TABLE "+table+" (v BIGINT)", backend.Call{})
			require.NoError(t, err)
		}
		row := int64s(1)
		defer row.Release()
		kept, err := c.Prepare(t.Context(), "INSERT INTO t VALUES (?)", backend.Call{})
		require.NoError(t, err)
		s.Faults().KillConns()
		synctest.Wait()
		s.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "SELECT 1", Do: testserver.Fail(codes.Internal, "out of memory")})
		for range 3 {
			_, err = c.Prepare(t.Context(), "INSERT INTO u VALUES (?)", backend.Call{})
			require.ErrorContains(t, err, "out of memory")
		}
		_, err = kept.Update(t.Context(), row, backend.Call{MayChange: true})
		require.Error(t, err)
		require.Empty(t, s.Ledger().Executions("INSERT INTO u VALUES (?)"), "in place of another")
	})
}

// A server that has taken a mark takes others: what it refuses once is no statement that nothing answers for.
func TestNothingIsKeptWithoutAMarkWhereThereWasOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, swanLake())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		kept, err := c.Prepare(t.Context(), "SELECT 2", backend.Call{})
		require.NoError(t, err)
		require.NoError(t, kept.Close(t.Context()))
		s.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "SELECT '", Times: 1, Do: testserver.Fail(codes.Internal, "out of memory")})
		_, err = c.Prepare(t.Context(), "SELECT 2", backend.Call{})
		require.ErrorContains(t, err, "out of memory")
		require.NoError(t, c.Lost())
		kept, err = c.Prepare(t.Context(), "SELECT 2", backend.Call{})
		require.NoError(t, err)
		require.NoError(t, kept.Close(t.Context()))
		require.Zero(t, s.Ledger().Snapshot().Prepared)
	})
}

// One refusal may be a failure of the server's own. Without the mark a statement of the session that replaced ours, which has the
// same number, would run in place of the one that is kept.
func TestAMarkThatIsRefusedOnceIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startServer(t, swanLake())
		c, err := s.foreign(t)(t.Context())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		s.Faults().Set(testserver.Fault{On: testserver.OnPrepare, SQL: "SELECT '", Times: 1, Do: testserver.Fail(codes.FailedPrecondition, "not now")})
		kept, err := c.Prepare(t.Context(), "SELECT 2", backend.Call{})
		require.NoError(t, err)
		require.Equal(t, 2, s.Ledger().Snapshot().Prepared, "with the mark")
		require.NoError(t, kept.Close(t.Context()))
	})
}

// A proxy may say in the server's place that there are no prepared statements.
func TestATransactionIsWatchedWhereOneWasBefore(t *testing.T) {
	for _, on := range []testserver.Point{testserver.OnPrepare, "ClosePreparedStatement"} {
		synctest.Test(t, func(t *testing.T) {
			s := startServer(t, swanLake())
			c, err := s.foreign(t)(t.Context())
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			_, err = c.Update(t.Context(), "CREATE TABLE t (v BIGINT)", backend.Call{})
			require.NoError(t, err)
			tx, err := c.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.EndTx(t.Context(), tx, true))
			deny := func() {
				s.Faults().Set(testserver.Fault{On: on, Times: 1, Do: testserver.Fail(codes.Unimplemented, "404")})
			}
			if on == testserver.OnPrepare {
				deny()
				_, err = c.Begin(t.Context())
				require.ErrorContains(t, err, "404")
				return
			}
			tx, err = c.Begin(t.Context())
			require.NoError(t, err)
			deny()
			_, err = c.Update(t.Context(), "INSERT INTO t VALUES (1)", backend.Call{Tx: tx, MayChange: true})
			require.ErrorContains(t, err, "404")
			require.NoError(t, c.EndTx(t.Context(), tx, false))
			require.Empty(t, s.Ledger().Executions("INSERT INTO t VALUES (1)"))
		})
	}
}
