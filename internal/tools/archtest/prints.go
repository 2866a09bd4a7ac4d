package archtest

import (
	"fmt"
	"go/ast"
	"slices"
)

// secretFields are fields in which callers put secrets: passwords, headers, and
// options of servers among which both are.
var secretFields = []string{"Auth", "Credentials", "Headers", "Options", "Password", "Secret", "Token"}

// printMethods are those with which a type prints itself. fmt prefers Format to
// all others and calls it for every verb, encoding/json (and slog's JSON
// handler) MarshalJSON.
var printMethods = []string{"Format", "MarshalJSON"}

// checkPrints finds exported structs with a field for secrets that are printed
// field by field: one %v in a log shows the secret.
func checkPrints(files []file) []string {
	methods := map[string][]string{} // folder and type -> methods
	for _, f := range files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				if of := receiver(fn); of != "" {
					methods[f.dir()+"."+of] = append(methods[f.dir()+"."+of], fn.Name.Name)
				}
			}
		}
	}
	var faults []string
	for _, f := range files {
		if f.isTest() || f.module != "." || within(f.dir(), "internal") || within(f.dir(), "testserver") {
			continue
		}
		for name, s := range structs(f) {
			field := secretField(s)
			for _, method := range printMethods {
				if field != "" && !slices.Contains(methods[f.dir()+"."+name], method) {
					faults = append(faults, fmt.Sprintf("%s: type %s has a field %s and no method %s, so that it prints secrets", f.path, name, field, method))
				}
			}
		}
	}
	return faults
}

// receiver is the type that has the method by value: those of a pointer are not
// found where a copy is printed.
func receiver(fn *ast.FuncDecl) string {
	if id, ok := fn.Recv.List[0].Type.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// structs are the exported struct types of a file.
func structs(f file) map[string]*ast.StructType {
	found := map[string]*ast.StructType{}
	for _, decl := range f.ast.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok && t.Name.IsExported() {
				if s, ok := t.Type.(*ast.StructType); ok {
					found[t.Name.Name] = s
				}
			}
		}
	}
	return found
}

func secretField(s *ast.StructType) string {
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			if slices.Contains(secretFields, name.Name) {
				return name.Name
			}
		}
	}
	return ""
}
