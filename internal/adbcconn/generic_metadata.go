package adbcconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/metadata"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/flightconn"
)

// Metadata is part of backend.Conn. ADBC's tree of objects is flattened into
// the tables of Flight SQL. Keys, SqlInfo and type info it does not have, or
// drivers leave them out without a word.
func (c *GenericConn) Metadata(ctx context.Context, req backend.MetadataRequest, call backend.Call) (backend.Stream, error) {
	t, err := c.begin(ctx, req.Kind.String())
	if err != nil {
		return nil, err
	}
	switch req.Kind {
	case backend.MetadataCatalogs, backend.MetadataSchemas, backend.MetadataTables, backend.MetadataTableTypes:
		return t.openStream(func(ctx context.Context) (*genericRows, error) { return c.catalogue(ctx, req, call.Headers) })
	case backend.MetadataPrimaryKeys, backend.MetadataImportedKeys, backend.MetadataExportedKeys:
		if req.Table == nil || *req.Table == "" {
			t.end()
			return nil, t.usageError(errors.New("a table name is needed"))
		}
	case backend.MetadataSQLInfo, backend.MetadataTypeInfo:
	}
	t.end()
	return nil, c.unsupportedError(ctx, t.op, fmt.Sprintf("ADBC has no call for %v", req.Kind))
}

// catalogue asks for the objects that req names, and flattens them in memory: no call of the
// driver's goes on when it has returned. The caller holds driverLock.
func (c *GenericConn) catalogue(ctx context.Context, req backend.MetadataRequest, headers metadata.MD) (*genericRows, error) {
	restore, err := sendHeaders(c.cn, headers)
	if err != nil {
		return nil, err
	}
	defer restore()
	if req.Kind == backend.MetadataTableTypes {
		reader, err := c.cn.GetTableTypes(ctx)
		if err != nil {
			return nil, err
		}
		defer reader.Release()
		var types []arrow.RecordBatch
		defer func() { release(types) }()
		err = forEachBatch(ctx, reader, func(batch arrow.RecordBatch) error {
			batch.Retain()
			types = append(types, batch)
			return nil
		})
		if err != nil {
			return nil, err
		}
		return c.inMemory(reader.Schema(), types)
	}
	flattener := newObjectFlattener(req)
	defer flattener.Release()
	tree, err := c.objects(ctx, flattener)
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	if err := forEachBatch(ctx, tree, flattener.add); err != nil {
		return nil, err
	}
	if err := c.addColumns(ctx, flattener); err != nil {
		return nil, err
	}
	batch := flattener.NewRecordBatch()
	defer batch.Release()
	return c.inMemory(batch.Schema(), []arrow.RecordBatch{batch})
}

