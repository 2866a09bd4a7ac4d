package adbcpool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/cancel"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// A driver whose call has returned says nothing of its server, which may run the
// statement on, and others of the session beside it.
func TestACancelIsConfirmedOnlyWhereTheStatementHasEnded(t *testing.T) {
	deaf := testserver.Strict()
	deaf.SideBySide, deaf.IgnoreRPCCancel = true, true
	deaf.Refuse = map[string]codes.Code{"CancelFlightInfo": codes.Unimplemented, "CancelQuery": codes.Unimplemented}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, deaf, func(r rig) {
				var reports []cancel.Report
				running := -1
				pool := r.pool(kind, func(cfg *flightpool.Config) {
					cfg.Hooks.Cancelled = func(_ string, report cancel.Report) {
						reports = append(reports, report)
						running = r.server.Ledger().Snapshot().Running
					}
				})
				for i := range 5 {
					ctx, stop := context.WithTimeout(r.Context(), time.Second)
					_, err := pool.Query(ctx, fmt.Sprintf("SELECT sleep('1h'), %d", i))
					require.ErrorIs(r, err, context.DeadlineExceeded)
					stop()
					time.Sleep(time.Minute)
					synctest.Wait() // the hook has returned
					require.Len(r, reports, i+1)
					require.Positive(r, running)
					require.False(r, reports[i].Safe(), "%v", reports[i])
				}
			})
		})
	}
}
