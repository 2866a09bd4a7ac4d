package sqldriver

import (
	"database/sql/driver"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// A statement behind a transaction that went with its session was not sent: database/sql may close
// the *sql.Conn.
func TestAStatementBehindATransactionThatWasLostIsDriverErrBadConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := openedOn(t, testserver.SwanLake())
		_, err := db.ExecContext(t.Context(), "CREATE TABLE memory.t (a BIGINT)")
		require.NoError(t, err)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO memory.t VALUES (1)")
		require.NoError(t, err)
		s.Faults().KillConns()
		synctest.Wait()
		require.ErrorIs(t, tx.Rollback(), flightpool.ErrSessionLost)
		_, err = conn.ExecContext(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, driver.ErrBadConn)
		require.True(t, flightpool.SafeToRetry(err), "%v", err)
	})
}
