package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestEachEntryPointHasAnExample(t *testing.T) {
	faults, err := CheckExamples(os.DirFS("../../.."))
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

func TestAnExampleWithoutOutputIsNone(t *testing.T) {
	src := "package cancel\n\nfunc ExampleChain_Run() {\n\t// %s\n}\n"
	for comment, missing := range map[string]bool{"Output: x": false, "nothing": true} {
		faults, err := CheckExamples(fstest.MapFS{"cancel/example_test.go": {Data: []byte(strings.Replace(src, "%s", comment, 1))}})
		require.NoError(t, err)
		require.Equal(t, missing, strings.Contains(strings.Join(faults, "\n"), "cancel: ExampleChain_Run is missing"))
	}
}

func TestAPublicPackageThatNobodyListedIsFound(t *testing.T) {
	faults, err := CheckExamples(fstest.MapFS{
		"novel/a.go": {Data: []byte("package novel")}, "internal/own/a.go": {Data: []byte("package own")}, "cmd/x/a.go": {Data: []byte("package main")},
		"backend/a.go": {Data: []byte("package backend")},
	})
	require.NoError(t, err)
	text := strings.Join(faults, "\n")
	require.Contains(t, text, "novel: name its entry points")
	require.NotContains(t, text, "own: name")
	require.NotContains(t, text, "cmd/x")
	require.NotContains(t, text, "backend:")
	require.Contains(t, text, "reservoir/sqlconn: is no public package")
}
