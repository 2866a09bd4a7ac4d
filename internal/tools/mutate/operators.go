package mutate

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// swapped are the operators that another takes the place of. The function that
// evaluates either is called after both operands, so it suits those that always
// evaluate both.
var swapped = map[token.Token]struct{ helper, other string }{
	token.LSS: {"mutantLessZZ", "<="},
	token.LEQ: {"mutantLessEqZZ", "<"},
	token.GTR: {"mutantGreaterZZ", ">="},
	token.GEQ: {"mutantGreaterEqZZ", ">"},
	token.ADD: {"mutantAddZZ", "-"},
	token.SUB: {"mutantSubZZ", "+"},
	token.MUL: {"mutantMulZZ", "/"},
	token.QUO: {"mutantDivZZ", "*"},
}

// binary mutates an expression of two operands. It reports whether to look at
// the operands.
func (w *finder) binary(e *ast.BinaryExpr) bool {
	if w.src.info.Types[e].Value != nil {
		return false // a constant
	}
	switch e.Op {
	case token.LAND, token.LOR:
		w.dropOperand(e, e.X)
		w.dropOperand(e, e.Y)
	case token.EQL, token.NEQ:
		w.negate(e)
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		w.negate(e)
		w.swap(e)
	case token.ADD, token.SUB, token.MUL, token.QUO:
		w.swap(e)
	default: // nothing to change
	}
	return true
}

// dropOperand makes the other operand decide. An operand that is a chain of the
// same operator is dropped piece by piece.
func (w *finder) dropOperand(e *ast.BinaryExpr, operand ast.Expr) {
	if sub, ok := ast.Unparen(operand).(*ast.BinaryExpr); ok && sub.Op == e.Op {
		return
	}
	if w.src.info.Types[operand].Value != nil {
		return
	}
	id := w.add(operand, "dropped: "+w.sourceOf(operand))
	if e.Op == token.LAND {
		w.wrap(operand, "(", fmt.Sprintf(" || mutantZZ(%d))", id))
	} else {
		w.wrap(operand, "(", fmt.Sprintf(" && !mutantZZ(%d))", id))
	}
}

func (w *finder) swap(e *ast.BinaryExpr) {
	s, ok := swapped[e.Op]
	if !ok || !w.isNumber(e.X) || !w.isNumber(e.Y) || isShift(e.X) || isShift(e.Y) {
		return
	}
	id := w.add(e, fmt.Sprintf("%s becomes %s: %s", e.Op, s.other, w.sourceOf(e)))
	w.wrap(e, fmt.Sprintf("%s(%d, ", s.helper, id), ")")
	w.edits.swap(w.src.fset.Position(e.OpPos).Offset, len(e.Op.String()), ",")
}

// isShift tells an operand whose type depends on the other, which a function's
// argument would not.
func isShift(e ast.Expr) bool {
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	return ok && (b.Op == token.SHL || b.Op == token.SHR)
}

func (w *finder) isNumber(e ast.Expr) bool {
	t := w.src.info.Types[e].Type
	if t == nil {
		return false
	}
	if _, ok := t.(*types.TypeParam); ok {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0
}

// statements lets each one that can be left out ask whether it is.
func (w *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		if w.removable(s) {
			id := w.add(s, "left out: "+w.sourceOf(s))
			w.wrap(s, fmt.Sprintf("if !mutantZZ(%d) { ", id), " }")
		}
	}
}

func (w *finder) removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return true // a receive
		}
		id, ok := call.Fun.(*ast.Ident)
		return !mentionsInvariant(call.Fun) && (!ok || id.Name != "panic")
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !allBlank(s.Lhs)
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	case *ast.ReturnStmt:
		return len(s.Results) == 0 && (w.result == nil || w.result.NumFields() == 0)
	default:
		return false
	}
}

func allBlank(list []ast.Expr) bool {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}
