package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestWhatIsTaggedNamesRealVersionsReplacesNothingAndHasOneGo(t *testing.T) {
	all, err := modules("../../..", "v0.9.0")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, m := range all {
		dirs = append(dirs, m.dir)
		f, err := modfile.Parse("go.mod", m.mod, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Replace) > 0 {
			t.Errorf("%s replaces %v", m.dir, f.Replace[0].Old.Path)
		}
		for _, r := range f.Require {
			if ours(r.Mod.Path) && r.Mod.Version != "v0.9.0" {
				t.Errorf("%s requires %v", m.dir, r.Mod)
			}
		}
		if m.lowest != all[0].lowest {
			t.Errorf("%s wants Go %s, and the root module %s", m.dir, m.lowest, all[0].lowest)
		}
		for _, file := range m.files {
			if strings.HasPrefix(file, "testserver/duckdb/") || strings.HasPrefix(file, "examples/dsql/") {
				t.Errorf("%s has %s, which is another module's", m.dir, file)
			}
		}
	}
	if dirs[0] != "." || !slices.Contains(dirs, "testserver/duckdb") || !slices.Contains(dirs, "cmd/leasectl") || !slices.Contains(dirs, "flightpool/flightotel") || slices.Contains(dirs, "examples") {
		t.Errorf("tagged are %v", dirs)
	}
}

func TestAModuleThatReplacesAnotherMakersIsRefused(t *testing.T) {
	_, err := releasedMod([]byte("module "+root+"/x\nreplace example.com/a => ../a\n"), "v0.9.0")
	if err == nil || !strings.Contains(err.Error(), "example.com/a") {
		t.Error(err)
	}
}

func TestThePackedModulesKnowEachOthersSums(t *testing.T) {
	all, err := modules("../../..", "v0.9.0")
	if err != nil {
		t.Fatal(err)
	}
	done, err := pack("../../..", t.TempDir(), "v0.9.0", all)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range done {
		if err := p.tooLarge("../../.."); err != nil {
			t.Errorf("%s: %v", p.dir, err)
		}
		for _, need := range p.needs {
			if n := strings.Count(string(p.sum), need+" v0.9.0"); n != 2 {
				t.Errorf("go.sum of %s has %d lines of %s", p.dir, n, need)
			}
		}
	}
}

func TestALicenceThatIsNotAllowedIsFound(t *testing.T) {
	var c component
	c.Name, c.Version = "example.com/a", "v1.0.0"
	if !strings.Contains(c.fault(), "example.com/a") {
		t.Error("no licence is one")
	}
	c.Evidence.Licenses = append(c.Evidence.Licenses, struct {
		License struct{ ID string }
	}{struct{ ID string }{"GPL-3.0-only"}})
	if !strings.Contains(c.fault(), "GPL-3.0-only") {
		t.Error(c.fault())
	}
	c.Evidence.Licenses[0].License.ID = "MIT"
	if c.fault() != "" {
		t.Error(c.fault())
	}
}

func TestAProgramIsReadWithWhatItNeeds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a-1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"main_test.go": "package a\n\nimport _ \"" + root + "/testserver/duckdb\"\nimport _ \"fmt\"\n", "want": "x\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := programs(filepath.Dir(dir))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	p := all[0]
	if p.file != "main_test.go" || !slices.Equal(p.mods, []string{root + "/testserver/duckdb"}) || p.tags == "" || p.want != "x\n" {
		t.Error(p)
	}
}

func TestAnSBOMHasTheVersionOfWhatIsReleased(t *testing.T) {
	named := func(path string) string {
		return `"purl": "pkg:golang/` + path + `?type=module", "name": "` + path + `", "type": "library"`
	}
	for name, part := range map[string]struct{ components, fault string }{
		"alone":                  {`{"name": "example.com/a", "version": "v1.0.0"}`, ""},
		"with another's":         {`{"name": "` + root + `/x", "version": "v0.9.0"}`, ""},
		"with one of no version": {`{"name": "` + root + `/x"}`, root + "/x"},
	} {
		text, b, err := versioned([]byte(`{"metadata": {"component": {`+named(root)+`}}, "components": [`+part.components+`]}`), root, "v0.9.0")
		if part.fault != "" {
			if err == nil || !strings.Contains(err.Error(), part.fault) {
				t.Error(name, err)
			}
			continue
		}
		if err != nil || b.Metadata.Component.Version != "v0.9.0" || !strings.Contains(string(text), `"pkg:golang/`+root+`@v0.9.0?type=module"`) {
			t.Error(name, string(text), err)
		}
	}
}

func TestWhatCouldNotRunIsNeitherWellNorAFault(t *testing.T) {
	var c check
	for _, err := range []error{nil, notRun("no tag"), errors.New("broken")} {
		c.line("a check", func() (string, error) { return "", err })
	}
	if c.failed != 1 || c.notRun != 1 {
		t.Error(c.failed, c.notRun)
	}
	_, err := vulnerabilities(t.Context(), "", "", "https://nowhere.invalid")
	if !errors.As(err, new(notRun)) {
		t.Error(err)
	}
}
