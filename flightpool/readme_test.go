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
	doc, err := os.ReadFile("target.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(doc), "func ParseTarget")
	for name := range options {
		require.Contains(t, comment, name, "the comment of ParseTarget lacks it")
	}
}
