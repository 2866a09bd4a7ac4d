package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

var importLine = regexp.MustCompile(`(?m)^import .*$`)

func TestEveryGoBlockOfTheDocumentsCompiles(t *testing.T) {
	found, err := all(os.DirFS(root))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	fset := token.NewFileSet()
	files := make([]*ast.File, len(found))
	for i, b := range found {
		src, err := b.source()
		require.NoError(t, err)
		files[i], err = parser.ParseFile(fset, b.where(), src, 0)
		require.NoError(t, err)
	}
	imp := importerOf(t, fset, files)
	for i, b := range found {
		for _, fault := range check(fset, imp, files[i], b.program()) {
			t.Errorf("%s: %s", b.where(), fault)
		}
		if b.said > 0 && b.said != b.lines() {
			t.Errorf("%s: has %d lines, and the page says %d", b.where(), b.lines(), b.said)
		}
	}
}

// check returns what the compiler would say of a block. In a fragment a variable
// need not be used.
func check(fset *token.FileSet, imp types.Importer, file *ast.File, program bool) (faults []string) {
	conf := types.Config{Importer: imp, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) || program || !e.Soft {
			faults = append(faults, err.Error())
		}
	}}
	_, _ = conf.Check("page", fset, []*ast.File{file}, nil) // its error is the first of those told
	return faults
}

// importerOf reads what the files import, from the build's cache. What only a nested module has
// is asked for there.
func importerOf(t *testing.T, fset *token.FileSet, files []*ast.File) types.Importer {
	byModule := map[string][]string{}
	for _, f := range files {
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			dir := root
			for _, nested := range []string{"testserver/duckdb", "flightpool/export", "flightpool/flightotel"} {
				if strings.HasPrefix(name, Module+"/"+nested) {
					dir = root + "/" + nested
				}
			}
			if strings.HasPrefix(name, "go.opentelemetry.io/") {
				dir = root + "/flightpool/flightotel"
			}
			byModule[dir] = append(byModule[dir], name)
		}
	}
	exports := map[string]string{}
	for dir, names := range byModule {
		slices.Sort(names)
		list := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, asBuilt(t), slices.Compact(names))...)
		list.Dir = dir
		list.Env = append(os.Environ(), "GOWORK=off")
		list.Stderr = os.Stderr
		out, err := list.Output()
		require.NoError(t, err)
		for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
			var p struct{ ImportPath, Export string }
			require.NoError(t, d.Decode(&p))
			exports[p.ImportPath] = p.Export
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// asBuilt are the flags that this test was built with, so that what is compiled is there already,
// and the tag of testserver/duckdb.
func asBuilt(t *testing.T) (flags []string) {
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	tags := "duckdb_arrow"
	for _, s := range info.Settings {
		switch s.Key {
		case "-race":
			flags = append(flags, "-race="+s.Value)
		case "-tags":
			tags += "," + s.Value
		}
	}
	return append(flags, "-tags="+tags)
}

// What a page promises to be short is counted.
func TestTheProgramsOfTheTasksAreShort(t *testing.T) {
	found, err := blocks(os.DirFS(root), "docs/tasks.md")
	require.NoError(t, err)
	programs := 0
	for _, b := range found {
		if b.program() {
			programs++
			require.LessOrEqual(t, b.lines(), 20, b.where())
		}
	}
	require.GreaterOrEqual(t, programs, 7)
}

func TestEveryPageSaysWhatToImport(t *testing.T) {
	names, err := pages(os.DirFS(root))
	require.NoError(t, err)
	for _, page := range names {
		text, err := os.ReadFile(root + "/" + page)
		require.NoError(t, err)
		if strings.Contains(string(text), "```go\n") && !strings.Contains(string(text), Module+"/") {
			t.Errorf("%s has Go and no import path", page)
		}
	}
}

// goCommand is a go command of a page with what it is given, and the folder that it runs in.
var goCommand = regexp.MustCompile(`(?:cd (\S+) && )?\bgo (?:run|build|install)( [^\n\x60)&;]*)`)

// A go command takes only packages of the module that it runs in, and each folder has its own here.
func TestTheGoCommandsOfThePagesRunInTheirModule(t *testing.T) {
	names, err := pages(os.DirFS(root))
	require.NoError(t, err)
	found := 0
	for _, page := range names {
		text, err := os.ReadFile(root + "/" + page)
		require.NoError(t, err)
		for _, c := range goCommand.FindAllStringSubmatch(string(text), -1) {
			dir := strings.TrimRight(c[1], "/")
			words := strings.Fields(c[2])
			if i := slices.Index(words, "-C"); i >= 0 {
				dir = words[i+1]
			}
			for _, word := range words {
				if !strings.HasPrefix(word, "./") {
					continue
				}
				found++
				require.Equal(t, moduleOf(dir), moduleOf(path.Join(dir, word)), "%s: %s", page, c[0])
				require.DirExists(t, path.Join(root, dir, word), "%s: %s", page, c[0])
			}
		}
	}
	require.Positive(t, found)
}

// moduleOf is the folder of the module that a folder of the tree is in.
func moduleOf(dir string) string {
	for dir = path.Clean(dir); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(path.Join(root, dir, "go.mod")); err == nil {
			break
		}
	}
	return dir
}

func TestABlockIsReadWithWhatItPrints(t *testing.T) {
	page := fstest.MapFS{"docs/a.md": {Data: []byte("It has 2 lines:\n\n```go\npackage main\n\n// c\nfunc main() {}\n```\n\nIt prints:\n```text\n1\n```\n```go\nreturn errors.New(\"\")\n```\n```sh\nnot ours\n```\n```text\n2\n```\n")}}
	found, err := blocks(page, "docs/a.md")
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.True(t, found[0].program())
	require.Equal(t, 2, found[0].lines())
	require.Equal(t, "1\n", found[0].want)
	require.Equal(t, 4, found[0].line)
	require.Equal(t, 2, found[0].said)
	require.Zero(t, found[1].said)
	src, err := found[1].source()
	require.NoError(t, err)
	require.Contains(t, src, `import errors "errors"`)
	require.Empty(t, found[1].want)

	_, err = blocks(fstest.MapFS{"a.md": {Data: []byte("```go\nx := 1\n")}}, "a.md")
	require.ErrorContains(t, err, "does not end")
	_, err = blocks(fstest.MapFS{"a.md": {Data: []byte("```go pgx\nx := 1\n```\n")}}, "a.md")
	require.ErrorContains(t, err, "compiled")
}

func TestABlockThatDoesNotCompileIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"x := 1\n":                               "",
		"var s string = 1\n":                     "cannot use 1",
		"nothing.At(all)\n":                      "undefined: nothing",
		"return\n":                               "not enough return values",
		"package main\nfunc main() { x := 1 }\n": "declared and not used",
		"func a() int { return \"\" }\n":         "cannot use \"\"",
	} {
		b := block{page: "a.md", text: text}
		src, err := b.source()
		require.NoError(t, err)
		src = importLine.ReplaceAllString(strings.ReplaceAll(src, given, ""), "") // what it imports is not read here
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "a.md", src, 0)
		require.NoError(t, err)
		faults := strings.Join(check(fset, nil, file, b.program()), "\n")
		if want == "" {
			require.Empty(t, faults)
		}
		require.Contains(t, faults, want)
	}
}
