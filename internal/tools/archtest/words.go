package archtest

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"regexp"
	"strings"
)

// retiredList says which words are not used any more: a folder, the word, and
// what is said instead. In the folder "." it is any text, comments of the code
// and documents; for "texts" it is what programs say, strings of several words outside of
// tests; elsewhere it is the names that Go files in the folder declare.
//
//go:embed retired.txt
var retiredList string

// retired is a word that is not used any more.
type retired struct {
	dir, word, instead string
	prose, said        *regexp.Regexp
}

func parseRetired(list string) (words []retired, err error) {
	for i, line := range strings.Split(list, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("retired.txt:%d: want a folder, a word and what is said instead", i+1)
		}
		w := retired{dir: fields[0], word: fields[1], instead: strings.Join(fields[2:], " ")}
		switch word := regexp.MustCompile(`(?i)\b` + regexp.QuoteMeta(w.word) + `\b`); w.dir {
		case ".":
			w.prose = word
		case "texts":
			w.said = word
		}
		words = append(words, w)
	}
	return words, nil
}

// CheckWords returns where retired words are used, one line each.
func CheckWords(root fs.FS, list string) ([]string, error) {
	words, err := parseRetired(list)
	if err != nil {
		return nil, err
	}
	files, err := walk(root)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, f := range files {
		faults = append(faults, wordsInCode(f, words)...)
	}
	err = eachDocument(root, func(name, text string) {
		for i, line := range strings.Split(text, "\n") {
			faults = append(faults, wordsInText(fmt.Sprintf("%s:%d", name, i+1), line, words)...)
		}
	})
	return faults, err
}

// wordsInCode looks at the names that a file declares, and at its comments.
func wordsInCode(f file, words []retired) (faults []string) {
	for _, id := range declaredIn(f) {
		for _, w := range words {
			if id.Name == w.word && w.prose == nil && within(f.dir(), w.dir) {
				faults = append(faults, fmt.Sprintf("%s: %s is retired, use %s", f.fset.Position(id.Pos()), id.Name, w.instead))
			}
		}
	}
	if !f.isTest() {
		faults = append(faults, wordsInStrings(f, words)...)
	}
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			faults = append(faults, wordsInText(f.fset.Position(c.Pos()).String(), c.Text, words)...)
		}
	}
	return faults
}

// wordsInStrings looks at the strings of several words.
func wordsInStrings(f file, words []retired) (faults []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || !strings.Contains(lit.Value, " ") {
			return true
		}
		for _, w := range words {
			if w.said != nil && w.said.MatchString(lit.Value) {
				faults = append(faults, fmt.Sprintf("%s: %q is retired in what programs say, use %s", f.fset.Position(lit.Pos()), w.word, w.instead))
			}
		}
		return true
	})
	return faults
}

// declaredIn are the names that a file declares anywhere.
func declaredIn(f file) (names []*ast.Ident) {
	define := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if id, ok := e.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				define(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				define(n.Key, n.Value)
			}
		}
		return true
	})
	return names
}

func wordsInText(at, text string, words []retired) (faults []string) {
	for _, w := range words {
		if w.prose != nil && w.prose.MatchString(text) {
			faults = append(faults, fmt.Sprintf("%s: %q is retired, use %s", at, w.word, w.instead))
		}
	}
	return faults
}
