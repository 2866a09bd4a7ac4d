package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServersThatRunElsewhereAreUsedAndNotKilled(t *testing.T) {
	p, err := startPostgres(t.Context())
	require.NoError(t, err)
	defer p.close()
	m, err := startMaria(t.Context())
	require.NoError(t, err)
	defer m.close()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), options{rounds: 1, span: 300 * time.Millisecond, postgres: p.addr(), mariadb: m.addr()}, &out), out.String())
	require.Contains(t, out.String(), "duck is killed")
	n, err := p.connections(t.Context())
	require.NoError(t, err, "it still runs")
	require.Zero(t, n)
}

func TestTheGatewayHoldsWhatItShows(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), options{rounds: 3, span: 500 * time.Millisecond}, &out), out.String())
	t.Log(out.String())
	for _, text := range []string{"unhealthy", "is back", "3 rounds", "no connection is left"} {
		require.Contains(t, out.String(), text)
	}
}
