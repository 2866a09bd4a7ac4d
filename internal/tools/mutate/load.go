package mutate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// source is a package's files, parsed and type-checked.
type source struct {
	dir   string
	name  string // of the package clause
	fset  *token.FileSet
	files []*ast.File
	text  map[*ast.File][]byte
	path  map[*ast.File]string
	info  *types.Info
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Name, Export string
	GoFiles                       []string
	DepOnly                       bool
}

// load reads the package in dir, tests apart. Imports come from the export data
// that the go command has built.
func load(dir, tags string) (*source, error) {
	cmd := exec.Command("go", "list", "-tags", tags, "-deps", "-export", "-json=ImportPath,Dir,Name,Export,GoFiles,DepOnly", ".") //nolint:noctx // bounded by the go command
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", dir, err, complaint.String())
	}
	exports := map[string]string{}
	var own listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = p
		}
	}
	return check(own, exports)
}

func check(p listed, exports map[string]string) (*source, error) {
	s := &source{
		dir: p.Dir, name: p.Name, fset: token.NewFileSet(),
		text: map[*ast.File][]byte{}, path: map[*ast.File]string{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}},
	}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
		s.text[f], s.path[f] = text, path
	}
	conf := types.Config{Importer: importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	if _, err := conf.Check(p.ImportPath, s.fset, s.files, s.info); err != nil {
		return nil, fmt.Errorf("type check of %s: %w", p.ImportPath, err)
	}
	return s, nil
}
