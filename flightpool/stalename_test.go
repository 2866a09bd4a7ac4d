package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// TestTheNameOfAnEarlierAttemptConfirmsNothing has a server that says that it has cancelled the
// first attempt of a call, which it knows, while it executes the second, which it has not
// named yet and does not stop with its RPC.
func TestTheNameOfAnEarlierAttemptConfirmsNothing(t *testing.T) {
	const slow = "SELECT ?, sleep('1m')"
	profile := testserver.Strict()
	profile.SideBySide, profile.IgnoreRPCCancel, profile.Run = true, true, testserver.RunInInfo
	keeping(t, profile, func(r *rig, prepared func() int) {
		require.Equal(r, 1, r.rowsOf(slow, 1))
		r.srv.Faults().Set(testserver.Fault{On: testserver.OnDoGet, SQL: slow, Times: 1, Do: testserver.Fail(codes.InvalidArgument, "what handle?")})
		ctx, stop := context.WithTimeout(r.Context(), 90*time.Second)
		defer stop()
		_, err := r.pool.Query(ctx, slow, 1)
		require.ErrorIs(r, err, context.DeadlineExceeded)
		require.Equal(r, 2, prepared())
		time.Sleep(10 * time.Second)
		require.Zero(r, r.pool.Stats().CancelsConfirmed)
		require.EqualValues(r, 1, r.pool.Stats().CancelsUnconfirmed)
		require.Equal(r, "1", r.value(r.pool, "SELECT 1"))
		require.EqualValues(r, 2, r.pool.Stats().Opens, "the connection of a statement that may run is not used again")
	})
}
