package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// The lines of docs/servers.md between which the table stands.
const (
	tableBegin = "<!-- table: made by make interop WRITE=1 -->"
	tableEnd   = "<!-- end of table -->"
)

// tableOf makes the table server by feature.
func tableOf(servers []string, columns map[string]column) string {
	var names []string
	for _, f := range features() {
		names = append(names, f.name)
	}
	names = append(names, rowGoroutines, rowDeadline, rowHalfRead, rowKilled, rowRestart)
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(servers, " | "), strings.Repeat("---|", len(servers)))
	for _, name := range names {
		fmt.Fprintf(&b, "| %s |", name)
		for _, server := range servers {
			fmt.Fprintf(&b, " %s |", columns[server][name])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// document compares the table of a document with the one that was measured, or
// writes it there.
func document(path, table string, write bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok1 := bytes.Cut(text, []byte(tableBegin+"\n"))
	old, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", path, tableBegin, tableEnd)
	}
	if string(old) == table {
		return nil
	}
	if !write {
		return fmt.Errorf("%s has another table; measured was\n%s", path, table)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%s%s\n%s%s%s", before, tableBegin, table, tableEnd, after), 0o644)
}
