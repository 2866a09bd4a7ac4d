package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheExampleRunsOnTheStandIn(t *testing.T) {
	t.Setenv("CLUSTER_ENDPOINT", "")
	t.Setenv("DSQL_MAX_OPEN", "4")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, "ready: 4 connections\ndatabase/sql: moved 30 in 2 run(s)\npgx: cas has 25\npgx: [{ann 50} {bob 30} {cas 25}], 3 deleted\n", out.String())
}
