package flightpool

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/flightconn"
	"github.com/flightpool/flightpool/internal/option/optiontest"
)

func TestTheReadmeNamesEveryFieldAndOption(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	readme := string(text)
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		require.Contains(t, readme, "`"+name+"`", "the table of the README lacks it")
	}
	require.LessOrEqual(t, strings.Count(readme, "\n"), 150)
	doc, err := os.ReadFile("options.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(doc), "func ParseTarget")
	for _, row := range fields {
		if name, key := row.Names(); key != "" {
			optiontest.Named(t, comment, key, name)
		}
	}
}

func TestEveryFieldOfAConfigIsInTheTable(t *testing.T) {
	optiontest.Covers(t, fields,
		"HealthCheck.IdleBeforeCheck", "Cancel.Actions", "Leases", "Limiter", "Headers", "Locations", "Dialer", "DialOptions", "Traffic", "Allocator", "Layer", "OnConnect", "Tracer", "Hooks", "Logger")
}

// The comments of Config, and the README's table, say each default as the code has it.
func TestTheDefaultsThatAreSaidHold(t *testing.T) {
	c, err := Config{}.resolve()
	require.NoError(t, err)
	said := optiontest.Said(t, "config.go", "Config")
	reservoirs := optiontest.Said(t, "../reservoir/config.go", "Config") // which holds its own against the code
	for _, name := range []string{"MaxConcurrentOpens", "AcquireTimeout", "CloseTimeout", "IdleTTL", "MaxLifetime", "LifetimeJitter", "GuardWindow"} {
		require.Equal(t, reservoirs[name], said[name], name)
		delete(said, name)
	}
	require.Equal(t, reservoirs["OpenTimeout"], said["DialTimeout"])
	require.Equal(t, "64 MiB", said["MaxMessage"])
	require.Equal(t, 64<<20, flightconn.DefaultMaxMessage)
	for _, name := range []string{"MaxMessage", "OpenRetry"} { // the second's pauses are no default
		delete(said, name)
	}
	optiontest.Hold(t, said, c, "MaxSize", "AcquireTimeout", "CloseTimeout")

	health := optiontest.Said(t, "config.go", "HealthCheck")
	require.Equal(t, []string{reservoirs["CheckInterval"], reservoirs["IdleBeforeCheck"]}, []string{health["Interval"], health["IdleBeforeCheck"]})
	delete(health, "Interval")
	delete(health, "IdleBeforeCheck")
	optiontest.Hold(t, health, c.HealthCheck)
	optiontest.Hold(t, optiontest.Said(t, "../session/policy.go", "CancelPolicy"), c.Cancel)
}

// The README says the same defaults as the comments.
func TestTheReadmesDefaultsAreThoseOfTheComments(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n| field | default |")
	said := optiontest.Said(t, "config.go", "Config")
	checked := 0
	for _, row := range strings.Split(strings.SplitN(table, "\n\n", 2)[0], "\n")[2:] {
		cells := strings.Split(row, " | ")
		names, defaults := strings.Split(strings.Trim(cells[0], "| "), ", "), topLevel(cells[1])
		if len(names) != len(defaults) {
			continue // one for all of them, or a sentence
		}
		for i, name := range names {
			if name = strings.Trim(name, "`"); defaults[i][0] >= '0' && defaults[i][0] <= '9' {
				require.Equal(t, said[name], defaults[i], name)
				checked++
			}
		}
	}
	require.GreaterOrEqual(t, checked, 10)

	numbers := func(field string) []string {
		_, row, _ := strings.Cut(table, "| `"+field+"` | ")
		return regexp.MustCompile(`\d+(?:ms|s)?\b`).FindAllString(strings.SplitN(row, " | ", 2)[0], -1)
	}
	health, cancel := optiontest.Said(t, "config.go", "HealthCheck"), optiontest.Said(t, "../session/policy.go", "CancelPolicy")
	require.Equal(t, []string{health["Interval"], health["FailureThreshold"], health["UnhealthyAfter"], health["RecoveryThreshold"]}, numbers("HealthCheck"))
	require.Equal(t, []string{strings.ReplaceAll(cancel["Grace"], " ", ""), strings.ReplaceAll(cancel["Budget"], " ", "")}, numbers("Cancel"))
}

// topLevel splits at the commas that are not in parentheses.
func topLevel(text string) (parts []string) {
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			parts, from = append(parts, strings.TrimSpace(text[from:i])), i+1
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}

// The reservoir finds some faults, by names of its own.
func TestFaultsNameTheFieldsOfConfig(t *testing.T) {
	optiontest.FaultsNameFields(t, Config{}, func(c Config) error {
		_, err := c.resolve()
		return err
	})
}
