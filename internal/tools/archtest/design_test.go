package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const design = "docs/DESIGN.md"

func TestTheDesignNamesWhatIsThere(t *testing.T) {
	faults, err := CheckNames(os.DirFS("../../.."), design)
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

// TestTheMapOfPackagesIsTheirImports writes it anew with WRITE_MAP=1.
func TestTheMapOfPackagesIsTheirImports(t *testing.T) {
	const begin, end = "<!-- map: WRITE_MAP=1 go test ./internal/tools/archtest -->\n", "<!-- end of map -->"
	text, err := os.ReadFile("../../../" + design)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	old, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	now, err := PackageMap(os.DirFS("../../.."), ForTests)
	require.NoError(t, err)
	if os.Getenv("WRITE_MAP") != "" {
		require.NoError(t, os.WriteFile("../../../"+design, []byte(before+begin+now+end+after), 0o644))
		return
	}
	require.Equal(t, now, old, "write it anew with WRITE_MAP=1")
}

func TestEachNameThatIsNotThereIsFound(t *testing.T) {
	const src = "package a\ntype T[C any] struct{ mu struct{ idle int } }\nfunc (t *T[C]) Close() {}\nfunc F() {}\nconst c = 1\ntype I interface{ M() }\n"
	for _, c := range []struct {
		name, line string
		want       string // "" is fine
	}{
		{"all kinds", "`a/a.go` `T`, `T.Close`, `T.mu.idle`, then `F()`, `c` and `I.M`", ""},
		{"two files", "`a/a.go` `F` and `b/b.go` `G`", ""},
		{"no file", "`Nothing` here", ""},
		{"what is no name", "`a/a.go` `make test`, `x=1`", ""},
		{"a missing file", "`a/none.go` `F`", "d.md:1: a/none.go does not exist"},
		{"a missing function", "`a/a.go` `G`", "d.md:1: a/a.go declares no G"},
		{"a missing method", "`a/a.go` `T.Open`", "declares no T.Open"},
		{"a method without its type", "`a/a.go` `Close`", "declares no Close"},
		{"one of another file", "`a/a.go` `F` and `b/b.go` `F`", "b/b.go declares no F"},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, err := CheckNames(fstest.MapFS{
				"d.md": {Data: []byte(c.line)}, "a/a.go": {Data: []byte(src)}, "b/b.go": {Data: []byte("package b\nfunc G() {}")},
			}, "d.md")
			require.NoError(t, err)
			requireFault(t, c.want, faults)
		})
	}
}

func TestTheMapLeavesOutWhatIsReachedAnyway(t *testing.T) {
	imports := func(paths ...string) *fstest.MapFile {
		var b strings.Builder
		b.WriteString("package x\n")
		for _, p := range paths {
			b.WriteString("import _ \"" + Module + "/" + p + "\"\n")
		}
		return &fstest.MapFile{Data: []byte(b.String())}
	}
	now, err := PackageMap(fstest.MapFS{
		"a/x.go": imports("b", "c/d", "f"), "f/x.go": imports(), "g/x.go": imports(), "b/x.go": imports("c/d"), "c/d/x.go": imports(), "a/x_test.go": imports("e"), "e/x.go": imports("a"), "e/go.mod": {},
	}, func(string) bool { return false })
	require.NoError(t, err)
	require.Equal(t, "```mermaid\nflowchart TD\n  a[\"a\"] --> b[\"b\"] & f[\"f\"]\n  b --> c_d[\"c/d\"]\n  g[\"g\"]\n```\n", now)
}
