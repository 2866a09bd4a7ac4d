package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestTheListsOfFilesAreWhole(t *testing.T) {
	faults, err := CheckFileLists(os.DirFS("../../.."))
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

func TestAListOfFilesThatIsNotWholeIsFound(t *testing.T) {
	faults, err := CheckFileLists(fstest.MapFS{
		"a/doc.go":    {Data: []byte("// Package a.\n//\n// # Files\n//\n//\tb.go, gone.go   things\npackage a\n")},
		"a/b.go":      {},
		"a/c.go":      {},
		"a/c_test.go": {},
		"d/doc.go":    {Data: []byte("// Package d has no list.\npackage d\n")},
		"d/e.go":      {},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a/doc.go: there is no gone.go", "a/doc.go: c.go is missing"}, faults)
}
