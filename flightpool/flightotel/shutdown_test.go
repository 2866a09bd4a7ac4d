package flightotel_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/flightpool/flightotel"
)

// A program ends its providers before its pools, with calls under way.
func TestProvidersThatEndBesideCallsHarmNone(t *testing.T) {
	watched(t, flightpool.Config{MaxSize: 4}, func(r *rig) {
		registration, err := flightotel.Register(r.meters.Meter("shop"), r.pool)
		require.NoError(r, err)
		var calls sync.WaitGroup
		half := make(chan struct{}, 4)
		for range 4 {
			calls.Go(func() {
				for i := range 200 {
					if i == 100 {
						half <- struct{}{}
					}
					if err := drained(r.pool.Query(r.Context(), "SELECT 1")); err != nil {
						r.Error(err)
					}
				}
			})
		}
		for range 20 {
			require.NoError(r, r.provider.ForceFlush(r.Context()))
			require.NoError(r, r.meters.ForceFlush(r.Context()))
			r.collect()
		}
		<-half
		require.NoError(r, r.provider.Shutdown(r.Context()))
		require.NoError(r, r.meters.Shutdown(r.Context()))
		calls.Wait()
		require.NoError(r, registration.Unregister())
		require.NoError(r, drained(r.pool.Query(r.Context(), "SELECT 1")))
		require.EqualValues(r, 801, r.pool.Stats().Calls)
	})
}
