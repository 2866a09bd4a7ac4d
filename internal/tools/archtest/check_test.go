package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestTheProjectKeepsItsRules(t *testing.T) {
	faults, err := Check(os.DirFS("../../.."))
	require.NoError(t, err)
	require.Empty(t, strings.Join(faults, "\n"))
}

func TestEachBrokenRuleIsFound(t *testing.T) {
	imports := func(pkg, path string) string { return fmt.Sprintf("package %s\nimport _ %q\n", pkg, path) }
	own := func(pkg, path string) string { return imports(pkg, Module+"/"+path) }
	lines := func(n int) string { return strings.Repeat("\n", n) }
	const detach = "package flightpool\nimport \"context\"\nfunc %s() { _ = context.Background() }\n"
	for _, c := range []struct {
		name, file, src string
		want            string // "" is fine
	}{
		{"reservoir on the lease", "reservoir/a.go", own("reservoir", "lease"), "an arrow must point down"},
		{"reservoir on invariants", "reservoir/a.go", own("reservoir", "internal/invariant"), ""},
		{"reservoir on another module", "reservoir/a.go", imports("reservoir", "golang.org/x/sync/errgroup"), "may not use that module"},
		{"cancel on the session", "cancel/a.go", own("cancel", "session"), "an arrow must point down"},
		{"lease on arrow", "lease/a.go", imports("lease", "github.com/apache/arrow-go/v18/arrow"), "may not use that module"},
		{"session on the reservoir", "session/a.go", own("session", "reservoir"), "an arrow must point down"},
		{"session on a backend", "session/a.go", own("session", "internal/flightconn"), "an arrow must point down"},
		{"session on cancel and arrow", "session/a.go", own("session", "cancel") + "import _ \"github.com/apache/arrow-go/v18/arrow\"\n", ""},
		{"pool on adbc", "flightpool/a.go", imports("flightpool", "github.com/apache/arrow-adbc/go/adbc"), "may not use that module"},
		{"product on the test server", "flightpool/a.go", own("flightpool", "testserver"), "an arrow must point down"},
		{"test on the test server", "flightpool/a_test.go", own("flightpool", "testserver"), ""},
		{"backend on the pool", "internal/flightconn/a.go", own("flightconn", "flightpool"), "an arrow must point down"},
		{"folder inside a layer", "testserver/x/a.go", own("x", "testserver"), ""},
		{"folder without a layer", "surprise/a.go", imports("surprise", "fmt"), "has no layer"},
		{"nested module on internals", "examples/a/main.go", own("main", "internal/memnet"), "stay in their module"},
		{"nested module's test on internals", "examples/a/main_test.go", own("main", "internal/memnet"), ""},
		{"nested module on its own internals", "internal/tools/bench/a.go", own("main", "internal/tools/bench/b"), ""},
		{"long function", "cancel/a.go", "package cancel\nfunc f() {" + lines(70) + "}\n", "func f has 71 lines"},
		{"function at the bound", "cancel/a.go", "package cancel\nfunc f() {" + lines(69) + "}\n", ""},
		{"long file", "cancel/a.go", "package cancel" + lines(301), "301 lines"},
		{"file at the bound", "cancel/a.go", "package cancel" + lines(300), ""},
		{"long test", "cancel/a_test.go", "package cancel\nfunc f() {" + lines(400) + "}\n", ""},
		{"own context", "flightpool/a.go", fmt.Sprintf(detach, "run"), "makes a context of its own"},
		{"renamed import", "flightpool/a.go", "package flightpool\nimport c \"context\"\nvar x = c.TODO()\n", "makes a context of its own"},
		{"detach helper", "flightpool/a.go", fmt.Sprintf(detach, "detached"), ""},
		{"second detach helper", "flightpool/a.go", fmt.Sprintf(detach, "detached") + "func detachToo() { _ = context.TODO() }\n", "func detachToo makes a context"},
		{"end looked for in a chain", "session/a.go", "package session\nimport (\"errors\"; \"io\")\nfunc end(err error) bool { return errors.Is(err, io.EOF) }\n", "looks for io.EOF in a chain"},
		{"errors on several lines", "session/a.go", "package session\nimport \"errors\"\nfunc end(err error) error { return errors.Join(err, nil) }\n", "on several lines"},
		{"errors on several lines of a test", "session/a_test.go", "package session\nimport \"errors\"\nfunc end(err error) error { return errors.Join(err, nil) }\n", ""},
		{"end by identity", "session/a.go", "package session\nimport \"io\"\nfunc end(err error) bool { return err == io.EOF }\n", ""},
		{"secrets printed in JSON", "session/a.go", "package session\ntype T struct{ N int; Password string }\nfunc (T) Format() {}\n", "field Password and no method MarshalJSON"},
		{"secrets printed of a copy", "lease/a.go", "package lease\ntype T struct{ Headers []string }\nfunc (*T) Format() {}\nfunc (T) MarshalJSON() {}\n", "field Headers and no method Format"},
		{"secrets not printed", "session/a.go", "package session\ntype T struct{ Password string }\nfunc (T) Format() {}\nfunc (T) MarshalJSON() {}\n", ""},
		{"secrets of nobody's", "session/a.go", "package session\ntype t struct{ Password string }\n", ""},
		{"own context in a program", "examples/a/main.go", strings.Replace(fmt.Sprintf(detach, "run"), "flightpool", "main", 1), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			faults, err := Check(fstest.MapFS{
				"examples/go.mod":             {},
				"internal/tools/bench/go.mod": {},
				c.file:                        {Data: []byte(c.src)},
			})
			require.NoError(t, err)
			requireFault(t, c.want, faults)
		})
	}
}

// requireFault holds what was found against the one fault that is there, "" for
// none.
func requireFault(t *testing.T, want string, faults []string) {
	t.Helper()
	if want == "" {
		require.Empty(t, faults)
		return
	}
	require.Len(t, faults, 1)
	require.Contains(t, faults[0], want)
}

func TestAFileThatDoesNotParseIsAnError(t *testing.T) {
	_, err := Check(fstest.MapFS{"cancel/a.go": {Data: []byte("not go")}})
	require.Error(t, err)
}

func TestHiddenFoldersAndTestDataAreLeftOut(t *testing.T) {
	faults, err := Check(fstest.MapFS{".tools/a.go": {Data: []byte("x")}, "cancel/testdata/a.go": {Data: []byte("x")}})
	require.NoError(t, err)
	require.Empty(t, faults)
}

func TestEveryPackageOfTheDesignHasALayer(t *testing.T) {
	for _, l := range layers {
		for _, dir := range l.may {
			_, ok := layerOf(dir)
			require.True(t, ok, "%s may import %s, which has no layer", l.dir, dir)
		}
	}
}
