package flightpool

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// Servers refuse everything in a session that was killed by a code by which they or others refuse a statement that is wrong,
// and go on to describe themselves: GizmoSQL, StarRocks, Doris. Arrow's adapter for PostgreSQL ends one with each wrong statement.
// So does GizmoSQL refuse a token of before its restart, which it has signed by another secret.
func TestASessionThatWasKilledIsLentNoMore(t *testing.T) {
	starRocks, doris, postgreSQL, restarted := testserver.GizmoSQL(), testserver.GizmoSQL(), testserver.GizmoSQL(), testserver.GizmoSQL()
	restarted.KilledCode, restarted.KilledText = codes.InvalidArgument, "Token verification failed with error: failed to verify signature: VerifyFinal failed"
	postgreSQL.KilledCode, postgreSQL.KilledText = codes.PermissionDenied, "invalid Bearer token"
	starRocks.KilledCode, starRocks.KilledText = codes.NotFound, "cannot find connect arrow context of the token [t]"
	doris.KilledCode, doris.KilledText = codes.Internal, "get flight info statement failed, IllegalArgumentException: UserSession expire after access, try reconnect"
	for _, profile := range []testserver.Profile{testserver.GizmoSQL(), starRocks, doris, postgreSQL, restarted} {
		testKilledSessions(t, profile)
	}
}

func testKilledSessions(t *testing.T, profile testserver.Profile) {
	for _, kind := range []HealthKind{Ping, Query, FullValidate} {
		cfg := Config{MaxSize: 2, MinIdle: 2, HealthCheck: HealthCheck{Kind: kind}, Auth: BasicAuth("me", "x")}
		inBubble(t, profile, cfg, func(r *rig) {
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
