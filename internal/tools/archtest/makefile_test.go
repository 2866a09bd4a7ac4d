package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	runsTests  = regexp.MustCompile(`go test .*-run ('[^']+'|\S+)`)
	inFolder   = regexp.MustCompile(`\bcd (\S+)`)
	packages   = regexp.MustCompile(` (\.(?:/\S*)?)(?: |$)`)
	afterwards = regexp.MustCompile(` (2>&1|\||\$\(quiet\)|#).*`) // what is done with its output
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)`)
)

// A target that names a test by a pattern which nothing matches succeeds without having run anything.
func TestTheMakefilesPatternsMatchTests(t *testing.T) {
	root := os.DirFS("../../..")
	text, err := fs.ReadFile(root, "Makefile")
	require.NoError(t, err)
	found := 0
	for _, line := range strings.Split(string(text), "\n") {
		pattern := runsTests.FindStringSubmatch(line)
		if pattern == nil {
			continue
		}
		found++
		dir := "."
		if in := inFolder.FindStringSubmatch(line); in != nil {
			dir = in[1]
		}
		command := strings.ReplaceAll(line[strings.Index(line, "go test"):], pattern[1], "PATTERN")
		command = afterwards.ReplaceAllString(command, "")
		var tests []string
		for _, pkg := range packages.FindAllStringSubmatch(strings.ReplaceAll(command, " ", "  "), -1) {
			tests = append(tests, testsOf(t, root, path.Join(dir, pkg[1]))...)
		}
		for _, name := range strings.Split(strings.Trim(pattern[1], "'"), "|") {
			require.Contains(t, strings.Join(tests, " "), name, line)
		}
	}
	require.GreaterOrEqual(t, found, 7)
}

// testsOf are the tests of a package, or of all below it where it ends in "...".
func testsOf(t *testing.T, root fs.FS, pkg string) (names []string) {
	t.Helper()
	dir, all := strings.CutSuffix(pkg, "/...")
	require.NoError(t, fs.WalkDir(root, dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != dir && !all:
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
		return err
	}))
	return names
}
