package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConcurrentAsksAboutEveryHourOverFewConnections(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Contains(t, out.String(), "00:00 ")
	require.Contains(t, out.String(), "23:00 ")
	require.Regexp(t, `connections opened: [1-4]\n`, out.String())
}
