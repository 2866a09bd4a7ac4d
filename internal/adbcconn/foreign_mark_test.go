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
