package mutate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed switch.go.txt
var switchText string

// Mutants is a package whose mutants are all in each of its test binaries.
type Mutants struct {
	Points   []Point
	work     string   // where the binaries are
	binaries []binary // of the package's own tests, then those of the packages that call it
}

// binary is the tests of a package.
type binary struct{ path, dir string } // dir is the package's: its tests run there

// Build compiles the tests of the package in dir, and those of its callers, with all
// its mutants, in the folder work.
func Build(dir, work, tags string, callers ...string) (*Mutants, error) {
	src, err := load(dir, tags)
	if err != nil {
		return nil, err
	}
	m := &Mutants{work: work}
	overlay := map[string]string{}
	next := 0
	for i, f := range src.files {
		text, points := src.instrument(f, &next)
		m.Points = append(m.Points, points...)
		changed := filepath.Join(work, strconv.Itoa(i)+".go")
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return nil, err
		}
		overlay[src.path[f]] = changed
	}
	text := strings.NewReplacer("PACKAGE", src.name, "COUNT", strconv.Itoa(next)).Replace(switchText)
	if err := os.WriteFile(filepath.Join(work, "switch.go"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	overlay[filepath.Join(src.dir, "zz_mutants.go")] = filepath.Join(work, "switch.go")
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(work, "overlay.json"), list, 0o600); err != nil {
		return nil, err
	}
	for i, tested := range append([]string{dir}, callers...) {
		b := binary{path: filepath.Join(work, strconv.Itoa(i)+".test"), dir: tested}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-tags", tags, "-overlay", filepath.Join(work, "overlay.json"), "-o", b.path, ".") //nolint:noctx // bounded by the go command
		cmd.Dir = tested
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the mutants of %s into the tests of %s: %w\n%s", dir, tested, err, out)
		}
		m.binaries = append(m.binaries, b)
	}
	return m, nil
}
