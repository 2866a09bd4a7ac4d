package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// root is the path of the root module; those of the others begin with it.
const root = "github.com/flightpool/flightpool"

// A tagged module is one that is released. Its go.mod in the tree names the others
// as v0.0.0 and leads to them by replace, so that the tree builds by itself;
// what is tagged has neither.
type tagged struct {
	dir     string // from the project's root, "." for the root module
	path    string
	files   []string // those of the module, from its folder
	mod     []byte   // its go.mod as it is released
	needs   []string // paths of the modules of ours that it requires
	lowest  string   // the lowest Go that its go.mod lets build it, such as 1.25.0
	hasMain bool     // it is installed, rather than imported
}

func (m tagged) version(v string) module.Version { return module.Version{Path: m.path, Version: v} }

// released reports whether the module of a folder is tagged: not the tools, not the
// examples, and not the suites that keep their dependencies apart.
func released(dir string) bool {
	first, _, _ := strings.Cut(dir, "/")
	return first != "internal" && first != "examples" && !strings.HasSuffix(dir, "test")
}

// modules finds the tagged modules of a tree, each after those that it requires.
func modules(tree, version string) ([]tagged, error) {
	all, err := filesOf(tree)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, f := range all {
		if path.Base(f) == "go.mod" {
			dirs = append(dirs, path.Dir(f))
		}
	}
	var found []tagged
	for _, dir := range dirs {
		if !released(dir) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(tree, dir, "go.mod"))
		if err != nil {
			return nil, err
		}
		m, err := releasedMod(text, version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		m.dir, m.files, m.hasMain = dir, within(all, dir, dirs), strings.HasPrefix(dir, "cmd/")
		found = append(found, m)
	}
	slices.SortStableFunc(found, func(a, b tagged) int { return cmp.Compare(len(a.needs), len(b.needs)) })
	return found, nil
}

// filesOf lists what git has or would add, from the root of the tree.
func filesOf(tree string) ([]string, error) {
	git := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = tree
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(f string) bool {
		info, err := os.Lstat(filepath.Join(tree, f))
		return err != nil || !info.Mode().IsRegular() // removed and not committed yet
	}), nil
}

// within selects the files of one module: below its folder, and below no other module's in it.
func within(files []string, dir string, dirs []string) (own []string) {
	for _, f := range files {
		deepest := "."
		for _, d := range dirs {
			if strings.HasPrefix(f, d+"/") && len(d) > len(deepest) {
				deepest = d
			}
		}
		if deepest == dir {
			rel, _ := filepath.Rel(dir, f)
			own = append(own, filepath.ToSlash(rel))
		}
	}
	return own
}

// releasedMod reads a go.mod and makes of it what is tagged: modules of ours at the version, no replace.
func releasedMod(text []byte, version string) (m tagged, err error) {
	f, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		return m, err
	}
	for _, r := range slices.Clone(f.Replace) {
		if !ours(r.Old.Path) {
			return m, fmt.Errorf("replaces %s, which its users would not", r.Old.Path)
		}
		if err := f.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return m, err
		}
	}
	for _, r := range f.Require {
		if !ours(r.Mod.Path) {
			continue
		}
		m.needs = append(m.needs, r.Mod.Path)
		if err := f.AddRequire(r.Mod.Path, version); err != nil {
			return m, err
		}
	}
	f.Cleanup()
	m.path, m.lowest = f.Module.Mod.Path, f.Go.Version
	m.mod, err = f.Format()
	return m, err
}

func ours(name string) bool { return name == root || strings.HasPrefix(name, root+"/") }
