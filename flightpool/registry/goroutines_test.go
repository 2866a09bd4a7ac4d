package registry_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestManyServersHaveOneGoroutineBetweenThem(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		synctest.Wait()
		before := runtime.NumGoroutine()
		crowd(t, g, 50, 4, false)
		synctest.Wait()
		require.Equal(t, before+1, runtime.NumGoroutine(), "it sweeps and probes")
	})
}
