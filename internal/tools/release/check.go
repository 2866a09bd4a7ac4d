package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// check is one run of all checks.
type check struct {
	tree, tmp, db, boms, version string
	quick, only                  bool

	failed, notRun int
}

// notRun says why a check could not be run. It is no failure, and nothing has been checked.
type notRun string

func (n notRun) Error() string { return string(n) }

func (c *check) run(ctx context.Context) error {
	begun := time.Now()
	all, err := modules(c.tree, c.version)
	if err != nil {
		return err
	}
	proxy := filepath.Join(c.tmp, "proxy")
	released, err := pack(c.tree, proxy, c.version, all)
	if err != nil {
		return err
	}
	o, err := newOutside(ctx, c.tmp, proxy, c.version, all[0].lowest)
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
	fmt.Printf("release-check: %d failed, %d not run, %d s\n", c.failed, c.notRun, int(time.Since(begun).Seconds()))
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
			if _, err := o.run(ctx, c.tmp, nil, "go", "install", m.path+"@"+c.version); err != nil {
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
	if m.dir == "." {
		c.line("go build for Windows of 32 bits", func() (string, error) { return "", o.buildElsewhere(ctx, dir, m) })
	}
	c.line("go vet with Go "+m.lowest, func() (string, error) { return "", o.vet(ctx, filepath.Join(c.tree, m.dir)) })
	if !m.hasMain {
		c.line("API", func() (string, error) { return apiChanges(ctx, c.tree, c.tmp, m.tagged) })
	}
	if c.quick {
		return
	}
	c.line("licences, SBOM", func() (string, error) { return c.sbom(ctx, o, m) })
	c.line("vulnerabilities", func() (string, error) {
		return vulnerabilities(ctx, c.tree, filepath.Join(c.tree, m.dir), c.db)
	})
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
		return o.run(ctx, c.tmp, []string{"GOFLAGS=-modcacherw -trimpath -tags=duckdb_arrow"}, "go", "install", root+"/testserver/duckdb/cmd/duckserver@"+c.version)
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
	if c.only {
		return nil
	}
	c.line("go vet of all with Go "+o.lowest, func() (string, error) {
		for _, p := range all {
			if err := o.vet(ctx, p.dir); err != nil {
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
	verdict, why := "ok", notRun("")
	if errors.As(err, &why) {
		verdict, said = "not run", string(why)
		c.notRun++
	} else if err != nil {
		verdict, said = "FAILED", err.Error()
		c.failed++
	}
	fmt.Printf("  %-30s %-7s %5.1f s  %s\n", what, verdict, time.Since(begun).Seconds(), said)
}

func kB(n int64) string { return fmt.Sprintf("%d kB", (n+512)/1024) }
