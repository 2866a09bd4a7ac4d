package main

import (
	"fmt"
	"go/format"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// block is a fenced Go block of a page.
type block struct {
	page string // from the project's root
	line int
	text string
	want string // what follows as a block of text: what a program prints
	said int    // how many lines the page says that it has, or 0
}

func (b block) where() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// program reports whether the block is a whole file.
func (b block) program() bool { return strings.HasPrefix(b.text, "package ") }

// test reports whether the block is a whole test.
func (b block) test() bool { return b.program() && strings.Contains(b.text, `"testing"`) }

// lines are those of the code: neither blank nor a comment alone.
func (b block) lines() (n int) {
	for line := range strings.Lines(b.text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// pages are the documents for users: README.md and the Markdown files of docs.
func pages(root fs.FS) ([]string, error) {
	found, err := fs.Glob(root, "docs/*.md")
	return append([]string{"README.md"}, found...), err
}

// blocks reads the Go blocks of a page. None is left out: a fence that begins with go and
// goes on is an error.
func blocks(root fs.FS, page string) ([]block, error) {
	text, err := fs.ReadFile(root, page)
	if err != nil {
		return nil, err
	}
	var found []block
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		lang, fence := strings.CutPrefix(lines[i], "```")
		if !fence {
			continue
		}
		end := slices.Index(lines[i+1:], "```")
		if end < 0 {
			return nil, fmt.Errorf("%s:%d: the block does not end", page, i+1)
		}
		body := strings.Join(lines[i+1:i+1+end], "\n") + "\n"
		switch last := len(found) - 1; {
		case strings.HasPrefix(lang, "go "):
			return nil, fmt.Errorf("%s:%d: write ```go alone, so that the block is compiled", page, i+1)
		case lang == "go":
			found = append(found, block{page: page, line: i + 2, text: body, said: saidBefore(lines[:i])})
		case lang == "text" && last >= 0 && found[last].program() && found[last].want == "":
			found[last].want = body
		}
		i += end + 1
	}
	return found, nil
}

var count = regexp.MustCompile(`\b([0-9]+) lines?\b`)

// saidBefore is the number of lines that the last line of text before a block speaks of.
func saidBefore(lines []string) int {
	for _, line := range slices.Backward(lines) {
		if line != "" {
			m := count.FindStringSubmatch(line)
			if m == nil || !strings.HasSuffix(line, ":") {
				return 0
			}
			n, _ := strconv.Atoi(m[1]) // the pattern takes digits only
			return n
		}
	}
	return 0
}

// all reads the blocks of all pages.
func all(root fs.FS) (found []block, err error) {
	names, err := pages(root)
	if err != nil {
		return nil, err
	}
	for _, page := range names {
		of, err := blocks(root, page)
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	return found, nil
}

// imports are the packages that a fragment may use without an import of its own.
var imports = map[string]string{}

func init() {
	for _, p := range []string{
		"context", "crypto/tls", "crypto/x509", "database/sql", "encoding/json", "errors", "fmt", "io", "log", "log/slog", "net", "net/http", "os", "os/signal",
		"slices", "strings", "sync", "syscall", "testing", "time", "expvar",
		Module + "/flightpool", Module + "/flightpool/adbcpool", Module + "/flightpool/oauth", Module + "/flightpool/poolz", Module + "/flightpool/registry",
		Module + "/flightpool/registry/kinds", Module + "/flightpool/flightotel", Module + "/flightpool/sqldriver",
		Module + "/lease", Module + "/lease/dynamolease", Module + "/lease/fleet", Module + "/lease/pglease", Module + "/reservoir", Module + "/reservoir/dsql", Module + "/session", Module + "/testserver",
		"github.com/apache/arrow-go/v18/arrow", "github.com/apache/arrow-go/v18/arrow/array", "github.com/apache/arrow-go/v18/arrow/memory",
		"github.com/apache/arrow-go/v18/arrow/flight/flightsql", "github.com/apache/arrow-adbc/go/adbc", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "go.opentelemetry.io/otel", "google.golang.org/grpc",
	} {
		name := path.Base(p)
		if name == "v5" {
			name = "pgx"
		}
		imports[name] = p
	}
}

// Module is the path of the root module.
const Module = "github.com/flightpool/flightpool"

// given are the variables that a fragment finds.
const given = "ctx context.Context, pool *flightpool.FlightSQLPool, target string, t *testing.T"

var selector = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)

// source is a file that compiles if the block does. A fragment of declarations is put into a
// package, one of statements into a function that returns an error.
func (b block) source() (string, error) {
	if b.program() {
		return b.text, nil
	}
	body, text := b.text, b.text
	if !declares(body) {
		body = fmt.Sprintf("func _(%s) error {\n{\n%s}\nreturn nil\n}\n", given, b.text)
		text += given
	}
	var head strings.Builder
	head.WriteString("package page\n")
	seen := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		if p := imports[m[1]]; p != "" && !seen[m[1]] && !strings.Contains(body, `"`+p+`"`) {
			seen[m[1]] = true
			fmt.Fprintf(&head, "import %s %q\n", m[1], p)
		}
	}
	src, err := format.Source([]byte(head.String() + body))
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", b.where(), err, body)
	}
	return string(src), nil
}

// declares reports whether a fragment begins with a declaration of a package's level.
func declares(body string) bool {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			return strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "func ")
		}
	}
	return false
}
