package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestEveryLinkOfTheDocumentsLeadsSomewhere(t *testing.T) {
	faults, err := CheckLinks(os.DirFS("../../.."))
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

func TestEachBrokenLinkIsFound(t *testing.T) {
	const tests = "package a\nfunc TestOne(t *testing.T) { t.Run(\"the case\", nil) }\nfunc (x) TestMethod() {}\n"
	for _, c := range []struct {
		name, line string
		want       string // "" is fine
	}{
		{"a test", "see [TestOne](../a/a_test.go) here", ""},
		{"a test as code", "[`TestOne`](../a/a_test.go)", ""},
		{"a case", "[TestOne/the case](../a/a_test.go)", ""},
		{"the file itself", "[a_test.go](../a/a_test.go)", ""},
		{"a file and a place in it", "[there](../a/a.go#L3)", ""},
		{"a folder", "[there](../a)", ""},
		{"an address", "[there](https://example.com/x_test.go)", ""},
		{"a place in the document", "[there](#tests)", ""},
		{"fenced code", "```\n[TestTwo](none_test.go)\n```", ""},
		{"after fenced code", "```\n```\n[TestTwo](../a/a_test.go)", "docs/d.md:3: ../a/a_test.go has no TestTwo"},
		{"a missing test", "[TestTwo](../a/a_test.go)", "docs/d.md:1: ../a/a_test.go has no TestTwo"},
		{"a method", "[TestMethod](../a/a_test.go)", "has no TestMethod"},
		{"the second link", "[TestOne](../a/a_test.go), [TestTwo](../a/a_test.go)", "has no TestTwo"},
		{"a missing case", "[TestOne/case](../a/a_test.go)", `no case "case"`},
		{"a name that is no test's", "[TsetOne](../a/a_test.go)", "neither a test nor the name"},
		{"a missing file", "[there](a.go)", "links to a.go, which does not exist"},
		{"a missing file with a test", "[TestOne](a_test.go)", "does not exist"},
		{"a file outside", "[there](../../a.go)", "does not exist"},
		{"a file that does not parse", "[TestOne](../a/bad_test.go)", "expected 'package'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, err := CheckLinks(fstest.MapFS{
				"docs/d.md":         {Data: []byte(c.line)},
				"a/a.go":            {},
				"a/a_test.go":       {Data: []byte(tests)},
				"a/bad_test.go":     {Data: []byte("not go")},
				".tools/d.md":       {Data: []byte("[x](none)")},
				"node_modules/d.md": {Data: []byte("[x](none)")},
			})
			require.NoError(t, err)
			requireFault(t, c.want, faults)
		})
	}
}
