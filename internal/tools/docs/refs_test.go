package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// notOurs is what pages name of others' that looks as if it were ours.
var notOurs = []string{
	"docs/release.md: --detach is no flag",                              // git's
	"docs/registry.md: FAIL_FAST is nowhere in the code",                // the document's name; case does not matter here
	"docs/DESIGN.md: --include is no flag",                              // grep's
	"docs/settings.md: SWANLAKE_SESSION_ID_MODE is nowhere in the code", // SwanLake's
}

func TestWhatThePagesReferToIsThere(t *testing.T) {
	r, err := newReferences(os.DirFS(root))
	require.NoError(t, err)
	names, err := pages(os.DirFS(root))
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(page string) bool { return page == "docs/HISTORY.md" }) // of what was
	var faults []string
	for _, page := range append(names, "CONTRIBUTING.md", "SECURITY.md", "internal/tools/fleetbench/README.md") {
		text, err := os.ReadFile(root + "/" + page)
		require.NoError(t, err)
		faults = append(faults, r.faults(page, string(text))...)
	}
	for _, f := range faults {
		if !slices.Contains(notOurs, f) {
			t.Error(f)
		}
	}
	for _, f := range notOurs {
		require.Contains(t, faults, f, "it is not needed any more")
	}
}

func TestWhatIsNotThereIsFound(t *testing.T) {
	const code = "package a\ntype Config struct{ Size int; Inner }\ntype Inner struct{ Deep int }\nfunc (Config) Close() {}\nfunc New() {}\n" +
		"var works = []work{{name: \"fetch\", unit: \"us\"}}\nfunc f() { flag.Int(\"rounds\", 1, \"\"); os.Getenv(\"A_NAME\"); _ = \"flightpool_in_use\" }\n"
	r, err := newReferences(fstest.MapFS{
		"Makefile":   {Data: []byte("test: deps ## all\n\tPROVE=$(PROVE) go test ./...\n")},
		"a/works.go": {Data: []byte(code)}, "a/a_test.go": {Data: []byte("package a\nfunc TestOne(t *testing.T) {}\nfunc BenchmarkTwo(b *testing.B) {}\n")},
		"cmd/leasectl/m.go": {Data: []byte("package main\nfunc f() { flags.Bool(\"watch\", false, \"\") }")},
	})
	require.NoError(t, err)
	for text, want := range map[string]string{
		"`make test`, `make test PROVE=2h`":                            "",
		"`make tset`":                                                  "make has no target tset",
		"```\nmake tset    # all\n```":                                 "make has no target tset",
		"`make test PROOF=1`":                                          "make has no variable PROOF",
		"`cd a && go run . -rounds 3 -work fetch`":                     "a has no flag -work",
		"`cd a && go run .\n-rounds 3`, `-work fetch`":                 "",
		"`go run ./a -round 3`":                                        "a has no flag -round",
		"`-work fetched`":                                              "-work fetched is no work",
		"`go test -v -run One ./a`, `go test -run xxx -bench Two ./a`": "",
		"`go test -run 'One|Two' ./...`":                               "",
		"`go test -run Three ./a`":                                     "no test of a matches Three",
		"`cd a && go test -bench Three .`":                             "no test of a matches Three",
		"`-bench Three`":                                               "no test matches Three",
		"`leasectl show --watch 2s`, `--help`":                         "",
		"`--wait`":                                                     "--wait is no flag",
		"A_NAME, NAMES":                                                "",
		"`NO_NAME`":                                                    "NO_NAME is nowhere",
		"`flightpool_in_use`":                                          "",
		"`flightpool_in_use_total`":                                    "flightpool_in_use_total is no metric",
		"`Config.Size`, `Config.Deep`, `lease.Close`, `other.Name`":    "",
		"`Config.Width`":                                               "Config.Width is no name",
		"`x, lease.Old`":                                               "lease.Old is no name",
		"    go build -C a -o ../bin/ .\n    bin/a URL\n":              "",
		"    go build -C a -o ../bin/ .\n    ./a URL\n":                "nothing builds ./a",
		"    go build -C a -o a .\n    ./a URL\n":                      "a/a is built, and nothing names it",
		"`go build -C cmd/a -o ../../bin/ .`, `bin/a`":                 "cmd/a is no package",
		"```go\nlease.Old()\n```":                                      "",
	} {
		faults := strings.Join(r.faults("docs/a.md", text), "\n")
		if want == "" {
			require.Empty(t, faults, text)
		}
		require.Contains(t, faults, want, text)
	}
}