// objects asks for the tree of what f flattens. What drivers do not do alike is left to f: to some the schema
// is a name, others know no escapes, and ADBC's driver manager gives them a list of types without an end. A
// Flight SQL driver hands the filters on to its server.
func (c *GenericConn) objects(ctx context.Context, f *objectFlattener) (array.RecordReader, error) {
	depth := map[backend.MetadataKind]adbc.ObjectDepth{
		backend.MetadataCatalogs: adbc.ObjectDepthCatalogs,
		backend.MetadataSchemas:  adbc.ObjectDepthDBSchemas,
		backend.MetadataTables:   adbc.ObjectDepthTables,
	}[f.req.Kind]
	schema, table, types := f.req.Schema, f.req.Table, f.req.TableTypes
	if !c.isFlightSQL {
		if schema != nil && strings.ContainsAny(*schema, `%_\`) {
			schema, f.schema = nil, schema
		}
		if table != nil && strings.Contains(*table, `\`) {
			table, f.table = nil, table
		}
		types, f.types = nil, types
	}
	return c.cn.GetObjects(ctx, depth, f.req.Catalog, schema, table, nil, types)
}

// forEachBatch reads a driver's reader to its end.
func forEachBatch(ctx context.Context, reader array.RecordReader, each func(arrow.RecordBatch) error) error {
	var validator flightconn.Validator
	for {
		batch, err := nextChecked(ctx, reader, &validator)
		if batch == nil || err != nil {
			return err
		}
		if err := each(batch); err != nil {
			return err
		}
	}
}

// inMemory are the rows of batches, which stay the caller's.
func (c *GenericConn) inMemory(schema *arrow.Schema, batches []arrow.RecordBatch) (*genericRows, error) {
	reader, err := array.NewRecordReader(schema, batches)
	if err != nil {
		return nil, err
	}
	return c.trackRows(reader, func() {}), nil
}

// objectFlattener builds a catalogue result of Flight SQL from ADBC's tree.
// Rows come in the order of the tree. It must be released.
type objectFlattener struct {
	*array.RecordBuilder
	req backend.MetadataRequest

	// schema and table are the patterns, and types the types, of what is wanted. nil is all.
	schema, table *string
	types         []string

	tables []tableName // of the rows, where their columns are wanted
}

// newObjectFlattener makes one with the schema that Flight SQL has for the
// call.
func newObjectFlattener(req backend.MetadataRequest) *objectFlattener {
	schema := schema_ref.Catalogs
	switch {
	case req.Kind == backend.MetadataSchemas:
		schema = schema_ref.DBSchemas
	case req.Kind == backend.MetadataTables && req.IncludeColumns:
		schema = schema_ref.TablesWithIncludedSchema
	case req.Kind == backend.MetadataTables:
		schema = schema_ref.Tables
	}
	return &objectFlattener{RecordBuilder: array.NewRecordBuilder(memory.DefaultAllocator, schema), req: req}
}

// add walks one batch of the tree.
func (f *objectFlattener) add(batch arrow.RecordBatch) error {
	catalogs, ok1 := batch.Column(0).(*array.String)
	schemas, ok2 := batch.Column(1).(*array.List)
	if !ok1 || !ok2 {
		return fmt.Errorf("the driver's objects are not as ADBC says: %v", batch.Schema())
	}
	for i := range catalogs.Len() {
		catalog := copyNonEmpty(catalogs, i)
		if want := f.req.Catalog; want != nil && orEmpty(catalog) != *want {
			continue
		}
		if f.req.Kind == backend.MetadataCatalogs {
			if catalog != nil {
				f.appendRow(catalog)
			}
			continue
		}
		if err := f.addSchemas(catalog, schemas, i); err != nil {
			return err
		}
	}
	return nil
}

// addSchemas walks the schemas of one catalog, which is row i of the list. A
// list that is NULL was not asked for, or is empty.
func (f *objectFlattener) addSchemas(catalog *string, schemas *array.List, i int) error {
	items, from, to, err := structsOf(schemas, i, "schemas")
	if err != nil {
		return err
	}
	for j := from; j < to; j++ {
		schema := copyNonEmpty(items.Field(0).(*array.String), j)
		if f.schema != nil && !Like(*f.schema, orEmpty(schema)) {
			continue
		}
		if f.req.Kind == backend.MetadataSchemas {
			if schema == nil {
				schema = new(string)
			}
			f.appendRow(catalog, schema)
			continue
		}
		if err := f.addTables(catalog, schema, items.Field(1).(*array.List), j); err != nil {
			return err
		}
	}
	return nil
}

// structsOf are the structs of a list in the tree: those of items between from and to.
func structsOf(list *array.List, i int, what string) (items *array.Struct, from, to int, err error) {
	if list.IsNull(i) {
		return nil, 0, 0, nil
	}
	items, ok := list.ListValues().(*array.Struct)
	if !ok {
		return nil, 0, 0, fmt.Errorf("the driver's %s are not as ADBC says: %v", what, list.DataType())
	}
	first, end := list.ValueOffsets(i)
	return items, int(first), int(end), nil
}

// addTables walks the tables of one schema.
func (f *objectFlattener) addTables(catalog, schema *string, tables *array.List, i int) error {
	items, from, to, err := structsOf(tables, i, "tables")
	if err != nil {
		return err
	}
	for j := from; j < to; j++ {
		name := items.Field(0).(*array.String).Value(j)
		kind := items.Field(1).(*array.String).Value(j)
		if f.table != nil && !Like(*f.table, name) || len(f.types) > 0 && !slices.Contains(f.types, kind) {
			continue
		}
		if f.req.IncludeColumns {
			f.tables = append(f.tables, tableName{catalog, schema, strings.Clone(name)})
		}
		f.appendRow(catalog, schema, &name, &kind)
	}
	return nil
}

// orEmpty is the name, empty for none.
func orEmpty(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// appendRow appends one row of names.
func (f *objectFlattener) appendRow(names ...*string) {
	for i, name := range names {
		if name == nil {
			f.Field(i).AppendNull()
		} else {
			f.Field(i).(*array.StringBuilder).Append(*name)
		}
	}
}

// copyNonEmpty is nil for NULL and for the empty name, by which drivers mean that
// there is none.
func copyNonEmpty(names *array.String, i int) *string {
	if names.IsNull(i) || names.Value(i) == "" {
		return nil
	}
	name := strings.Clone(names.Value(i)) // the batch goes
	return &name
}
