package script

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/flightpool/flightpool/testserver/engine"
)

// namespace is where a table is: a schema of a catalog.
type namespace struct{ catalog, schema string }

// mainSchema is the schema that every catalog has.
const mainSchema = engine.HomeSchema

var (
	homeNamespace = namespace{engine.HomeCatalog, mainSchema} // where sessions begin
	tempNamespace = namespace{"temp", mainSchema}             // of temporary tables, of each session its own
)

func (n namespace) compare(o namespace) int {
	return cmp.Or(strings.Compare(n.catalog, o.catalog), strings.Compare(n.schema, o.schema))
}

func (t *table) fullName() string { return t.in.catalog + "." + t.in.schema + "." + t.name }

// Attach adds an empty catalog. A second of one name changes nothing.
func (s *Engine) Attach(_ context.Context, catalog string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas[namespace{catalog, mainSchema}] = struct{}{}
	return nil
}

func (s *Engine) has(n namespace) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.schemas[n]
	return known
}

// namespace finds what a name of one or two parts stands for: a schema of the
// current catalog, a catalog, or a schema of a catalog.
func (s *session) namespace(name string) (namespace, error) {
	catalog, schema, two := strings.Cut(name, ".")
	candidates := []namespace{{s.at.catalog, name}, {name, mainSchema}}
	if two {
		candidates = []namespace{{catalog, schema}}
	}
	for _, n := range candidates {
		if n == tempNamespace || s.db.has(n) {
			return n, nil
		}
	}
	return namespace{}, catalogError("catalog error: schema %s does not exist", name)
}

func (s *session) use(name string) error {
	n, err := s.namespace(name)
	if err == nil {
		s.at = n
	}
	return err
}

func (s *session) createSchema(name string) {
	n := namespace{s.at.catalog, name}
	if catalog, schema, two := strings.Cut(name, "."); two {
		n = namespace{catalog, schema}
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.schemas[n] = struct{}{}
}

// resolve tells where a table is, or is to be.
func (s *session) resolve(name string) (in namespace, table string, err error) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return s.at, name, nil
	}
	in, err = s.namespace(name[:dot])
	return in, name[dot+1:], err
}

// find looks a table up, temporary ones first.
func (s *session) find(v *view, name string) (*table, error) {
	if t := v.temp[name]; t != nil {
		return t, nil
	}
	in, short, err := s.resolve(name)
	if err == nil {
		t := v.tables[(&table{in: in, name: short}).fullName()]
		if in == tempNamespace {
			t = v.temp[short]
		}
		if t != nil {
			return t, nil
		}
	}
	return nil, catalogError("catalog error: table with name %s does not exist", name)
}

// place gives a new table its name, and tells which it would replace.
func (s *session) place(v *view, t *table, name string, temp bool) (there *table, err error) {
	if t.in, t.name, err = s.resolve(name); err != nil {
		return nil, err
	}
	if temp || t.in == tempNamespace {
		t.in = tempNamespace
		return v.temp[t.name], nil
	}
	return v.tables[t.fullName()], nil
}

func (s *session) Schemas(context.Context) ([]engine.Schema, error) {
	s.db.mu.Lock()
	names := make([]namespace, 0, len(s.db.schemas)+1)
	for n := range s.db.schemas {
		names = append(names, n)
	}
	s.db.mu.Unlock()
	slices.SortFunc(names, namespace.compare)
	all := make([]engine.Schema, 0, len(names)+1)
	for _, n := range append(names, tempNamespace) {
		all = append(all, engine.Schema{Catalog: n.catalog, Name: n.schema})
	}
	return all, nil
}

func (s *session) Tables(context.Context) ([]engine.Table, error) {
	var all []engine.Table
	view := s.view()
	for _, set := range []tables{view.tables, view.temp} {
		for _, t := range set {
			if t == nil {
				continue
			}
			info := engine.Table{Catalog: t.in.catalog, Schema: t.in.schema, Name: t.name, Type: "TABLE", Columns: t.columns}
			if t.in == tempNamespace {
				info.Type = "LOCAL TEMPORARY"
			}
			if t.key >= 0 {
				info.PrimaryKey = []string{t.columns.Field(t.key).Name}
			}
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b engine.Table) int {
		return strings.Compare(a.Catalog+"."+a.Schema+"."+a.Name, b.Catalog+"."+b.Schema+"."+b.Name)
	})
	return all, nil
}
