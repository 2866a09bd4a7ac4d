package registry

import (
	"errors"
	"os"
	"regexp"
	"strings"
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
	code, err := os.ReadFile("options.go")
	require.NoError(t, err)
	_, comment, _ := strings.Cut(string(code), "\n// SetOptions")
	comment, _, _ = strings.Cut(comment, "\nfunc")
	for _, row := range options {
		name, key := row.Names()
		optiontest.Named(t, comment, name, key)
	}
	require.Equal(t, map[string]string{"validation_interval": "validation_interval_seconds", "validation_interval_seconds": "validation_interval"}, optionSynonyms)
}

// The table of options and the comments say each default as the code has it.
func TestTheDefaultsThatAreSaidHold(t *testing.T) {
	d, err := ServerDefinition{Name: "s", Kind: "k"}.resolve()
	require.NoError(t, err)
	said := optiontest.Said(t, "definition.go", "ServerDefinition")
	optiontest.Hold(t, said, d, "UserMaxSize")
	optiontest.Hold(t, optiontest.Said(t, "definition.go", "HealthCheck"), d.HealthCheck)

	doc, err := os.ReadFile("../../docs/registry.md")
	require.NoError(t, err)
	table := map[string]string{}
	for _, line := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| ([^|]*) \\| (?:in place|by new)").FindAllStringSubmatch(string(doc), -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(line[1], -1) {
			if _, ours := options.Find(name[1]); ours && !strings.HasPrefix(line[2], "the kind's") {
				table[name[1]] = line[2]
			}
		}
	}
	require.Len(t, table, len(options.Keys())-2, "target and health_check_query are the kind's")
	optiontest.Parsed(t, options, &d, table)
}

func TestFaultsNameTheFieldsOfADefinition(t *testing.T) {
	optiontest.FaultsNameFields(t, ServerDefinition{Name: "s", Kind: "k"}, func(d ServerDefinition) error {
		_, err := d.resolve()
		var faults *DefinitionError
		if errors.As(err, &faults) {
			return faults.Err
		}
		return err
	})
}
