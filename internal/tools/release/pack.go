package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// packed is a released module in a file-system proxy.
type packed struct {
	tagged
	sum  []byte // its go.sum as it is released
	zip  string
	size int64
	sums []string // the lines that others' go.sum have of it
}

// pack writes the modules to a folder that GOPROXY=file://… reads.
func pack(tree, proxy, version string, all []tagged) ([]packed, error) {
	var done []packed
	for _, m := range all {
		p, err := packOne(tree, proxy, version, m, done)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		done = append(done, p)
	}
	return done, nil
}

func packOne(tree, proxy, version string, m tagged, before []packed) (packed, error) {
	p := packed{tagged: m}
	old, err := os.ReadFile(filepath.Join(tree, m.dir, "go.sum"))
	if err != nil {
		return p, err
	}
	p.sum = releasedSum(old, m.needs, before)
	name, err := module.EscapePath(m.path)
	if err != nil {
		return p, err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(name), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return p, err
	}
	base := filepath.Join(dir, version)
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
	if err != nil {
		return p, err
	}
	for file, text := range map[string][]byte{
		filepath.Join(dir, "list"): []byte(version + "\n"), base + ".info": info, base + ".mod": m.mod,
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return p, err
		}
	}
	p.zip = base + ".zip"
	if err := p.write(tree, version); err != nil {
		return p, err
	}
	return p, p.hash(version)
}

// releasedSum adds to a go.sum what it takes to check the modules of ours that are required.
func releasedSum(old []byte, needs []string, before []packed) []byte {
	lines := strings.Split(strings.TrimSpace(string(old)), "\n")
	for _, b := range before {
		if slices.Contains(needs, b.path) {
			lines = append(lines, b.sums...)
		}
	}
	slices.Sort(lines)
	return []byte(strings.Join(slices.Compact(lines), "\n") + "\n")
}

// write makes the zip. A nested module without a licence gets that of the root, as
// the go command does it when it packs a tag.
func (p *packed) write(tree, version string) error {
	changed := p.zip + ".changed"
	if err := p.writeModule(changed); err != nil {
		return err
	}
	var files []modzip.File
	for _, f := range p.files {
		from := filepath.Join(tree, p.dir)
		if f == "go.mod" || f == "go.sum" {
			from = changed
		}
		files = append(files, packedFile{name: f, disk: filepath.Join(from, f)})
	}
	if !slices.Contains(p.files, "LICENSE") {
		files = append(files, packedFile{name: "LICENSE", disk: filepath.Join(tree, "LICENSE")})
	}
	out, err := os.Create(p.zip)
	if err != nil {
		return err
	}
	err = modzip.Create(out, p.version(version), files)
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

// writeModule writes go.mod and go.sum as they are released.
func (p *packed) writeModule(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), p.mod, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), p.sum, 0o644)
}

// tooLarge finds what is not source: a program that was built and committed, for one.
func (p *packed) tooLarge(tree string) error {
	for _, f := range p.files {
		info, err := os.Stat(filepath.Join(tree, p.dir, f))
		if err != nil {
			return err
		}
		if info.Size() > 1<<20 {
			return fmt.Errorf("%s has %s", f, kB(info.Size()))
		}
	}
	return nil
}

func (p *packed) hash(version string) error {
	info, err := os.Stat(p.zip)
	if err != nil {
		return err
	}
	p.size = info.Size()
	zipped, err := dirhash.HashZip(p.zip, dirhash.Hash1)
	if err != nil {
		return err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(p.mod)), nil
	})
	p.sums = []string{p.path + " " + version + " " + zipped, p.path + " " + version + "/go.mod " + mod}
	return err
}

// packedFile is a file of a zip.
type packedFile struct{ name, disk string }

func (f packedFile) Path() string { return f.name }

func (f packedFile) Lstat() (fs.FileInfo, error) { return os.Lstat(f.disk) }

func (f packedFile) Open() (io.ReadCloser, error) { return os.Open(f.disk) }
