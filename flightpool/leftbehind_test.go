package flightpool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// A server that ties the session to a token keeps it when its connection breaks: with the statement that it runs, and with its
// transaction, in which GizmoSQL holds what it has changed against all others.
func TestAConnectionThatBreaksLeavesNoSession(t *testing.T) {
	inBubble(t, testserver.GizmoSQL(), Config{MaxSize: 1, Auth: BasicAuth("me", "x")}, func(r *rig) {
		r.exec("CREATE TABLE t (x BIGINT)")
		r.exec("INSERT INTO t VALUES (1)")
		err := r.pool.InTx(r.Context(), TxOptions{Attempts: 1}, func(ctx context.Context, tx *Tx) error {
			if _, err := tx.Update(ctx, "UPDATE t SET x = 2"); err != nil {
				return err
			}
			time.AfterFunc(time.Second, func() { r.srv.Faults().KillConns() })
			return readAll(tx.Query(ctx, "SELECT sleep('1h')"))
		})
		require.Error(r, err)
		time.Sleep(time.Second)
		synctest.Wait()
		now := r.srv.Ledger().Snapshot()
		require.Zero(r, now.Running, "%v", now)
		require.Zero(r, now.Transactions, "%v", now)
		require.LessOrEqual(r, now.Sessions, 1, "%v", now)
		require.LessOrEqual(r, now.Conns, 1, "what has asked for that is closed: %v", now)
		require.Equal(r, 1, now.Cancels, "GizmoSQL ends a session without the statement that it runs")
		r.exec("UPDATE t SET x = 3")
		require.Equal(r, "1", r.value(r.pool, "SELECT count(*) FROM t WHERE x = 3"))
	})
}
