package flightpool

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
