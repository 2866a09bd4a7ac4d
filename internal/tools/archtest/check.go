package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Check returns what breaks the rules in the project at root, one line each.
func Check(root fs.FS) ([]string, error) {
	files, err := walk(root)
	if err != nil {
		return nil, err
	}
	var faults []string
	detached := map[string]string{} // folder -> the function that detaches
	for _, f := range files {
		faults = append(faults, checkSize(f)...)
		faults = append(faults, checkContexts(f, detached)...)
		faults = append(faults, checkErrors(f)...)
		for _, spec := range f.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if fault := checkImport(f, name); fault != "" {
				faults = append(faults, fmt.Sprintf("%s: imports %s: %s", f.path, name, fault))
			}
		}
	}
	faults = append(faults, checkPrints(files)...)
	slices.Sort(faults)
	return faults, nil
}

// checkImport returns why f must not import the package, or "".
func checkImport(f file, name string) string {
	own, isOwn := strings.CutPrefix(name, Module+"/")
	switch {
	case f.isTest():
		return "" // tests may reach for anything, internal packages of the root module too
	case f.module != ".":
		if isOwn && strings.HasPrefix(own, "internal/") && !within(own, f.module) {
			return "internal packages stay in their module"
		}
		return ""
	}
	l, ok := layerOf(f.dir())
	switch {
	case !ok:
		return "the folder has no layer in internal/tools/archtest/rules.go"
	case isOwn:
		if slices.Contains(l.may, own) || sameLayer(own, l) {
			return ""
		}
		return l.dir + " may not, an arrow must point down"
	case !strings.Contains(strings.Split(name, "/")[0], "."):
		return "" // standard library
	case slices.ContainsFunc(l.external, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return ""
	default:
		return l.dir + " may not use that module"
	}
}

// layerOf finds the deepest layer that contains a folder.
func layerOf(dir string) (layer, bool) {
	best := slices.MaxFunc(layers, func(a, b layer) int { return depth(a.dir, dir) - depth(b.dir, dir) })
	return best, within(dir, best.dir)
}

func sameLayer(dir string, l layer) bool {
	other, ok := layerOf(dir)
	return ok && other.dir == l.dir
}

func checkSize(f file) []string {
	if f.isTest() {
		return nil
	}
	var faults []string
	if n := f.length(); n > maxFileLines {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", f.path, n, maxFileLines))
	}
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && f.lines(fn) > maxFuncLines {
			faults = append(faults, fmt.Sprintf("%s: func %s has %d lines, at most %d", f.path, fn.Name.Name, f.lines(fn), maxFuncLines))
		}
	}
	return faults
}

// checkContexts finds context.Background and context.TODO in product code
// outside the one function of its package that detaches, by its name.
func checkContexts(f file, detached map[string]string) []string {
	if f.isTest() || f.ast.Name.Name == "main" || strings.HasSuffix(f.ast.Name.Name, "test") ||
		slices.ContainsFunc(detachable, func(dir string) bool { return within(f.path, dir) }) {
		return nil
	}
	var faults []string
	for _, d := range f.ast.Decls {
		where := "a declaration"
		if fn, ok := d.(*ast.FuncDecl); ok {
			where = "func " + fn.Name.Name
		}
		if !makesContext(f, d) {
			continue
		}
		helper := path.Join(f.dir(), where)
		before, taken := detached[f.dir()]
		if strings.Contains(strings.ToLower(where), "detach") && (!taken || before == helper) {
			detached[f.dir()] = helper
			continue
		}
		faults = append(faults, fmt.Sprintf("%s: %s makes a context of its own; take one, or use the package's one detach helper", f.path, where))
	}
	return faults
}

// makesContext reports whether the code under n calls for a root context.
func makesContext(f file, n ast.Node) (found bool) {
	pkg := importName(f, "context")
	ast.Inspect(n, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		found = found || ok && x.Name == pkg && (sel.Sel.Name == "Background" || sel.Sel.Name == "TODO")
		return true
	})
	return found
}

// checkErrors finds two uses of package errors that calls must not make.
//
// errors.Is(…, io.EOF): an error that wraps io.EOF is the failure of a transport
// or of a decompressor, and taken for the end it makes a result short without a
// word. errors.Join: its text has a line for each error, and logs one for all.
func checkErrors(f file) []string {
	if f.isTest() || !slices.ContainsFunc(callers, func(dir string) bool { return within(f.dir(), dir) }) {
		return nil
	}
	var faults []string
	selects := func(e ast.Expr, pkg, name string) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != name {
			return false
		}
		x, ok := sel.X.(*ast.Ident)
		return ok && x.Name == importName(f, pkg)
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		switch {
		case !ok:
		case len(call.Args) == 2 && selects(call.Fun, "errors", "Is") && selects(call.Args[1], "io", "EOF") && importName(f, "io") != "":
			faults = append(faults, f.path+": looks for io.EOF in a chain of errors; ask internal/eof")
		case selects(call.Fun, "errors", "Join"):
			faults = append(faults, f.path+": joins errors on several lines; use internal/errjoin")
		}
		return true
	})
	return faults
}

// importName is what f calls the package, "" if it does not import it.
func importName(f file, importPath string) string {
	for _, spec := range f.ast.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); name == importPath {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return path.Base(importPath)
		}
	}
	return ""
}
