// Command release checks what would be tagged, as its users get it, and writes the go.mod files
// of a tag.
//
//	go run .                 pack, get, build, run, audit; prints a table
//	go run . -write v0.1.0   go.mod and go.sum of the tagged modules, for the release's commit
//
// See docs/release.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	var c check
	write := flag.String("write", "", "write the go.mod and go.sum of this version's tag, and nothing else")
	flag.StringVar(&c.db, "db", "https://vuln.go.dev", "where the vulnerability database is: an address, or file:// and a folder of OSV files")
	flag.StringVar(&c.boms, "sbom", "", "folder for the SBOMs; none: they are removed after the check of the licences")
	flag.StringVar(&c.version, "version", "v0.999.0", "what the modules are packed, and named in SBOMs, as; no tag will ever be the default")
	flag.BoolVar(&c.only, "programs", false, "run the programs of the documents and nothing else")
	flag.BoolVar(&c.quick, "quick", false, "no SBOM, licences and vulnerabilities")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, *write); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, c check, write string) (err error) {
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	c.tree = strings.TrimSpace(string(top))
	if c.boms != "" {
		if c.boms, err = filepath.Abs(c.boms); err != nil {
			return err
		}
	}
	if c.tmp, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer func() {
		if gone := os.RemoveAll(c.tmp); err == nil {
			err = gone
		}
	}()
	if write != "" {
		return writeTag(c.tree, c.tmp, write)
	}
	return c.run(ctx)
}

// writeTag leaves in the tree what the tag of a version has.
func writeTag(tree, tmp, version string) error {
	all, err := modules(tree, version)
	if err != nil {
		return err
	}
	done, err := pack(tree, filepath.Join(tmp, "proxy"), version, all)
	if err != nil {
		return err
	}
	for _, p := range done {
		if err := p.writeModule(filepath.Join(tree, p.dir)); err != nil {
			return err
		}
		fmt.Println(strings.TrimPrefix(p.dir+"/"+version, "./"))
	}
	return nil
}
