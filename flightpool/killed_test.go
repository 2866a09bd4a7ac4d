package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// GizmoSQL refuses everything in a session that was killed by INVALID_ARGUMENT, as it does a
// statement that is wrong, and goes on to describe itself.
func TestASessionThatWasKilledIsLentNoMore(t *testing.T) {
	for _, kind := range []HealthKind{Ping, Query, FullValidate} {
		cfg := Config{MaxSize: 2, MinIdle: 2, HealthCheck: HealthCheck{Kind: kind}, Auth: BasicAuth("me", "x")}
		inBubble(t, testserver.GizmoSQL(), cfg, func(r *rig) {
			require.NoError(r, r.pool.WaitReady(r.Context(), 2))
			r.exec("CREATE TABLE t (x INT)")
			require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
			s, err := r.pool.AcquireSession(r.Context())
			require.NoError(r, err)
			require.NoError(r, s.BeginTransaction(r.Context()))
			r.srv.Faults().KillSessions()

			require.Equal(r, "2", r.value(r.pool, "SELECT 2"), "a read is made again on another connection")
			_, err = s.Update(r.Context(), "INSERT INTO t VALUES (1)")
			require.ErrorIs(r, err, backend.ErrSessionLost)
			require.ErrorIs(r, s.Commit(r.Context()), backend.ErrSessionLost)
			require.NoError(r, s.Close())
			failed := 0
			for range 6 {
				if _, err := r.pool.Update(r.Context(), "INSERT INTO t VALUES (2)"); err != nil {
					require.ErrorIs(r, err, backend.ErrSessionLost)
					failed++
				}
			}
			require.LessOrEqual(r, failed, 1, "each connection is found out once")
			require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t WHERE x = 1"))
		})
	}
}
