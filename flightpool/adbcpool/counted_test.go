package adbcpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// A server that counts its handles gives that of the proof again, to what is the first to be prepared
// in a session that has replaced another. The proof would run it.
func TestNoProofRunsWhatWasPrepared(t *testing.T) {
	for _, kind := range []string{"native", "open"} {
		inBubble(t, testserver.SwanLake(), func(r rig) {
			p := r.pool(kind, func(c *flightpool.Config) { c.MaxSize, c.HealthCheck.Interval = 1, -1 })
			r.update(p, "CREATE TABLE t (a BIGINT)")
			s, err := p.AcquireSession(r.Context())
			require.NoError(r, err)
			_, err = s.PrepareQuery(r.Context(), "SELECT 1")
			require.NoError(r, err)
			r.server.Faults().Set(testserver.Fault{On: testserver.OnDoGet, After: true, Times: 1, Do: testserver.Evict()})
			_, err = s.PrepareQuery(r.Context(), "INSERT INTO t VALUES (1)")
			require.ErrorIs(r, err, flightpool.ErrSessionLost, kind)
			_ = s.Close()
			require.Zero(r, r.executions("INSERT INTO t VALUES (1)"), kind)
			r.server.Faults().EvictSessions()
		})
	}
}
