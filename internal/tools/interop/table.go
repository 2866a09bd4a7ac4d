package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The lines of docs/servers.md between which the table stands.
const (
	tableBegin = "<!-- table: made by make interop WRITE=1 -->"
	tableEnd   = "<!-- end of table -->"
)

// column is what the table says of one server.
type column map[string]cell

// table is a column for each server.
type table map[string]column

// rowNames are the rows of the table, in their order.
func rowNames() []string {
	var names []string
	for _, f := range features() {
		names = append(names, f.name)
	}
	return append(names, rowGoroutines, rowParallelParams, rowDeadline, rowHalfRead, rowKilled, rowRestart)
}

// markdown prints the table: the servers in the order of products.
func (t table) markdown() string {
	var servers []string
	for _, p := range products() {
		if t[p.name] != nil {
			servers = append(servers, p.name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|%s\n", strings.Join(servers, " | "), strings.Repeat("---|", len(servers)))
	for _, name := range rowNames() {
		fmt.Fprintf(&b, "| %s |", name)
		for _, server := range servers {
			fmt.Fprintf(&b, " %s |", cmp.Or(t[server][name], unknown))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// unknown stands in the table where nothing has been measured yet.
const unknown cell = "?"

// parseTable reads what markdown has printed.
func parseTable(text string) table {
	t := table{}
	var servers []string
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case i == 0:
			servers = cells
			for _, server := range servers {
				t[server] = column{}
			}
		case i > 1 && len(cells) == len(servers)+1:
			for j, server := range servers {
				t[server][cells[0]] = cell(cells[j+1])
			}
		}
	}
	return t
}

// differences tells where measured is not what the document has.
func (t table) differences(measured table) []string {
	var all []string
	for server, cells := range measured {
		for _, row := range rowNames() {
			if was, is := cmp.Or(t[server][row], unknown), cmp.Or(cells[row], unknown); was != is {
				all = append(all, fmt.Sprintf("%s, %s: %q, measured %q", server, row, was, is))
			}
		}
	}
	slices.Sort(all)
	return all
}

// document compares the columns that were measured with those of a document,
// or writes them there. The columns of other servers stay as they are.
func document(path string, measured table, write bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok1 := bytes.Cut(text, []byte(tableBegin+"\n"))
	old, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", path, tableBegin, tableEnd)
	}
	t := parseTable(string(old))
	different := t.differences(measured)
	if !write {
		if len(different) > 0 {
			return fmt.Errorf("%s has something else:\n        %s", path, strings.Join(different, "\n        "))
		}
		return nil
	}
	for server, cells := range measured {
		t[server] = cells
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%s%s\n%s%s%s", before, tableBegin, t.markdown(), tableEnd, after), 0o644)
}
