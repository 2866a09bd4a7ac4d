package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var filePattern = regexp.MustCompile(`[a-z][a-z0-9_]*\.go\b`)

// CheckFileLists returns what is wrong with the lists of files in package
// comments, one line each: a doc.go with a section "# Files" names every file of
// its folder that is no test, but itself, and no other.
func CheckFileLists(root fs.FS) ([]string, error) {
	var faults []string
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden(entry.Name()):
			return fs.SkipDir
		case entry.Name() != "doc.go":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if _, list, found := strings.Cut(string(text), "// # Files\n"); found && err == nil {
			faults = append(faults, checkFileList(root, name, list)...)
		}
		return err
	})
	return faults, err
}

func checkFileList(root fs.FS, doc, list string) (faults []string) {
	named := filePattern.FindAllString(list, -1)
	there, _ := fs.Glob(root, path.Join(path.Dir(doc), "*.go"))
	for i := range there {
		there[i] = path.Base(there[i])
	}
	for _, name := range named {
		if !slices.Contains(there, name) {
			faults = append(faults, fmt.Sprintf("%s: there is no %s", doc, name))
		}
	}
	for _, name := range there {
		if name != "doc.go" && !strings.HasSuffix(name, "_test.go") && !slices.Contains(named, name) {
			faults = append(faults, fmt.Sprintf("%s: %s is missing", doc, name))
		}
	}
	return faults
}
