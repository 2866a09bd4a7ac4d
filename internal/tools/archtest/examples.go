package archtest

import (
	"fmt"
	"go/doc"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// CheckExamples returns which entry points lack an Example with output, and which public
// packages are in neither list, one line each.
func CheckExamples(root fs.FS) ([]string, error) {
	files, err := walk(root)
	if err != nil {
		return nil, err
	}
	has, public := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if !f.isTest() {
			public[f.dir()] = public[f.dir()] || isPublic(f)
			continue
		}
		for _, e := range doc.Examples(f.ast) {
			if e.Output != "" {
				has[f.dir()+" "+e.Name] = true
			}
		}
	}
	var faults []string
	for _, dir := range slices.Sorted(maps.Keys(entryPoints)) {
		for _, name := range entryPoints[dir] {
			if !has[dir+" "+name] {
				faults = append(faults, fmt.Sprintf("%s: Example%s is missing, or has no output", dir, name))
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(public)) {
		if _, shown := withoutExample[dir]; public[dir] && !shown && entryPoints[dir] == nil {
			faults = append(faults, dir+": name its entry points in rules.go, or say there what shows it")
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(withoutExample)) {
		if !public[dir] || entryPoints[dir] != nil {
			faults = append(faults, dir+": is no public package without an Example")
		}
	}
	return faults, nil
}

// isPublic reports whether a file is of a package that other modules may import for what it
// does: no command, suite of tests, or example.
func isPublic(f file) bool {
	dir := f.dir()
	return f.ast.Name.Name != "main" && !within(dir, "examples") && !within(dir, "cmd") && !within(dir, "internal") &&
		!strings.Contains(dir, "/internal/") && !strings.HasSuffix(dir, "test") && dir != "lease/dynamolease/integration"
}
