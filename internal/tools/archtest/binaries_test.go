package archtest

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoProgramIsInTheTree: what go build leaves in a folder is easily committed with the rest.
func TestNoProgramIsInTheTree(t *testing.T) {
	root := os.DirFS("../../..")
	ignored := []string{"cmd/*/leasectl", "cmd/*/flightpool"} // and by .gitignore
	files := 0
	require.NoError(t, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden(entry.Name()) || name == "bin"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(name) == ".test" || slices.ContainsFunc(ignored, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }):
			return nil
		}
		files++
		require.False(t, isProgram(root, name), "%s is a program: remove it, or name it here and in .gitignore", name)
		return nil
	}))
	require.Greater(t, files, 100)
}

func isProgram(root fs.FS, name string) bool {
	f, err := root.Open(name)
	if err != nil { // removed since
		return false
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		return false
	}
	for _, of := range []string{"\x7fELF", "\xcf\xfa\xed\xfe", "MZ\x90\x00"} { // of Linux, macOS and Windows
		if string(magic) == of {
			return true
		}
	}
	return false
}
