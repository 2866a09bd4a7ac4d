package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// check is one run of all checks.
type check struct {
	tree, tmp, db, boms, oldest string
	quick, only                 bool

	failed int
}

// checked is the version that the packed modules have: no tag will ever be that.
const checked = "v0.999.0"

func (c *check) run(ctx context.Context) error {
	begun := time.Now()
	all, err := modules(c.tree, checked)
	if err != nil {
		return err
	}
	proxy := filepath.Join(c.tmp, "proxy")
	released, err := pack(c.tree, proxy, checked, all)
	if err != nil {
		return err
	}
	o, err := newOutside(ctx, c.tmp, proxy, checked)
	if err != nil {
		return err
	}
	for _, m := range released {
		fmt.Printf("%s: %d files, %s\n", m.path, len(m.files), kB(m.size))
		if !c.only {
			c.module(ctx, o, m)
		}
	}
	if err := c.programs(ctx, o); err != nil {
		return err
	}
	fmt.Printf("release-check: %d failed, %d s\n", c.failed, int(time.Since(begun).Seconds()))
	if c.failed > 0 {
		return fmt.Errorf("%d checks failed", c.failed)
	}
	return nil
}

// module checks one module.
func (c *check) module(ctx context.Context, o outside, m packed) {
	c.line("no file above 1 MB", func() (string, error) { return "", m.tooLarge(c.tree) })
	dir := filepath.Join(c.tmp, "get", strings.ReplaceAll(m.dir, "/", "-")+"-alone")
	if m.hasMain {
		c.line("go install, -h", func() (string, error) {
			if _, err := o.run(ctx, c.tmp, nil, "go", "install", m.path+"@"+checked); err != nil {
				return "", err
			}
			_, err := o.run(ctx, c.tmp, nil, filepath.Join(c.tmp, "bin", path.Base(m.path)), "-h")
			return "", err
		})
	} else {
		c.line("go get, build", func() (string, error) {
			g, err := o.get(ctx, dir, m)
			return g.String(), err
		})
	}
	c.line("API", func() (string, error) { return apiChanges(ctx, c.tree, c.tmp, m.tagged) })
	if c.quick {
		return
	}
	c.line("licences, SBOM", func() (string, error) {
		file, err := c.bom(m)
		if err != nil {
			return "", err
		}
		n, faults, err := sbom(ctx, c.tree, o, filepath.Join(c.tree, m.dir), file)
		if err == nil && len(faults) > 0 {
			err = fmt.Errorf("%s", strings.Join(faults, "\n"))
		}
		return fmt.Sprintf("%d modules", n), err
	})
	c.line("vulnerabilities", func() (string, error) {
		return vulnerabilities(ctx, c.tree, filepath.Join(c.tree, m.dir), c.db, []string{"GOWORK=off", "GOFLAGS=-tags=duckdb_arrow"})
	})
}

// bom is where the SBOM of a module goes.
func (c *check) bom(m packed) (string, error) {
	dir := c.boms
	if dir == "" {
		dir = filepath.Join(c.tmp, "sbom")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(m.path, "github.com/"), "/", "-")+".cdx.json"), os.MkdirAll(dir, 0o755)
}

// programs runs each program of the documents from a module of its own.
func (c *check) programs(ctx context.Context, o outside) error {
	dir := filepath.Join(c.tmp, "programs")
	tree := o
	tree.env = append(os.Environ(), "GOWORK=off")
	if _, err := tree.run(ctx, c.tree, nil, "go", "run", "./internal/tools/docs", "-to", dir); err != nil {
		return err
	}
	all, err := programs(dir)
	if err != nil {
		return err
	}
	c.line("go install duckserver", func() (string, error) {
		return o.run(ctx, c.tmp, []string{"GOFLAGS=-modcacherw -trimpath -tags=duckdb_arrow"}, "go", "install", root+"/testserver/duckdb/cmd/duckserver@"+checked)
	})
	server, err := startServer(ctx, filepath.Join(c.tmp, "bin", "duckserver"))
	if err != nil {
		return err
	}
	defer server.stop()
	o.env = append(o.env, "FLIGHT_URL="+server.url)
	fmt.Println("programs of the documents, each in a module of its own:")
	for _, p := range all {
		c.line(p.name, func() (string, error) {
			cost, err := p.run(ctx, o)
			return strings.ReplaceAll(strings.Join(p.mods, " "), root+"/", "") + ": " + cost.String(), err
		})
	}
	if c.oldest == "" {
		return nil
	}
	c.line("all of them with "+c.oldest, func() (string, error) {
		for _, p := range all {
			env := []string{"GOFLAGS=-modcacherw -trimpath" + p.tags, "GOTOOLCHAIN=" + c.oldest}
			if _, err := o.run(ctx, p.dir, env, "go", "vet", "."); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	return nil
}

// line prints a row of the table.
func (c *check) line(what string, f func() (string, error)) {
	begun := time.Now()
	said, err := f()
	verdict := "ok"
	if err != nil {
		verdict, said = "FAILED", err.Error()
		c.failed++
	}
	fmt.Printf("  %-34s %-6s %5.1f s  %s\n", what, verdict, time.Since(begun).Seconds(), said)
}

func kB(n int64) string { return fmt.Sprintf("%d kB", (n+512)/1024) }
