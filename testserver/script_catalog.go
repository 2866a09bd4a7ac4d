package testserver

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// scriptCatalog is the one catalog of a Script.
const scriptCatalog = "memory"

func (s *scriptSession) Schemas(context.Context) ([]Schema, error) {
	s.db.mu.Lock()
	names := slices.Sorted(maps.Keys(s.db.schemas))
	s.db.mu.Unlock()
	var all []Schema
	for _, name := range append(names, tempSchema) {
		all = append(all, Schema{Catalog: scriptCatalog, Name: name})
	}
	return all, nil
}

func (s *scriptSession) Tables(context.Context) ([]Table, error) {
	var all []Table
	view := s.view()
	for _, set := range []tables{view.tables, view.temp} {
		for _, t := range set {
			if t == nil {
				continue
			}
			info := Table{Catalog: scriptCatalog, Schema: t.schema, Name: t.name, Type: "TABLE", Columns: t.columns}
			if t.schema == tempSchema {
				info.Type = "LOCAL TEMPORARY"
			}
			if t.key >= 0 {
				info.PrimaryKey = []string{t.columns.Field(t.key).Name}
			}
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b Table) int {
		return strings.Compare(a.Schema+"."+a.Name, b.Schema+"."+b.Name)
	})
	return all, nil
}
