package mutate

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
)

// Point is one mutant: a place and what is changed there.
type Point struct {
	ID   int
	File string // base name
	Line int
	Func string // the function or method, "" outside one
	Text string // the source line, trimmed
	What string // the change, for example "< becomes <="
}

func (p Point) String() string {
	return fmt.Sprintf("%s:%d %s: %s: %s", p.File, p.Line, p.Func, p.Text, p.What)
}

// finder walks one file and collects its mutants and the edits that make them.
type finder struct {
	src    *source
	file   *ast.File
	fn     string
	result *ast.FieldList // of the innermost function
	next   *int
	edits  edits
	points []Point
}

// instrument returns the file's text with all mutants in it.
func (s *source) instrument(f *ast.File, next *int) ([]byte, []Point) {
	w := &finder{src: s, file: f, next: next}
	if onlyForInvariants(f) {
		return s.text[f], nil
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || checksInvariants(fn.Body) {
			continue // initial values of variables are left alone
		}
		w.fn = funcName(fn)
		w.function(fn.Type, fn.Body)
	}
	return w.edits.apply(s.text[f]), w.points
}

func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch x := t.(type) {
	case *ast.IndexExpr:
		t = x.X
	case *ast.IndexListExpr:
		t = x.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func (w *finder) function(t *ast.FuncType, body *ast.BlockStmt) {
	outer := w.result
	w.result = t.Results
	w.walk(body)
	w.result = outer
}

// walk visits everything under n, outer nodes first.
func (w *finder) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			w.function(n.Type, n.Body)
			return false
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.IfStmt:
			if mentionsInvariant(n.Cond) {
				return false
			}
			w.condition(n.Cond)
		case *ast.ForStmt:
			w.condition(n.Cond)
		case *ast.BlockStmt:
			w.statements(n.List)
		case *ast.CaseClause:
			w.statements(n.Body)
		case *ast.CommClause:
			w.statements(n.Body)
		case *ast.ReturnStmt:
			w.returned(n)
		case *ast.BinaryExpr:
			return w.binary(n)
		case *ast.CallExpr:
			return !mentionsInvariant(n.Fun)
		}
		return true
	})
}

// mentionsInvariant tells checks of invariants: to leave one out cannot make a
// test fail.
func mentionsInvariant(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "invariant"
		return !found
	})
	return found
}

// checksInvariants tells a function that is there for its checks.
func checksInvariants(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && mentionsInvariant(call.Fun)
		return !found
	})
	return found
}

// onlyForInvariants tells a file that no build for users has.
func onlyForInvariants(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil && c.Pos() < f.Package {
				return !expr.Eval(func(tag string) bool { return tag != "invariants" })
			}
		}
	}
	return false
}

func (w *finder) add(n ast.Node, what string) int {
	at := w.src.fset.Position(n.Pos())
	text := w.src.text[w.file]
	start := bytes.LastIndexByte(text[:at.Offset], '\n') + 1
	line, _, _ := bytes.Cut(text[start:], []byte("\n"))
	*w.next++
	w.points = append(w.points, Point{
		ID: *w.next, File: filepath.Base(at.Filename), Line: at.Line, Func: w.fn,
		Text: strings.TrimSpace(string(line)), What: what,
	})
	return *w.next
}

func (w *finder) wrap(n ast.Node, before, after string) {
	fset := w.src.fset
	w.edits.wrap(fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset, before, after)
}

// sourceOf is n as it is written, shortened.
func (w *finder) sourceOf(n ast.Node) string {
	fset := w.src.fset
	s := string(w.src.text[w.file][fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset])
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return s
}

// condition negates one that is no comparison, && or ||: those have their own.
func (w *finder) condition(e ast.Expr) {
	if e == nil || !w.isBool(e) {
		return
	}
	if _, ok := ast.Unparen(e).(*ast.BinaryExpr); ok {
		return
	}
	w.negate(e)
}

func (w *finder) negate(e ast.Expr) {
	id := w.add(e, "negated: "+w.sourceOf(e))
	w.wrap(e, "((", fmt.Sprintf(") != mutantZZ(%d))", id))
}

// isBool reports whether e is a bool that is not constant.
func (w *finder) isBool(e ast.Expr) bool {
	tv := w.src.info.Types[e]
	if tv.Value != nil || tv.Type == nil {
		return false
	}
	b, ok := tv.Type.(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// returned mutates the results of a return.
func (w *finder) returned(r *ast.ReturnStmt) {
	if w.result == nil || len(r.Results) != w.result.NumFields() {
		return // bare, or all results of one call
	}
	for _, e := range r.Results {
		if _, ok := ast.Unparen(e).(*ast.BinaryExpr); !ok && w.isBool(e) {
			w.negate(e)
		}
	}
	last := r.Results[len(r.Results)-1]
	declared := w.result.List[len(w.result.List)-1].Type
	if name, ok := declared.(*ast.Ident); !ok || name.Name != "error" || w.src.info.Types[last].IsNil() {
		return
	}
	id := w.add(last, "nil in the place of: "+w.sourceOf(last))
	w.wrap(last, fmt.Sprintf("mutantNilZZ(%d, ", id), ")")
}
