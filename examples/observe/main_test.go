package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetricsAndPageAreThoseOfThePool(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	reader, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, "127.0.0.1:0") }()
	var addresses []string
	for lines := bufio.NewScanner(reader); len(addresses) < 2 && lines.Scan(); {
		addresses = append(addresses, strings.Fields(lines.Text())[1])
	}
	require.Contains(t, get(t, addresses[0]), "\nflightpool_connections_max{pool=\"flights\"} 4\n")
	require.Contains(t, get(t, addresses[1]), "<title>Pools</title>")
	state := get(t, addresses[1]+"state.json")
	require.Contains(t, state, `"name":"flights"`)
	require.Contains(t, state, `"traced":true`)
	stop()
	require.NoError(t, <-ended)
}

func get(t *testing.T, address string) string {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(text)
}
