package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// names are what the code declares, by the names that documents use, without the paths of
// packages: two types of one name are one here.
type names struct {
	packages map[string]set // exported names
	types    map[string]set // fields and methods
	fields   set            // of any type
	embeds   map[string][]string
}

type set map[string]bool

func (n names) add(to map[string]set, key, name string) {
	if to[key] == nil {
		to[key] = set{}
	}
	to[key][name] = true
}

// namesOf reads Go files that are no tests.
func namesOf(files map[string]string) (names, error) {
	n := names{map[string]set{}, map[string]set{}, set{}, map[string][]string{}}
	for name, text := range files {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return n, err
		}
		for _, d := range f.Decls {
			n.declaration(f.Name.Name, d)
		}
	}
	return n, nil
}

func (n names) declaration(pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			n.add(n.packages, pkg, d.Name.Name)
			return
		}
		n.add(n.types, base(d.Recv.List[0].Type), d.Name.Name)
		n.fields[d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					n.add(n.packages, pkg, id.Name)
				}
			case *ast.TypeSpec:
				n.add(n.packages, pkg, s.Name.Name)
				n.typ(s.Name.Name, s.Type)
			}
		}
	}
}

func (n names) typ(name string, t ast.Expr) {
	if n.types[name] == nil {
		n.types[name] = set{}
	}
	var members *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		members = t.Fields
	case *ast.InterfaceType:
		members = t.Methods
	default:
		n.embeds[name] = append(n.embeds[name], base(t))
		return
	}
	for _, f := range members.List {
		for _, id := range f.Names {
			n.types[name][id.Name] = true
			n.fields[id.Name] = true
		}
		if len(f.Names) == 0 {
			n.types[name][base(f.Type)] = true
			n.embeds[name] = append(n.embeds[name], base(f.Type))
		}
	}
}

// base is the last name of a type.
func base(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.StarExpr:
		return base(t.X)
	case *ast.IndexExpr:
		return base(t.X)
	case *ast.IndexListExpr:
		return base(t.X)
	}
	return ""
}

// has reports whether owner.name is a name of the code, or owner is none: then it is
// somebody else's. A field, such as Cancel, has the members of any type, and so has a
// variable, whose name may be that of a package.
func (n names) has(owner, name string) bool {
	ours := strings.HasPrefix(imports[owner], Module)
	switch {
	case n.types[owner] != nil && n.member(owner, name, set{}), n.packages[owner][name]:
		return true
	case !ast.IsExported(owner) && !ours:
		return true
	case n.fields[owner], ours:
		return n.fields[name]
	}
	return n.types[owner] == nil
}

func (n names) member(owner, name string, seen set) bool {
	if n.types[owner][name] {
		return true
	}
	seen[owner] = true
	for _, e := range n.embeds[owner] {
		if n.types[e] == nil || !seen[e] && n.member(e, name, seen) {
			return true
		}
	}
	return false
}
