package errjoin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextsStandOnOneLineAndCausesAreReachable(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("line 1\nline 2")
	for want, err := range map[string]error{
		"a":                    Join(nil, a),
		"a; b":                 Join(a, nil, b),
		"a; b; a":              Join(errors.Join(a, b), a),
		"b; a":                 Join(errors.Join(b, a)),
		"a; b; b; a":           Join(errors.Join(errors.Join(a, b), b), a),
		"line 1\nline 2":       Join(c),
		"line 1\nline 2; a":    Join(c, a),
		"first: a, then: b; a": Join(fmt.Errorf("first: %w, then: %w", a, b), a),
	} {
		require.Equal(t, want, err.Error())
		if want[0] != 'l' {
			require.ErrorIs(t, err, a)
		}
	}
	require.ErrorIs(t, Join(a, errors.Join(b, c)), c)
	require.NoError(t, Join())
	require.NoError(t, Join(nil, nil))
	require.Equal(t, a, Join(a), "one error is itself")
}
