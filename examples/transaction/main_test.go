package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTransactionKeepsAllOrNothing(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Regexp(t, `^JAC: committed, 0 flights left\nORD: rolled back, [1-9]\d+ flights left\n$`, out.String())
}
