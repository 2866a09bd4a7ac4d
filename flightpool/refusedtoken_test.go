package flightpool

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// restartedGizmoSQL refuses a token that it has not signed itself by the status of a wrong statement.
func restartedGizmoSQL() testserver.Profile {
	p := testserver.GizmoSQL()
	p.TokenCode, p.TokenText = codes.InvalidArgument, "Token verification failed with error: failed to verify signature: VerifyFinal failed"
	return p
}

// What is refused for its token has not been looked at, so that it is made again.
func TestNoCallFailsSinceAServerHasForgottenItsTokens(t *testing.T) {
	for _, profile := range []testserver.Profile{restartedGizmoSQL(), testserver.GizmoSQL()} {
		inBubble(t, profile, Config{MaxSize: 4, MinIdle: 4, Auth: BasicAuth("me", "x")}, func(r *rig) {
			require.NoError(r, r.pool.WaitReady(r.Context(), 4))
			r.exec("CREATE TABLE t (x INT)")
			r.srv.Faults().ExpireTokens()
			for range 8 {
				r.exec("INSERT INTO t VALUES (1)")
			}
			require.Equal(r, "8", r.value(r.pool, "SELECT count(*) FROM t"))
		})
	}
}

// Nor has a server seen a COMMIT whose token it refuses.
func TestNothingIsStoredByACommitWhoseTokenIsRefused(t *testing.T) {
	for _, profile := range []testserver.Profile{restartedGizmoSQL(), testserver.GizmoSQL()} {
		inBubble(t, profile, Config{MaxSize: 2, Auth: BasicAuth("me", "x")}, func(r *rig) {
			r.exec("CREATE TABLE t (x INT)")
			tx := r.begin()
			_, err := tx.Update(r.Context(), "INSERT INTO t VALUES (1)")
			require.NoError(r, err)
			r.srv.Faults().ExpireTokens()
			err = tx.Commit(r.Context())
			require.Error(r, err)
			require.NotErrorIs(r, err, ErrCommitUnknown)
			r.srv.Faults().EvictSessions()
			require.Equal(r, "0", r.value(r.pool, "SELECT count(*) FROM t"))
		})
	}
}

// The source of a token is told of a refusal, by whatever status that comes.
func TestTheSourceOfATokenIsAskedAgainWhereItsTokenIsForgotten(t *testing.T) {
	for _, profile := range []testserver.Profile{restartedGizmoSQL(), testserver.GizmoSQL()} {
		for _, byOpen := range []bool{false, true} { // the first to be refused
			var asked atomic.Int32
			source := TokenAuth(func(context.Context) (string, time.Time, error) {
				return []string{"", "first", "second"}[asked.Add(1)], time.Time{}, nil
			})
			inBubbleOn(t, testserver.Options{Profile: profile, Tokens: []string{"first", "second"}}, Config{MaxSize: 1, MinIdle: -1, Auth: source}, func(r *rig) {
				require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
				r.srv.Faults().ExpireToken("first")
				if byOpen {
					r.srv.Faults().KillConns()
				}
				require.Equal(r, "2", r.value(r.pool, "SELECT 2"))
				require.EqualValues(r, 2, asked.Load())
			})
		}
	}
}

// A token that the server refuses, also one of another's in place of a password, says nothing of the server, which others reach.
func TestATokenThatIsRefusedIsNoFaultOfTheServer(t *testing.T) {
	restarted := restartedGizmoSQL()
	for _, profile := range []testserver.Profile{restarted, testserver.GizmoSQL()} {
		for name, auth := range map[string]Auth{"a token": BearerAuth("unknown"), "a login by one": BasicAuth("token", "expired")} {
			withServer(t, testserver.Options{Profile: profile}, func(t *testing.T, srv *testserver.Server) {
				srv.Faults().Set(testserver.Fault{On: testserver.OnHandshake, Do: testserver.Fail(codes.InvalidArgument, "Bootstrap "+restarted.TokenText)})
				p, err := New(t.Context(), "grpc://server:1", Config{Dialer: srv.Dial, MinIdle: -1, Auth: auth, HealthCheck: HealthCheck{UnhealthyAfter: -1, FailureThreshold: 1}})
				require.NoError(t, err)
				for range 3 {
					var e *Error
					require.ErrorAs(t, p.Ping(t.Context()), &e)
					require.Equal(t, FaultAuth, e.Fault, "%s %v", name, e)
					require.Equal(t, backend.StageAuth, e.Stage, "%s %v", name, e)
					require.NotErrorIs(t, e, ErrUnhealthy)
				}
				require.NoError(t, p.Close(t.Context()))
			})
		}
	}
}
