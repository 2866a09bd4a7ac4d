package flightconn

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/testserver"
)

// ClickHouse gives each block of a result an endpoint, and refuses a call of a session while it serves
// another.
func TestTheEndpointsOfASessionThatServesOneCallAreReadInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		profile := testserver.Strict()
		profile.Endpoints, profile.LockSessions = 12, true
		conn, err := startProfile(t, profile).Open(t.Context())
		require.NoError(t, err)
		stream, err := conn.Query(t.Context(), scripted.Rows(300_000), backend.Call{})
		require.NoError(t, err)
		require.Equal(t, upTo(300_000), values(t, stream))
		require.NoError(t, conn.Close())
	})
}
