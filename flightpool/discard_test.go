package flightpool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/reservoir"
	"github.com/flightpool/flightpool/testserver"
)

// Who discards a session means it, with or without a reason.
func TestADiscardedSessionsConnectionIsClosed(t *testing.T) {
	mine := errors.New("my own")
	for _, reason := range []error{nil, mine} {
		told := make(chan error, 1)
		cfg := Config{MaxSize: 1, Hooks: Hooks{Connections: reservoir.Hooks{Closing: func(r reservoir.Reason, cause error) {
			if r == reservoir.Discarded {
				told <- cause
			}
		}}}}
		inBubble(t, testserver.Strict(), cfg, func(r *rig) {
			require.NoError(r, r.session().Discard(reason))
			require.NoError(r, r.pool.Ping(r.Context()))
			require.EqualValues(r, 1, r.pool.Stats().Closed[reservoir.Discarded])
			cause := <-told
			require.Error(r, cause)
			if reason != nil {
				require.ErrorIs(r, cause, reason)
				require.EqualError(r, cause, "my own")
			}
		})
	}
}
