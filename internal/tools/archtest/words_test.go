package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestNoRetiredWordIsLeft(t *testing.T) {
	faults, err := CheckWords(os.DirFS("../../.."), retiredList)
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

func TestEachRetiredWordIsFound(t *testing.T) {
	const list = "# a remark\n. gizmo thing\npool pump reconcile\ntexts loan connection\n"
	for _, c := range []struct {
		name, file, src string
		want            string // "" is fine
	}{
		{"a function", "pool/a.go", "package a\nfunc pump() {}", "pool/a.go:2:6: pump is retired, use reconcile"},
		{"a method", "pool/x/a.go", "package a\nfunc (t) pump() {}", "pump is retired"},
		{"a field", "pool/a.go", "package a\ntype t struct{ a, pump int }", "pump is retired"},
		{"a constant", "pool/a.go", "package a\nconst pump = 1", "pump is retired"},
		{"a type", "pool/a.go", "package a\ntype pump int", "pump is retired"},
		{"a parameter", "pool/a_test.go", "package a\nfunc f(pump int) {}", "pump is retired"},
		{"a variable", "pool/a.go", "package a\nfunc f() { x, pump := 1, 2 }", "pump is retired"},
		{"a loop's", "pool/a.go", "package a\nfunc f() { for pump := range 3 {} }", "pump is retired"},
		{"a use of somebody else's", "pool/a.go", "package a\nvar x = b.pump", ""},
		{"part of a name", "pool/a.go", "package a\nvar pumps = 1", ""},
		{"in another folder", "cancel/a.go", "package a\nvar pump = 1", ""},
		{"in a comment, for names only", "pool/a.go", "package a // pump", ""},
		{"in a comment", "cancel/a.go", "package a\n\n/* A Gizmo */", "cancel/a.go:3:1: \"gizmo\" is retired, use thing"},
		{"in a document", "docs/d.md", "x\nthe gizmo.", "docs/d.md:2: \"gizmo\" is retired, use thing"},
		{"in a text", "pool/a.go", "package a\nvar x = \"2 Loan is out\"", "pool/a.go:2:9: \"loan\" is retired in what programs say, use connection"},
		{"in the text of a test", "pool/a_test.go", "package a\nvar x = \"a loan is out\"", ""},
		{"in a string that is no text", "pool/a.go", "package a\nvar x = \"loan\"", ""},
		{"part of a word", "docs/d.md", "gizmosql", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, err := CheckWords(fstest.MapFS{c.file: {Data: []byte(c.src)}}, list)
			require.NoError(t, err)
			requireFault(t, c.want, faults)
		})
	}
	_, err := CheckWords(fstest.MapFS{}, ". word")
	require.ErrorContains(t, err, "retired.txt:1")
}
