package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/testserver"
)

// TestARollbackOvertakesNoStatement: RPCs of one connection are served in any order. A
// server that does not look at transaction ids would store by itself what comes to its
// turn after the rollback.
func TestARollbackOvertakesNoStatement(t *testing.T) {
	inBubble(t, testserver.SwanLake(), Config{MaxSize: 1}, func(r *rig) {
		r.exec("CREATE TABLE swanlake.t (a BIGINT)")
		s := r.session()
		require.NoError(r, s.BeginTransaction(r.Context()))
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoPut, SQL: "INSERT", Times: 1, Do: func(context.Context, *testserver.FaultTarget) error {
			time.Sleep(100 * ms) // whatever becomes of the RPC
			return nil
		}})
		cut, stop := context.WithTimeout(r.Context(), 2*ms)
		defer stop()
		_, err := s.Update(cut, "INSERT INTO swanlake.t VALUES (1)")
		require.ErrorIs(r, err, context.DeadlineExceeded)
		_ = s.Close()
		time.Sleep(time.Minute)
		require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM swanlake.t"), "its transaction was not committed")
	})
}
