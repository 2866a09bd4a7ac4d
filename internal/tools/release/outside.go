package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// outside runs the go command where none of this tree is seen: the modules of ours come
// from the proxy of the packed ones, all else from the usual one.
type outside struct {
	version string
	lowest  string // the lowest Go of the tagged modules
	env     []string
}

// newOutside makes an empty module cache below a folder. What this machine has
// downloaded before is taken from its own cache, by way of a proxy too.
func newOutside(ctx context.Context, dir, proxy, version, lowest string) (outside, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "-json", "GOPROXY", "GOMODCACHE").Output()
	if err != nil {
		return outside{}, fmt.Errorf("go env: %w", err)
	}
	var env struct{ GOPROXY, GOMODCACHE string }
	if err := json.Unmarshal(out, &env); err != nil {
		return outside{}, err
	}
	cached := filepath.Join(env.GOMODCACHE, "cache", "download")
	return outside{version: version, lowest: lowest, env: append(os.Environ(),
		"GOWORK=off", "GO111MODULE=on", "GOENV=off", "GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE="+filepath.Join(dir, "cache"),
		"GOPROXY=file://"+proxy+",file://"+cached+","+env.GOPROXY,
		"GONOSUMDB="+root+","+root+"/*",
		"GOBIN="+filepath.Join(dir, "bin"),
	)}, nil
}

// run runs a command and returns what it printed; where it fails that is in the error.
func (o outside) run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, append(o.env, env...), &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// vet compiles and vets the packages and tests of a module with the lowest Go, where that can be had.
func (o outside) vet(ctx context.Context, dir string) error {
	env := []string{"GOFLAGS=-modcacherw -trimpath -tags=duckdb_arrow", "GOTOOLCHAIN=go" + o.lowest}
	if _, err := o.run(ctx, dir, env, "go", "version"); err != nil {
		return notRun(err.Error())
	}
	_, err := o.run(ctx, dir, env, "go", "vet", "./...")
	return err
}

// fresh makes a module of the lowest Go that requires nothing.
func (o outside) fresh(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "example.com/" + filepath.Base(dir)}, {"edit", "-go=" + o.lowest}} {
		if _, err := o.run(ctx, dir, nil, "go", append([]string{"mod"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// gotten says what modules cost those who get them.
type gotten struct {
	graph int   // modules in the graph
	used  int   // modules that are compiled
	bytes int64 // of these, as they are downloaded
}

func (g gotten) String() string {
	return fmt.Sprintf("%d modules in the graph, %d used, %s", g.graph, g.used, kB(g.bytes))
}

// get gets a module alone in a fresh one, and builds its packages there.
func (o outside) get(ctx context.Context, dir string, m packed) (g gotten, err error) {
	env := []string{"GOFLAGS=-modcacherw -trimpath -tags=duckdb_arrow"}
	if err := o.fresh(ctx, dir); err != nil {
		return g, err
	}
	for _, args := range [][]string{{"get", m.path + "/...@" + o.version}, {"build", m.path + "/..."}} {
		if _, err := o.run(ctx, dir, env, "go", args...); err != nil {
			return g, err
		}
	}
	return o.cost(ctx, dir, env, m.path+"/...")
}

// buildElsewhere builds the packages of a module that get has got, but for the tools of its development, where
// an int has 32 bits and the system is no Unix.
func (o outside) buildElsewhere(ctx context.Context, dir string, m packed) error {
	list, err := o.run(ctx, dir, nil, "go", "list", m.path+"/...")
	if err != nil {
		return err
	}
	packages := slices.DeleteFunc(strings.Fields(list), func(p string) bool { return strings.HasPrefix(p, m.path+"/internal/tools/") })
	_, err = o.run(ctx, dir, []string{"GOOS=windows", "GOARCH=386"}, "go", append([]string{"build"}, packages...)...)
	return err
}

// cost measures what packages take, with "-test" their tests too, seen from the module in a folder.
func (o outside) cost(ctx context.Context, dir string, env []string, packages ...string) (g gotten, err error) {
	list, err := o.run(ctx, dir, env, "go", "list", "-m", "all")
	if err != nil {
		return g, err
	}
	g.graph = strings.Count(list, "\n") - 1
	used, err := o.run(ctx, dir, env, "go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}"}, packages...)...)
	if err != nil {
		return g, err
	}
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(used))))
	modules = slices.DeleteFunc(modules, func(m string) bool { return strings.HasSuffix(m, "@") }) // the module itself
	if len(modules) == 0 {
		return g, nil
	}
	text, err := o.run(ctx, dir, env, "go", append([]string{"mod", "download", "-json"}, modules...)...)
	if err != nil {
		return g, err
	}
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); g.used++ {
		var at struct{ Zip string }
		if err := d.Decode(&at); err != nil {
			return g, err
		}
		info, err := os.Stat(at.Zip)
		if err != nil {
			return g, err
		}
		g.bytes += info.Size()
	}
	return g, nil
}
