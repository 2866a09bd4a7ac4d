package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	fileSpan   = regexp.MustCompile(`^[\w./-]+\.go$`)
	symbolSpan = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?$`)
)

// CheckNames returns what is wrong with the names of a document that leads
// through the code, one line each. A code span that is the path of a Go file must
// exist, and the spans after it on the same line that look like a name must be
// declared in it:
//
//	`reservoir/dispatch.go` `Reservoir.dispatch`, then `verdict`
//
// A name is that of a function, a type, a method with its type, a field with its
// type, a constant or a variable.
func CheckNames(root fs.FS, document string) ([]string, error) {
	text, err := fs.ReadFile(root, document)
	if err != nil {
		return nil, err
	}
	var faults []string
	for i, line := range strings.Split(string(text), "\n") {
		var names map[string]bool
		at := ""
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			word := span[1]
			switch {
			case fileSpan.MatchString(word):
				f, err := parse(root, word)
				if err != nil {
					faults = append(faults, fmt.Sprintf("%s:%d: %s does not exist or does not parse", document, i+1, word))
					names = nil
					continue
				}
				at, names = word, declared(f)
			case names != nil && symbolSpan.MatchString(word) && !names[strings.TrimSuffix(word, "()")]:
				faults = append(faults, fmt.Sprintf("%s:%d: %s declares no %s", document, i+1, at, word))
			}
		}
	}
	return faults, nil
}

// declared are the names that a file declares.
func declared(f file) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			} else {
				names[baseName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
					for _, member := range members(spec.Type) {
						names[spec.Name.Name+"."+member] = true
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// baseName is the name of a receiver's type.
func baseName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.IndexListExpr:
		return baseName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members are the fields of a struct, those of nested structs by their path, or
// the methods of an interface.
func members(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
			for _, inner := range members(field.Type) {
				names = append(names, name.Name+"."+inner)
			}
		}
	}
	return names
}

// PackageMap is a picture of which packages of the root module import which, as
// a Mermaid diagram: what is reached over another package anyway is left out, and
// so are tests and the packages that leaveOut names.
func PackageMap(root fs.FS, leaveOut func(dir string) bool) (string, error) {
	imports, err := importsOf(root, leaveOut)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	named := map[string]bool{}
	node := func(dir string) string { // with its label where it first stands
		if named[dir] {
			return nodeOf(dir)
		}
		named[dir] = true
		return fmt.Sprintf("%s[%q]", nodeOf(dir), dir)
	}
	imported := map[string]bool{}
	for _, dir := range sorted(imports) {
		if direct := directImports(imports, dir); len(direct) > 0 {
			from, to := node(dir), make([]string, len(direct))
			for i, other := range direct {
				imported[other] = true
				to[i] = node(other)
			}
			fmt.Fprintf(&b, "  %s --> %s\n", from, strings.Join(to, " & "))
		}
	}
	for _, dir := range sorted(imports) {
		if len(imports[dir]) == 0 && !imported[dir] {
			fmt.Fprintf(&b, "  %s\n", node(dir))
		}
	}
	b.WriteString("```\n")
	return b.String(), nil
}

// importsOf are the packages of the root module, each with those it imports.
func importsOf(root fs.FS, leaveOut func(dir string) bool) (map[string]map[string]bool, error) {
	files, err := walk(root)
	if err != nil {
		return nil, err
	}
	imports := map[string]map[string]bool{}
	for _, f := range files {
		if f.module != "." || f.isTest() || leaveOut(f.dir()) {
			continue
		}
		if imports[f.dir()] == nil {
			imports[f.dir()] = map[string]bool{}
		}
		for _, spec := range f.ast.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			if own, ok := strings.CutPrefix(name, Module+"/"); ok && own != f.dir() && !leaveOut(own) {
				imports[f.dir()][own] = true
			}
		}
	}
	return imports, nil
}

// directImports are the imports of a package that no other of its imports reaches.
func directImports(imports map[string]map[string]bool, dir string) (direct []string) {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		for next := range imports[from] {
			if next == to || reaches(next, to) {
				return true
			}
		}
		return false
	}
	all := sorted(imports[dir])
	for _, to := range all {
		if !slices.ContainsFunc(all, func(via string) bool { return via != to && reaches(via, to) }) {
			direct = append(direct, to)
		}
	}
	return direct
}

func nodeOf(dir string) string {
	return strings.NewReplacer("/", "_", ".", "_").Replace(path.Clean(dir))
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
