package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const servers = "../../../docs/servers.md"

// The document has a cell for every server and every row.
func TestTheDocumentsTableIsWhole(t *testing.T) {
	text, err := os.ReadFile(servers)
	if err != nil {
		t.Fatal(err)
	}
	in := tableIn(t, text)
	for _, p := range products() {
		for _, row := range rowNames() {
			if c := in[p.name][row]; c == "" || c == unknown {
				t.Errorf("%s, %s: no cell", p.name, row)
			}
		}
	}
	if got := in.markdown(); !strings.Contains(string(text), tableBegin+"\n"+got+tableEnd) {
		t.Errorf("the table is printed as\n%s", got)
	}
}

func TestARunIsComparedWithItsColumnsAndWritesOnlyThose(t *testing.T) {
	text, err := os.ReadFile(servers)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "servers.md")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	measured := column{}
	for _, row := range rowNames() {
		measured[row] = works
	}
	const name = "Sail" // of whose catalogue the document says "unsupported"
	if err := document(path, table{name: measured}, false); err == nil || !strings.Contains(err.Error(), name+", catalogs") {
		t.Errorf("a difference gives %v", err)
	}
	if err := document(path, table{name: measured}, true); err != nil {
		t.Fatal(err)
	}
	if err := document(path, table{name: measured}, false); err != nil {
		t.Errorf("what was written is compared as %v", err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after := tableIn(t, text), tableIn(t, written)
	after[name] = before[name]
	if got, want := after.markdown(), before.markdown(); got != want {
		t.Errorf("the other columns were\n%s\nand are\n%s", want, got)
	}
}

func tableIn(t *testing.T, document []byte) table {
	t.Helper()
	_, rest, ok1 := strings.Cut(string(document), tableBegin+"\n")
	text, _, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatal("no table in the document")
	}
	return parseTable(text)
}

// The pool has to do what another client does, and a server that accepts a
// change without having it afterwards is not said to work.
func TestJudge(t *testing.T) {
	f := feature{name: "ingestion", want: stores(3)}
	done, empty := outcome{client: "ADBC", text: stores(3)}, outcome{client: "ADBC", text: stores(0)}
	failed := outcome{client: "the pool", err: os.ErrInvalid}
	for name, c := range map[string]struct {
		pool   outcome
		others []outcome
		want   cell
		fails  bool
	}{
		"all do it":                       {done, []outcome{done, done}, works, false},
		"the pool alone does it":          {done, []outcome{failed, failed}, works, false},
		"one does it, the pool fails":     {failed, []outcome{failed, done}, "", true},
		"one has other rows":              {done, []outcome{done, empty}, "", true},
		"accepted, and nothing is stored": {empty, []outcome{empty, failed}, "accepted: (0) rows stored", false},
		"an error without a fault":        {failed, []outcome{failed}, "", true},
	} {
		got, err := judge(f, c.pool, c.others)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
