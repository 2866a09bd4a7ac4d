package adbcconn

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/session"
)

// Metadata is part of session.Conn. ADBC's tree of objects is flattened into
// the tables of Flight SQL. Keys, SqlInfo and type info it does not have, or
// drivers leave them out without a word.
func (c *Foreign) Metadata(ctx context.Context, req session.MetadataRequest, _ session.Call) (session.Stream, error) {
	t, err := c.begin(ctx, req.Kind.String())
	if err != nil {
		return nil, err
	}
	switch req.Kind {
	case session.MetadataCatalogs, session.MetadataSchemas, session.MetadataTables, session.MetadataTableTypes:
		return t.stream(func(ctx context.Context) (*foreignRows, error) { return c.catalogue(ctx, req) })
	case session.MetadataPrimaryKeys, session.MetadataImportedKeys, session.MetadataExportedKeys:
		if req.Table == nil || *req.Table == "" {
			t.end()
			return nil, t.usage(errors.New("a table name is needed"))
		}
	case session.MetadataSQLInfo, session.MetadataTypeInfo:
	}
	t.end()
	return nil, c.refused(ctx, t.op, fmt.Sprintf("ADBC has no call for %v", req.Kind))
}

func (c *Foreign) catalogue(ctx context.Context, req session.MetadataRequest) (*foreignRows, error) {
	nothing := func() {}
	if req.Kind == session.MetadataTableTypes {
		reader, err := c.cn.GetTableTypes(ctx)
		if err != nil {
			return nil, err
		}
		return c.opened(reader, nothing), nil
	}
	depth := map[session.MetadataKind]adbc.ObjectDepth{
		session.MetadataCatalogs: adbc.ObjectDepthCatalogs,
		session.MetadataSchemas:  adbc.ObjectDepthDBSchemas,
		session.MetadataTables:   adbc.ObjectDepthTables,
	}[req.Kind]
	tree, err := c.cn.GetObjects(ctx, depth, req.Catalog, req.Schema, req.Table, nil, req.TableTypes)
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	flat := newFlat(req)
	defer flat.Release()
	for tree.Next() {
		if err := flat.add(ctx, c.cn, tree.RecordBatch()); err != nil {
			return nil, err
		}
	}
	if err := tree.Err(); err != nil {
		return nil, err
	}
	batch := flat.NewRecordBatch()
	defer batch.Release()
	reader, err := array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
	if err != nil {
		return nil, err
	}
	return c.opened(reader, nothing), nil
}

// flat builds a catalogue result of Flight SQL from ADBC's tree.
type flat struct {
	*array.RecordBuilder
	req session.MetadataRequest
}

func newFlat(req session.MetadataRequest) flat {
	schema := schema_ref.Catalogs
	switch {
	case req.Kind == session.MetadataSchemas:
		schema = schema_ref.DBSchemas
	case req.Kind == session.MetadataTables && req.IncludeColumns:
		schema = schema_ref.TablesWithIncludedSchema
	case req.Kind == session.MetadataTables:
		schema = schema_ref.Tables
	}
	return flat{array.NewRecordBuilder(memory.DefaultAllocator, schema), req}
}

// add walks one batch of the tree.
func (f flat) add(ctx context.Context, cn adbc.Connection, batch arrow.RecordBatch) error {
	catalogs, ok1 := batch.Column(0).(*array.String)
	schemas, ok2 := batch.Column(1).(*array.List)
	if !ok1 || !ok2 {
		return fmt.Errorf("the driver's objects are not as ADBC says: %v", batch.Schema())
	}
	for i := range catalogs.Len() {
		catalog := optional(catalogs, i)
		if want := f.req.Catalog; want != nil && (catalog == nil || *catalog != *want) {
			continue
		}
		if f.req.Kind == session.MetadataCatalogs {
			if catalog != nil {
				f.row(catalog)
			}
			continue
		}
		if err := f.addSchemas(ctx, cn, catalog, schemas, i); err != nil {
			return err
		}
	}
	return nil
}

func (f flat) addSchemas(ctx context.Context, cn adbc.Connection, catalog *string, schemas *array.List, i int) error {
	if schemas.IsNull(i) {
		return nil
	}
	items, ok := schemas.ListValues().(*array.Struct)
	if !ok {
		return fmt.Errorf("the driver's schemas are not as ADBC says: %v", schemas.DataType())
	}
	from, to := schemas.ValueOffsets(i)
	for j := int(from); j < int(to); j++ {
		schema := optional(items.Field(0).(*array.String), j)
		if f.req.Kind == session.MetadataSchemas {
			if schema == nil {
				schema = new(string)
			}
			f.row(catalog, schema)
			continue
		}
		if err := f.addTables(ctx, cn, catalog, schema, items.Field(1).(*array.List), j); err != nil {
			return err
		}
	}
	return nil
}

func (f flat) addTables(ctx context.Context, cn adbc.Connection, catalog, schema *string, tables *array.List, i int) error {
	if tables.IsNull(i) {
		return nil
	}
	items, ok := tables.ListValues().(*array.Struct)
	if !ok {
		return fmt.Errorf("the driver's tables are not as ADBC says: %v", tables.DataType())
	}
	from, to := tables.ValueOffsets(i)
	for j := int(from); j < int(to); j++ {
		name := items.Field(0).(*array.String).Value(j)
		kind := items.Field(1).(*array.String).Value(j)
		if f.req.IncludeColumns {
			columns, err := cn.GetTableSchema(ctx, catalog, schema, name)
			if err != nil {
				return err
			}
			f.Field(4).(*array.BinaryBuilder).Append(flight.SerializeSchema(columns, memory.DefaultAllocator))
		}
		f.row(catalog, schema, &name, &kind)
	}
	return nil
}

// row appends one row of names.
func (f flat) row(names ...*string) {
	for i, name := range names {
		if name == nil {
			f.Field(i).AppendNull()
		} else {
			f.Field(i).(*array.StringBuilder).Append(*name)
		}
	}
}

// optional is nil for NULL and for the empty name, by which drivers mean that
// there is none.
func optional(names *array.String, i int) *string {
	if names.IsNull(i) || names.Value(i) == "" {
		return nil
	}
	name := names.Value(i)
	return &name
}
