package session_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/backend"
)

func TestJoinedErrorsAreSafeToRetryOnlyIfEachIs(t *testing.T) {
	safe := &backend.Error{Fault: backend.FaultTransport, Unsent: true, Err: errors.New("refused")}
	sent := &backend.Error{Fault: backend.FaultTransport, Err: errors.New("reply lost")}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                     {nil, false},
		"foreign":                 {errors.New("x"), false},
		"one":                     {safe, true},
		"wrapped":                 {fmt.Errorf("a: %w", fmt.Errorf("b: %w", safe)), true},
		"both safe":               {errors.Join(safe, safe), true},
		"the first attempt sent":  {errors.Join(safe, sent), false},
		"the second attempt sent": {errors.Join(sent, safe), false},
		"two verbs":               {fmt.Errorf("%w (before: %w)", safe, sent), false},
		"deep":                    {errors.Join(safe, fmt.Errorf("x: %w", errors.Join(errors.New("foreign"), sent))), false},
		"beside a foreign one":    {errors.Join(errors.New("foreign"), safe), true},
		"inside an error of ours": {&backend.Error{Unsent: true, Err: sent}, true},
	} {
		require.Equal(t, tc.want, backend.SafeToRetry(tc.err), name)
	}
}
