package invariant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/invariant"
)

func TestCheckPanicsExactlyWhenEnabledAndTheConditionIsFalse(t *testing.T) {
	require.NotPanics(t, func() { invariant.Check(true, "holds") })
	broken := func() { invariant.Check(false, "%d of %d", 3, 2) }
	if invariant.Enabled {
		require.PanicsWithValue(t, "invariant broken: 3 of 2", broken)
	} else {
		require.NotPanics(t, broken)
	}
}
