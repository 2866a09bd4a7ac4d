package main

import (
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
)

// allowed are the licences that what is released may depend on: they ask for no more
// than their text and notices.
var allowed = []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD", "Unlicense"}

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

// component is what an SBOM (CycloneDX) says of a module.
type component struct {
	Name, Version string
	Evidence      struct {
		Licenses []struct {
			License struct{ ID string }
		}
	}
}

// sbom writes what a module is made of, and returns what is wrong with the licences of it.
func sbom(ctx context.Context, tree string, o outside, dir, file string) (modules int, faults []string, err error) {
	if _, err := tool(ctx, tree, dir, o.env, "cyclonedx-gomod", "mod", "-json", "-licenses", "-output", file); err != nil {
		return 0, nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, nil, err
	}
	var bom struct{ Components []component }
	if err := json.Unmarshal(text, &bom); err != nil {
		return 0, nil, err
	}
	for _, c := range bom.Components {
		if fault := c.fault(); fault != "" {
			faults = append(faults, fault)
		}
	}
	return len(bom.Components), faults, nil
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

// vulnerabilities runs govulncheck with a database: the public one, or a folder's. Where it
// cannot be reached the answer says so, and is no error.
func vulnerabilities(ctx context.Context, tree, dir, db string, env []string) (string, error) {
	if host, public := strings.CutPrefix(db, "https://"); public {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err := d.DialContext(ctx, "tcp", host+":443")
		if err != nil {
			return "not checked: " + db + " cannot be reached", nil
		}
		if err := c.Close(); err != nil {
			return "", err
		}
	}
	if _, err := tool(ctx, tree, dir, env, "govulncheck", "-db", db, "./..."); err != nil {
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
	switch {
	case m.hasMain:
		return "a command", nil
	case len(tags) == 0:
		return "no tag yet", nil
	}
	old := filepath.Join(tmp, "old-"+strings.ReplaceAll(m.dir, "/", "-"))
	unpack := exec.CommandContext(ctx, "bash", "-c", `mkdir -p "$1" && git archive "$2" | tar -x -C "$1"`, "bash", old, tags[0])
	unpack.Dir = tree
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("git archive %s: %w: %s", tags[0], err, out)
	}
	before, after := old+".before", old+".after"
	for file, from := range map[string]string{before: old, after: tree} {
		if _, err := tool(ctx, tree, filepath.Join(from, m.dir), []string{"GOWORK=off"}, "apidiff", "-m", "-w", file, m.path); err != nil {
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
