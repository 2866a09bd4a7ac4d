package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// file is one Go file of the project.
type file struct {
	path   string // slash-separated, from the project's root
	module string // folder of its go.mod, "." for the root
	ast    *ast.File
	fset   *token.FileSet
}

func (f file) dir() string  { return path.Dir(f.path) }
func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// lines is how many lines n spans.
func (f file) lines(n ast.Node) int {
	return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1
}

// length is how many lines the file has.
func (f file) length() int { return f.fset.File(f.ast.Pos()).LineCount() }

// walk parses the Go files of all modules under root.
func walk(root fs.FS) ([]file, error) {
	var files []file
	modules := []string{"."}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if hidden(entry.Name()) {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
				modules = append(modules, name)
			}
			return nil
		case path.Ext(name) != ".go":
			return nil
		}
		f, err := parse(root, name)
		f.module = moduleOf(name, modules)
		files = append(files, f)
		return err
	})
	return files, err
}

func hidden(name string) bool {
	return name == "testdata" || name != "." && strings.HasPrefix(name, ".")
}

func parse(root fs.FS, name string) (file, error) {
	src, err := fs.ReadFile(root, name)
	if err != nil {
		return file{}, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	return file{path: name, ast: tree, fset: fset}, err
}

// moduleOf finds the deepest module that contains a file. A folder's go.mod
// is seen before the files in it.
func moduleOf(name string, modules []string) string {
	return slices.MaxFunc(modules, func(a, b string) int { return depth(a, name) - depth(b, name) })
}

// depth is the length of dir if it contains name, else -1.
func depth(dir, name string) int {
	switch {
	case dir == ".":
		return 0
	case within(name, dir):
		return len(dir)
	default:
		return -1
	}
}

// within reports whether name is dir or lies in it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
