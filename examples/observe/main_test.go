package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheMetricsAreThoseOfThePool(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	reader, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, "127.0.0.1:0") }()
	line := make([]byte, 100)
	n, err := reader.Read(line)
	require.NoError(t, err)
	_, address, _ := strings.Cut(strings.TrimSpace(string(line[:n])), " ")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Contains(t, string(text), "\nflightpool_connections_max{pool=\"flights\"} 4\n")
	stop()
	require.NoError(t, <-ended)
}
