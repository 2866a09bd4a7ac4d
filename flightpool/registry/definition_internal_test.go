package registry

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/internal/option/optiontest"
)

func TestEveryDefaultIsAsTheDocumentationSays(t *testing.T) {
	d, err := ServerDefinition{Name: "s", Kind: "k"}.resolve()
	require.NoError(t, err)
	require.Equal(t, ServerDefinition{
		Name: "s", Kind: "k", Users: map[string]UserMapping{},
		MinIdle: 1, MaxSize: 10, UserMaxSize: 10, MaxConcurrentOpens: 8, WarmupConnections: 1,
		OpenTimeout: 5 * time.Second, QueryTimeout: 30 * time.Second, AcquireTimeout: 5 * time.Second,
		IdleTTL: 5 * time.Minute, MaxLifetime: time.Hour, ValidateAfter: 30 * time.Second, UserIdleTimeout: 5 * time.Minute,
		HealthCheck: HealthCheck{Kind: flightpool.Ping, Timeout: 5 * time.Second, Interval: 30 * time.Second, FailureThreshold: 3, RecoveryThreshold: 2},
		OnExhausted: flightpool.Wait,
	}, d)
	_, err = ServerDefinition{Name: "s", Kind: "k", MaxSize: 3, MinIdle: 4}.resolve()
	require.ErrorContains(t, err, "MinIdle")
}

func TestEveryFieldOfADefinitionIsInTheTable(t *testing.T) {
	optiontest.Covers(t, options, "Name", "Kind", "Options", "Users")
	doc, err := os.ReadFile("../../docs/registry.md")
	require.NoError(t, err)
	optiontest.Named(t, string(doc), options.Keys()...)
	require.Equal(t, map[string]string{"validation_interval": "validation_interval_seconds", "validation_interval_seconds": "validation_interval"}, optionSynonyms)
}
