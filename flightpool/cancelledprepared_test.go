package flightpool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/flightpool/flightpool/testserver"
)

// DazzleDuck closes a prepared statement whose execution it cancels.
func TestAPreparedReadGoesOnBehindACancelThatClosesIt(t *testing.T) {
	profile := testserver.Strict()
	profile.CancelCloses = true
	profile.Refuse = map[string]codes.Code{"BeginTransaction": codes.Unimplemented, "EndTransaction": codes.Unimplemented}
	inBubble(t, profile, Config{MaxSize: 1}, func(r *rig) {
		s := r.session()
		defer func() { require.NoError(r, s.Close()) }()
		q, err := s.PrepareQuery(r.Context(), "SELECT sleep('1m')")
		require.NoError(r, err)
		for range 2 {
			ctx, stop := context.WithTimeout(r.Context(), 2*time.Second)
			require.ErrorIs(r, drained(q.Query(ctx)), context.DeadlineExceeded)
			stop()
			require.NoError(r, drained(q.Query(r.Context())))
		}
		require.NoError(r, q.Close(r.Context()))
		require.Equal(r, 1, r.openOnServer(), "that by which the handle knows its session")
	})
}
