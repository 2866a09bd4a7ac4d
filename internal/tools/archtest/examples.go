package archtest

import (
	"fmt"
	"go/doc"
	"io/fs"
	"maps"
	"slices"
)

// CheckExamples returns which entry points lack an Example with output, one line each.
func CheckExamples(root fs.FS) ([]string, error) {
	files, err := walk(root)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, f := range files {
		if !f.isTest() {
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
	return faults, nil
}
