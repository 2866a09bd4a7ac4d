package archtest

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	linkPattern = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	testPattern = regexp.MustCompile("^`?((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)(/[^`]*)?`?$")
)

// CheckLinks returns what is wrong with the links of the project's Markdown
// files, one line each. Every file or folder that is linked to must exist. The
// text of a link to a _test.go file must be the name of a test in it,
//
//	[TestX](../x_test.go) or [TestX/the case](../x_test.go)
//
// where the case is a string literal of that file, or the file's own name.
// Addresses with a scheme, links within a document and fenced code are left out.
func CheckLinks(root fs.FS) ([]string, error) {
	var faults []string
	err := eachDocument(root, func(name, text string) {
		faults = append(faults, checkDocument(root, name, text)...)
	})
	return faults, err
}

// eachDocument calls f with the name and the text of each Markdown file.
func eachDocument(root fs.FS, f func(name, text string)) error {
	return fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden(entry.Name()) || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		f(name, string(text))
		return err
	})
}

func checkDocument(root fs.FS, name, text string) (faults []string) {
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, link := range linkPattern.FindAllStringSubmatch(line, -1) {
			if fault := checkLink(root, path.Dir(name), link[1], link[2]); fault != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: %s", name, i+1, fault))
			}
		}
	}
	return faults
}

// checkLink returns what is wrong with a link in a document of a folder, or "".
func checkLink(root fs.FS, dir, text, target string) string {
	target, _, _ = strings.Cut(target, "#")
	if target == "" || strings.Contains(target, ":") {
		return ""
	}
	file := path.Join(dir, target)
	if _, err := fs.Stat(root, file); err != nil {
		return fmt.Sprintf("links to %s, which does not exist", target)
	}
	if !strings.HasSuffix(file, "_test.go") || strings.Trim(text, "`") == path.Base(file) {
		return ""
	}
	wanted := testPattern.FindStringSubmatch(text)
	if wanted == nil {
		return fmt.Sprintf("%q is neither a test nor the name of %s", text, target)
	}
	f, err := parse(root, file)
	if err != nil {
		return err.Error()
	}
	if !declares(f, wanted[1]) {
		return fmt.Sprintf("%s has no %s", target, wanted[1])
	}
	if name := strings.TrimPrefix(wanted[2], "/"); name != "" && !quotes(f, name) {
		return fmt.Sprintf("%s has no case %q", target, name)
	}
	return ""
}

// declares says whether a file declares a function of that name.
func declares(f file, name string) bool {
	return slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == name
	})
}

// quotes says whether a file has a string literal of that text.
func quotes(f file, text string) (found bool) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		found = found || ok && (lit.Value == `"`+text+`"` || lit.Value == "`"+text+"`")
		return !found
	})
	return found
}
