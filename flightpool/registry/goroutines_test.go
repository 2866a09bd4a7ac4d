package registry_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestManyServersHaveOneGoroutineBetweenThem(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig) {
		crowd(t, g, 50, 4, false)
		synctest.Wait()
		all := make([]byte, 1<<20)
		var of []string
		for _, stack := range strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if strings.Contains(stack, "/flightpool/registry.(") || strings.Contains(stack, "/reservoir.(") {
				of = append(of, stack)
			}
		}
		require.Len(t, of, 1, "it sweeps and probes")
		require.Contains(t, of[0], ".maintain(")
	})
}
