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

// Mutants is a package whose mutants are all in one test binary.
type Mutants struct {
	Points []Point
	dir    string // of the package: its tests run there
	work   string // of the binary
}

func (m *Mutants) binary() string { return filepath.Join(m.work, "mutants.test") }

// Build compiles the tests of the package in dir with all its mutants, in the
// folder work.
func Build(dir, work, tags string) (*Mutants, error) {
	src, err := load(dir, tags)
	if err != nil {
		return nil, err
	}
	m := &Mutants{dir: src.dir, work: work}
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
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-tags", tags, "-overlay", filepath.Join(work, "overlay.json"), "-o", m.binary(), ".") //nolint:noctx // bounded by the go command
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the mutants of %s: %w\n%s", dir, err, out)
	}
	return m, nil
}
