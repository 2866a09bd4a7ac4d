package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCancelFreesCallerAndServer(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Regexp(t, `^the caller was free \d+ ms after its deadline\nthe server has 0 statements running\n$`, out.String())
}
