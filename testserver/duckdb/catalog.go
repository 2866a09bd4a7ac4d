//go:build duckdb_arrow

package duckdb

import (
	"context"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/flightpool/flightpool/testserver/engine"
)

const (
	schemasSQL = `
SELECT database_name, schema_name
FROM duckdb_schemas()
WHERE database_name <> 'system'
ORDER BY ALL`

	tablesSQL = `
SELECT database_name, schema_name, table_name,
       CASE WHEN temporary THEN 'LOCAL TEMPORARY' ELSE 'TABLE' END AS table_type
FROM duckdb_tables()
UNION ALL
SELECT database_name, schema_name, view_name, 'VIEW'
FROM duckdb_views()
WHERE NOT internal
ORDER BY ALL`

	primaryKeysSQL = `
SELECT database_name, schema_name, table_name, unnest(constraint_column_names)
FROM duckdb_constraints()
WHERE constraint_type = 'PRIMARY KEY'`
)

// Schemas lists the schemas of all attached databases but DuckDB's own.
func (s *session) Schemas(ctx context.Context) ([]engine.Schema, error) {
	var all []engine.Schema
	err := s.each(ctx, schemasSQL, func(row []string) {
		all = append(all, engine.Schema{Catalog: row[0], Name: row[1]})
	})
	return all, err
}

// Tables lists tables and views, temporary ones included.
func (s *session) Tables(ctx context.Context) ([]engine.Table, error) {
	var all []engine.Table
	err := s.each(ctx, tablesSQL, func(row []string) {
		all = append(all, engine.Table{Catalog: row[0], Schema: row[1], Name: row[2], Type: row[3]})
	})
	if err != nil {
		return nil, err
	}
	keys := map[[3]string][]string{}
	err = s.each(ctx, primaryKeysSQL, func(row []string) {
		table := [3]string(row[:3])
		keys[table] = append(keys[table], row[3])
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		t := &all[i]
		t.PrimaryKey = keys[[3]string{t.Catalog, t.Schema, t.Name}]
		d, err := s.Describe(ctx, "FROM "+ident(t.Catalog)+"."+ident(t.Schema)+"."+ident(t.Name))
		switch {
		case ctx.Err() != nil:
			return nil, err
		case err != nil: // a view of something that is gone has no columns
			d.Rows = arrow.NewSchema(nil, nil)
		}
		t.Columns = d.Rows
	}
	return all, nil
}

// each calls f with the values of every row, as text.
func (s *session) each(ctx context.Context, sql string, f func(row []string)) error {
	r, err := s.Query(ctx, sql, nil)
	if err != nil {
		return err
	}
	defer r.Release()
	for r.Next() {
		eachRow(r.RecordBatch(), f)
	}
	return r.Err()
}

func eachRow(batch arrow.RecordBatch, f func(row []string)) {
	row := make([]string, batch.NumCols())
	for i := range int(batch.NumRows()) {
		for c, col := range batch.Columns() {
			// The text lies in DuckDB's memory, which goes with the batch.
			row[c] = strings.Clone(col.ValueStr(i))
		}
		f(row)
	}
}
