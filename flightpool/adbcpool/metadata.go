package adbcpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/flightpool"
	"github.com/flightpool/flightpool/rowscan"
)

// driverName is what GetInfo tells of us.
const driverName = "flightpool ADBC driver"

// serverInfo are the SqlInfo codes behind ADBC's codes of text.
var serverInfo = map[adbc.InfoCode]uint32{
	adbc.InfoVendorName:         0,
	adbc.InfoVendorVersion:      1,
	adbc.InfoVendorArrowVersion: 2,
}

// GetInfo is part of adbc.Connection. What the server does not tell is left
// out.
func (c *connection) GetInfo(ctx context.Context, codes []adbc.InfoCode) (array.RecordReader, error) {
	if len(codes) == 0 {
		codes = []adbc.InfoCode{adbc.InfoVendorName, adbc.InfoVendorVersion, adbc.InfoVendorArrowVersion, adbc.InfoVendorSql,
			adbc.InfoDriverName, adbc.InfoDriverArrowVersion, adbc.InfoDriverADBCVersion}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.GetInfoSchema)
	defer b.Release()
	names, values := b.Field(0).(*array.Uint32Builder), b.Field(1).(*array.DenseUnionBuilder)
	text := func(code adbc.InfoCode, v string) {
		names.Append(uint32(code))
		values.Append(adbc.InfoValueStringType)
		values.Child(int(adbc.InfoValueStringType)).(*array.StringBuilder).Append(v)
	}
	for _, code := range codes {
		switch code {
		case adbc.InfoDriverName:
			text(code, driverName)
		case adbc.InfoDriverArrowVersion:
			text(code, arrow.PkgVersion)
		case adbc.InfoDriverADBCVersion:
			names.Append(uint32(code))
			values.Append(adbc.InfoValueInt64Type)
			values.Child(int(adbc.InfoValueInt64Type)).(*array.Int64Builder).Append(adbc.AdbcVersion1_1_0)
		case adbc.InfoVendorSql:
			names.Append(uint32(code))
			values.Append(adbc.InfoValueBooleanType)
			values.Child(int(adbc.InfoValueBooleanType)).(*array.BooleanBuilder).Append(true)
		default:
			sqlInfo, ok := serverInfo[code]
			if !ok {
				continue
			}
			v, known, err := c.sqlInfo(ctx, sqlInfo)
			if err != nil {
				return nil, err
			}
			if known {
				text(code, v)
			}
		}
	}
	return singleBatchReader(b)
}

// sqlInfo asks the server for one text. A server that does not know it is no
// failure; that it was not asked, since a result is open, is one.
func (c *connection) sqlInfo(ctx context.Context, code uint32) (value string, known bool, err error) {
	err = c.metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataSQLInfo, Info: []uint32{code}}, func(b arrow.RecordBatch, row int) error {
		if v, isText := cell[string](b, 1, row); isText {
			value, known = v, true
		}
		return nil
	})
	if fault := backend.FaultIn(err); fault == backend.FaultStatement || fault == backend.FaultUnsupported {
		return "", false, nil
	}
	return value, known, err
}

// answerColumns are the columns that are read of an answer. That of MetadataTables has
// one more with the columns of the tables.
var answerColumns = map[backend.MetadataKind]int64{
	backend.MetadataCatalogs: 1, backend.MetadataSchemas: 2, backend.MetadataTables: 4, backend.MetadataTableTypes: 1,
	backend.MetadataSQLInfo: 2, backend.MetadataPrimaryKeys: 6, backend.MetadataImportedKeys: 10,
}

// metadata runs a catalogue call and calls each for its rows.
func (c *connection) metadata(ctx context.Context, req backend.MetadataRequest, each func(b arrow.RecordBatch, row int) error) error {
	if c.closed {
		return errConnectionClosed
	}
	result, err := c.handle.MetadataWithOptions(ctx, req, flightpool.QueryOptions{Headers: c.headers})
	if err != nil {
		return toADBC(err)
	}
	defer result.Release() // the clean-up of a session has the pool's context
	for result.Next() {
		b := result.RecordBatch()
		if want := answerColumns[req.Kind]; b.NumCols() < want {
			return newADBCError(adbc.StatusInternal, fmt.Sprintf("the server's answer to %v has %d columns, not %d", req.Kind, b.NumCols(), want))
		}
		for row := range int(b.NumRows()) {
			if err := each(b, row); err != nil {
				return err
			}
		}
	}
	return toADBC(result.Err())
}

