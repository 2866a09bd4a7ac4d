package main

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// program is a whole program, or test, of the documents.
type program struct {
	name string // page.md:line
	dir  string
	file string
	mods []string // what it imports of ours
	tags string
	want string // what it prints
}

// programs reads what internal/tools/docs has written: a folder for each, with a Go
// file, and what it prints in "want".
func programs(dir string) ([]program, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []program
	for _, e := range entries {
		p := program{name: e.Name(), dir: filepath.Join(dir, e.Name()), file: "main.go"}
		if _, err := os.Stat(filepath.Join(p.dir, p.file)); err != nil {
			p.file = "main_test.go"
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.dir, p.file), nil, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, err
			}
			if ours(name) {
				p.mods = append(p.mods, name)
			}
			if strings.HasPrefix(name, root+"/testserver/duckdb") {
				p.tags = " -tags=duckdb_arrow"
			}
		}
		want, err := os.ReadFile(filepath.Join(p.dir, "want"))
		if err != nil {
			return nil, err
		}
		p.want = string(want)
		all = append(all, p)
	}
	return all, nil
}

// run gets what the program imports of ours at the version, the rest as go mod tidy
// finds it, runs the program and compares what it prints. No file of the program is changed.
func (p program) run(ctx context.Context, o outside) (cost gotten, err error) {
	env := []string{"GOFLAGS=-modcacherw -trimpath" + p.tags}
	if err := o.fresh(ctx, p.dir); err != nil {
		return cost, err
	}
	get := []string{"get"}
	for _, m := range slices.Compact(slices.Sorted(slices.Values(p.mods))) {
		get = append(get, m+"@"+o.version)
	}
	for _, args := range [][]string{get, {"mod", "tidy"}} {
		if _, err := o.run(ctx, p.dir, env, "go", args...); err != nil {
			return cost, err
		}
	}
	if cost, err = o.cost(ctx, p.dir, env, "-test", "."); err != nil {
		return cost, err
	}
	if strings.HasSuffix(p.file, "_test.go") {
		_, err := o.run(ctx, p.dir, env, "go", "test", "-count=1", ".")
		return cost, err
	}
	got, err := o.run(ctx, p.dir, env, "go", "run", ".")
	if err == nil && strings.TrimSpace(got) != strings.TrimSpace(p.want) {
		err = fmt.Errorf("it printed\n%sand the page says\n%s", got, p.want)
	}
	return cost, err
}
