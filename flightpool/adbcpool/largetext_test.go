package adbcpool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/testserver"
)

// A text that servers would refuse for its size is a fault of the caller's, and costs no connection.
func TestATextThatIsTooLargeIsNotSent(t *testing.T) {
	large := "SELECT 1 /* " + strings.Repeat("x", 5<<20) + " */"
	for _, kind := range []string{"native", "open"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, testserver.Strict(), func(r rig) {
				p := r.pool(kind, func(cfg *flightpool.Config) { cfg.MaxSize = 1 })
				_, err := p.Query(r.Context(), large)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err))
				_, err = p.Query(r.Context(), large, 1)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err))
				_, err = p.Update(r.Context(), large)
				require.Equal(r, backend.FaultUsage, backend.FaultIn(err))
				require.EqualValues(r, 1, p.Stats().Opens)
			})
		})
	}
}
