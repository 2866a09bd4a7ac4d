package flightpool

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	doc, err := os.ReadFile("dsn.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(doc), "func ParseTarget")
	for name, o := range options {
		stem, _, long := strings.Cut(strings.TrimPrefix(name, "health_check_"), "_on_")
		if long { // written as validate_on_acquire, _release
			name = stem
		}
		require.Contains(t, comment, strings.TrimPrefix(name, "health_check"), "the comment of ParseTarget lacks it")
		require.Contains(t, comment, strings.TrimPrefix(o.field, "HealthCheck."), name)
	}
}