// singleBatchReader is a reader of what b has built.
func singleBatchReader(b *array.RecordBuilder) (array.RecordReader, error) {
	batch := b.NewRecordBatch()
	defer batch.Release()
	return array.NewRecordReader(batch.Schema(), []arrow.RecordBatch{batch})
}

// GetTableTypes is part of adbc.Connection.
func (c *connection) GetTableTypes(ctx context.Context) (array.RecordReader, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.TableTypesSchema)
	defer b.Release()
	err := c.metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataTableTypes}, func(batch arrow.RecordBatch, row int) error {
		b.Field(0).(*array.StringBuilder).Append(textCell(batch, 0, row))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return singleBatchReader(b)
}

// GetTableSchema is part of adbc.Connection. Names are exact. Without a schema,
// or a catalogue, a table that more than one of them has is looked for in the
// session's own; where that does not tell either, the call fails.
func (c *connection) GetTableSchema(ctx context.Context, catalog, dbSchema *string, table string) (*arrow.Schema, error) {
	var found []namedSchema
	req := backend.MetadataRequest{
		Kind: backend.MetadataTables, Catalog: catalog, Schema: patternCovering(dbSchema), Table: patternCovering(&table), IncludeColumns: true,
	}
	err := c.metadata(ctx, req, func(b arrow.RecordBatch, row int) (err error) {
		it := namedSchema{catalog: textCell(b, 0, row), schema: textCell(b, 1, row)}
		if textCell(b, 2, row) != table || dbSchema != nil && it.schema != *dbSchema || catalog != nil && it.catalog != *catalog {
			return nil // a pattern matches more
		}
		it.columns, err = columnsOf(b, row)
		found = append(found, it)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, newADBCError(adbc.StatusNotFound, "there is no table "+table)
	case len(found) > 1:
		return c.inCurrentSchema(found, table)
	}
	return found[0].columns, nil
}

// namedSchema is a table's schema and where the table is.
type namedSchema struct {
	catalog, schema string
	columns         *arrow.Schema
}

// patternCovering is a LIKE pattern that matches name, and perhaps others, on every
// server: of escapes they have different notions.
func patternCovering(name *string) *string {
	if name == nil || *name == "" {
		return nil
	}
	pattern := strings.ReplaceAll(*name, `\`, "_")
	return &pattern
}

// inCurrentSchema is the one of several tables of a name that is in the session's own
// catalogue and schema.
func (c *connection) inCurrentSchema(found []namedSchema, table string) (*arrow.Schema, error) {
	for _, own := range []struct {
		option string
		of     func(namedSchema) string
	}{
		{adbc.OptionKeyCurrentCatalog, func(s namedSchema) string { return s.catalog }},
		{adbc.OptionKeyCurrentDbSchema, func(s namedSchema) string { return s.schema }},
	} {
		if name, err := c.GetOption(own.option); err == nil {
			found = slices.DeleteFunc(found, func(s namedSchema) bool { return own.of(s) != name })
		}
	}
	if len(found) == 1 {
		return found[0].columns, nil
	}
	return nil, newADBCError(adbc.StatusInvalidArgument, "more than one schema has a table "+table+": name the catalogue and the schema")
}

// columnsOf is the schema of the table in row i of a tables result.
func columnsOf(batch arrow.RecordBatch, i int) (*arrow.Schema, error) {
	serialized, ok := cell[[]byte](batch, 4, i)
	if !ok {
		return nil, newADBCError(adbc.StatusInternal, "the server's tables come without their columns")
	}
	schema, err := flightpool.TableSchema(serialized)
	if err != nil {
		return nil, newADBCError(adbc.StatusInternal, "the schema of a table: "+err.Error())
	}
	return schema, nil
}

// cell is a copy of a value of type T, whatever Arrow type the server has chosen for it.
func cell[T any](batch arrow.RecordBatch, column, row int) (v T, ok bool) {
	if column < int(batch.NumCols()) {
		v, ok = rowscan.Value(batch.Column(column), row).(T)
	}
	return v, ok
}

// textCell is a copy of a text, empty for NULL and for what is no text.
func textCell(batch arrow.RecordBatch, column, row int) string {
	return orEmpty(optional(batch, column, row))
}
