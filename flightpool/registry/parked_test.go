package registry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool/registry"
)

// An open that has waited at the closed gate may take the probe's leave to pass
// before the probe is in its queue, and fail. The probe needs an open all the same,
// or it waits out the whole of its patience while the server is back.
func TestAnOpenThatWaitedAtTheGateDoesNotHoldTheProbeUp(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		f := g.fake("s")
		define(t, g, func(d *registry.ServerDefinition) {
			d.MinIdle, d.HealthCheck.Interval, d.HealthCheck.FailureThreshold = 2, time.Second, 1
		})
		for range 50 {
			for _, user := range []string{"a", "b"} {
				require.NoError(t, acquire(t, g, user).Release())
			}
			fell(t, g, f)
			time.Sleep(3 * time.Second)
			f.set(func() { f.down = false })
			began := time.Now()
			for !g.Healthy("s") {
				time.Sleep(10 * time.Millisecond)
			}
			require.LessOrEqual(t, time.Since(began), 2*time.Second, "two intervals")
		}
	})
}
