// Command docs writes the programs of the documents to a folder each, to be run elsewhere:
//
//	go run ./internal/tools/docs -to DIR
//
// Its test compiles every Go block of the documents, fragments too; `make release-check` runs
// the programs and the tests among them from modules outside of the tree, and compares what they
// print with the block of text that follows.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	to := flag.String("to", "", "folder to write to")
	flag.Parse()
	if err := write(*to); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// write makes a folder for each program, named after its page and line, with main.go or
// main_test.go, and want.
func write(to string) error {
	found, err := all(os.DirFS("."))
	if err != nil {
		return err
	}
	for _, b := range found {
		if !b.program() {
			continue
		}
		dir := filepath.Join(to, fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(b.page), ".md"), b.line))
		name := "main.go"
		if b.test() {
			name = "main_test.go"
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for file, text := range map[string]string{name: b.text, "want": b.want} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
