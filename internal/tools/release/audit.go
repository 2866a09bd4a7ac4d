package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	modzip "golang.org/x/mod/zip"
)

// allowed are the licences that what is released may depend on: they ask for no more
// than their text and notices.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "Unlicense"}

// inTree is how the modules build where they stand, however this command was begun.
var inTree = []string{"GOWORK=off", "GOFLAGS=-tags=duckdb_arrow"}

// tool runs one of the tools that this module's go.mod names.
func tool(ctx context.Context, tree, dir string, env []string, name string, args ...string) (string, error) {
	path := exec.CommandContext(ctx, "go", "tool", "-n", name)
	path.Dir = filepath.Join(tree, "internal/tools/release")
	path.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	at, err := path.Output()
	if err != nil {
		return "", fmt.Errorf("go tool -n %s: %w", name, err)
	}
	c := exec.CommandContext(ctx, strings.TrimSpace(string(at)), args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return string(out), fmt.Errorf("%s: %w\n%s%s", name, err, out, failed.Stderr)
	}
	return string(out), err
}

// bom is what an SBOM (CycloneDX) says.
type bom struct {
	Metadata   struct{ Component component }
	Components []component
}

// component is what it says of a module.
type component struct {
	Name, Version string
	Evidence      struct {
		Licenses []struct {
			License struct{ ID string }
		}
	}
}

// sbom writes what a module as it is released is made of, and returns what is wrong with the licences of that.
func (c *check) sbom(ctx context.Context, o outside, m packed) (string, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(m.path, "github.com/"), "/", "-")
	dir, file := filepath.Join(c.tmp, "released", name), filepath.Join(cmp.Or(c.boms, filepath.Join(c.tmp, "sbom")), name+".cdx.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := modzip.Unzip(dir, m.version(c.version), m.zip); err != nil {
		return "", err
	}
	kind := "library"
	if m.hasMain {
		kind = "application"
	}
	if _, err := tool(ctx, c.tree, dir, o.env, "cyclonedx-gomod", "mod", "-json", "-licenses", "-type", kind, "-output", file); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text, b, err := versioned(text, m.path, c.version)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", err
	}
	var faults []string
	for _, part := range b.Components {
		if fault := part.fault(); fault != "" {
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		return "", errors.New(strings.Join(faults, "\n"))
	}
	return fmt.Sprintf("%d modules", len(b.Components)), nil
}

// versioned gives the module that an SBOM is of its version: the tool looks for that in git, where the tag is not yet.
func versioned(text []byte, path, version string) ([]byte, bom, error) {
	text = bytes.ReplaceAll(text, []byte("pkg:golang/"+path+"?"), []byte("pkg:golang/"+path+"@"+version+"?"))
	name := fmt.Appendf(nil, "%q: %q,", "name", path)
	text = bytes.Replace(text, name, fmt.Appendf(name, " %q: %q,", "version", version), 1)
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, b, err
	}
	for _, c := range append(b.Components, b.Metadata.Component) {
		if ours(c.Name) && c.Version != version {
			return nil, b, fmt.Errorf("the SBOM has %s %q, which is released as %s", c.Name, c.Version, version)
		}
	}
	return text, b, nil
}

// fault says what is wrong with the licence of a module, if anything.
func (c component) fault() string {
	var found []string
	for _, l := range c.Evidence.Licenses {
		if slices.Contains(allowed, l.License.ID) || ours(c.Name) {
			return ""
		}
		if strings.HasPrefix(c.Name, "golang.org/x/") && l.License.ID == "BSD-Source-Code" {
			return "" // what the tool takes Go's own BSD-3-Clause for
		}
		found = append(found, l.License.ID)
	}
	return fmt.Sprintf("%s %s: licence %s", c.Name, c.Version, strings.Join(append(found, ""), " "))
}

// vulnerabilities runs govulncheck with a database: the public one, or a folder's.
func vulnerabilities(ctx context.Context, tree, dir, db string) (string, error) {
	if host, public := strings.CutPrefix(db, "https://"); public {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err := d.DialContext(ctx, "tcp", host+":443")
		if err != nil {
			return "", notRun(db + " cannot be reached")
		}
		if err := c.Close(); err != nil {
			return "", err
		}
	}
	if _, err := tool(ctx, tree, dir, inTree, "govulncheck", "-db", db, "./..."); err != nil {
		return "", err
	}
	return "none known", nil
}

// apiChanges compares the exported names of a module with those of its last tag.
func apiChanges(ctx context.Context, tree, tmp string, m tagged) (string, error) {
	prefix := ""
	if m.dir != "." {
		prefix = m.dir + "/"
	}
	list := exec.CommandContext(ctx, "git", "tag", "--list", "--sort=-v:refname", "--merged", "HEAD", prefix+"v*")
	list.Dir = tree
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("git tag: %w", err)
	}
	tags := strings.Fields(string(out))
	if len(tags) == 0 {
		return "", notRun("no tag to compare with")
	}
	old := filepath.Join(tmp, "old-"+strings.ReplaceAll(m.dir, "/", "-"))
	unpack := exec.CommandContext(ctx, "bash", "-c", `mkdir -p "$1" && git archive "$2" | tar -x -C "$1"`, "bash", old, tags[0])
	unpack.Dir = tree
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("git archive %s: %w: %s", tags[0], err, out)
	}
	before, after := old+".before", old+".after"
	for file, from := range map[string]string{before: old, after: tree} {
		if _, err := tool(ctx, tree, filepath.Join(from, m.dir), inTree, "apidiff", "-m", "-w", file, m.path); err != nil {
			return "", err
		}
	}
	changes, err := tool(ctx, tree, tree, nil, "apidiff", "-m", "-incompatible", before, after)
	if err != nil {
		return "", err
	}
	if n := strings.Count(changes, "\n- "); n > 0 {
		return fmt.Sprintf("%d incompatible since %s:\n%s", n, tags[0], changes), nil
	}
	return "compatible with " + tags[0], nil
}
