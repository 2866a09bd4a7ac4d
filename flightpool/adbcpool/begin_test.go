package adbcpool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// ADBC's driver tells it as an I/O error: it cost the connection, and counted against the health of the server.
func TestABeginThatTheServerRefusesIsNoLossOfTheConnection(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize, cfg.MinIdle = 1, -1 })
				r.update(p, "CREATE TABLE t (v BIGINT)")
				r.server.Faults().Set(testserver.Fault{On: testserver.OnBegin, Do: testserver.Fail(codes.FailedPrecondition, "too many are open")})
				for range 4 {
					_, err := p.BeginTx(r.Context(), flightpool.TxOptions{})
					var e *flightpool.Error
					require.ErrorAs(r, err, &e)
					require.Equal(r, flightpool.FaultStatement, e.Fault, "%v", err)
					require.Equal(r, codes.FailedPrecondition, status.Code(e.Err))
					require.NotErrorIs(r, err, flightpool.ErrSessionLost)
				}
				require.Equal(r, uint64(1), p.Stats().Opens)
			})
		})
	}
}
