package flightpool

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testLink is a link whose text is the name of a test.
var testLink = regexp.MustCompile(`\[(Test[A-Za-z0-9_]+)\]\(([^)]+)\)`)

// TestTheFeatureTableNamesTestsThatExist reads docs/features.md: each feature
// is proven by tests that are where it says, or it is plainly not there.
func TestTheFeatureTableNamesTestsThatExist(t *testing.T) {
	const page = "../docs/features.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, link := range testLink.FindAllStringSubmatch(string(text), -1) {
		name, file := link[1], filepath.Join(filepath.Dir(page), link[2])
		code, err := os.ReadFile(file)
		require.NoError(t, err, "%s is said to be there", name)
		require.True(t, strings.Contains(string(code), "\nfunc "+name+"(t *testing.T)"), "%s is not in %s", name, file)
	}

	_, table, found := strings.Cut(string(text), "\n| feature |")
	require.True(t, found)
	rows := strings.Split(strings.TrimSpace(table), "\n")[2:] // after the header and its rule
	const features = 30
	require.Len(t, rows, features)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, 10, row)
		ours := cells[9]
		if reason, no := strings.CutPrefix(ours, "no: "); no {
			require.NotEmpty(t, reason, cells[0])
			continue
		}
		require.NotEmpty(t, testLink.FindString(ours), "%s: nothing proves it: %s", cells[0], ours)
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "docs/features.md")
}
