package adbcconn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
)

// Two drivers store rows in a table that is there without regard to it. DuckDB's gives the columns to those of the table one
// after the other, whatever their names, and looks for the table in the schema main. PostgreSQL's sends each value as what
// it is in the rows, of which the server sees the bytes alone: of an integer for a column of doubles, both of eight bytes, the bits.
//
// INVARIANT: a value is stored in the column of its name, as what it is, or the ingestion is refused before anything is sent.

// misplacedError says that rows cannot be loaded into a table.
type misplacedError struct{ text string }

func (e *misplacedError) Error() string { return e.text }

// fitToTable is how rows are to be loaded into a table that may be there. A *misplacedError refuses them. The caller holds driverLock.
func (c *GenericConn) fitToTable(ctx context.Context, rows array.RecordReader, opts *backend.IngestOptions) (array.RecordReader, error) {
	mayExist := opts.Mode == backend.IngestCreateAppend || opts.Mode == backend.IngestAppend
	switch {
	case strings.Contains(c.driverName, "DuckDB"):
		if opts.Temporary {
			return rows, nil
		}
		place, err := c.textRows(ctx, "SELECT current_database(), current_schema()")
		if err != nil {
			return nil, err
		}
		if opts.Catalog == "" {
			opts.Catalog = place[0][0]
		}
		if opts.Schema == "" && opts.Catalog == place[0][0] {
			opts.Schema = place[0][1]
		}
		if !mayExist {
			return rows, nil
		}
		table, err := c.textRows(ctx, "SELECT column_name, '' FROM duckdb_columns() WHERE table_name = "+literal(opts.Table)+
			" AND database_name = "+literal(opts.Catalog)+" AND schema_name = "+literal(cmp.Or(opts.Schema, "main"))+" ORDER BY column_index")
		if err != nil {
			return nil, err
		}
		return inOrderOf(table, rows)
	case strings.Contains(c.driverName, "PostgreSQL") && mayExist:
		name := tableName{table: opts.Table}
		switch {
		case opts.Temporary:
			name.schema = &temporarySchema
		case opts.Schema != "":
			name.schema = &opts.Schema
		}
		table, err := c.textRows(ctx, "SELECT a.attname::text, coalesce(b.typname, t.typname)::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "+
			"LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd' WHERE a.attrelid = to_regclass("+literal(name.quoted())+") AND a.attnum > 0 AND NOT a.attisdropped")
		if e, ok := adbcError(err); ok && faultOf(e) == backend.FaultStatement { // of what else speaks PostgreSQL's protocol
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		return rows, checkTypes(table, rows.Schema())
	}
	return rows, nil
}

var temporarySchema = "pg_temp"

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// textRows are the rows of a query of two columns of texts. The caller holds driverLock.
func (c *GenericConn) textRows(ctx context.Context, sql string) (rows [][2]string, err error) {
	stmt, err := c.cn.NewStatement()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stmt.Close() }()
	if err := stmt.SetSqlQuery(sql); err != nil {
		return nil, err
	}
	reader, _, err := stmt.ExecuteQuery(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	for {
		if more, err := hasNext(ctx, reader); !more {
			return rows, err
		}
		batch := reader.RecordBatch()
		for i := range int(batch.NumRows()) {
			rows = append(rows, [2]string{strings.Clone(batch.Column(0).ValueStr(i)), strings.Clone(batch.Column(1).ValueStr(i))})
		}
	}
}

// inOrderOf is rows with their columns in the order of a table's that is there.
func inOrderOf(table [][2]string, rows array.RecordReader) (array.RecordReader, error) {
	if len(table) == 0 {
		return rows, nil
	}
	of := rows.Schema()
	order := make([]int, 0, len(table))
	for _, column := range table {
		i := slices.IndexFunc(of.Fields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, column[0]) }) // as DuckDB compares them
		if i >= 0 {
			order = append(order, i)
		}
	}
	if len(order) != len(table) || of.NumFields() != len(table) {
		return nil, &misplacedError{fmt.Sprintf("the rows have the columns %v, the table %v: DuckDB's driver needs those of the table, each once", names(of), firsts(table))}
	}
	return newOrdered(rows, order), nil
}

func names(schema *arrow.Schema) (all []string) {
	for _, f := range schema.Fields() {
		all = append(all, f.Name)
	}
	return all
}

func firsts(table [][2]string) (all []string) {
	for _, column := range table {
		all = append(all, column[0])
	}
	return all
}

// ordered are rows whose columns stand in another order.
type ordered struct {
	array.RecordReader
	schema *arrow.Schema
	order  []int
	batch  arrow.RecordBatch
}

func newOrdered(rows array.RecordReader, order []int) *ordered {
	fields := make([]arrow.Field, len(order))
	for i, from := range order {
		fields[i] = rows.Schema().Field(from)
	}
	metadata := rows.Schema().Metadata()
	return &ordered{RecordReader: rows, schema: arrow.NewSchema(fields, &metadata), order: order}
}

func (r *ordered) Schema() *arrow.Schema { return r.schema }

func (r *ordered) Next() bool {
	r.releaseBatch()
	if !r.RecordReader.Next() {
		return false
	}
	from := r.RecordReader.RecordBatch()
	columns := make([]arrow.Array, len(r.order))
	for i, at := range r.order {
		columns[i] = from.Column(at)
	}
	r.batch = array.NewRecordBatch(r.schema, columns, from.NumRows())
	return true
}

func (r *ordered) RecordBatch() arrow.RecordBatch { return r.batch }

// Record is part of array.RecordReader.
//
// Deprecated: it is RecordBatch.
func (r *ordered) Record() arrow.RecordBatch { return r.batch }

func (r *ordered) releaseBatch() {
	if r.batch != nil {
		r.batch.Release()
		r.batch = nil
	}
}

// checkTypes refuses rows of which PostgreSQL would take the bytes of a value for another.
func checkTypes(table [][2]string, rows *arrow.Schema) error {
	for _, field := range rows.Fields() {
		takes := strings.Fields(copiedAs(field.Type))
		for _, column := range table {
			if name, is := column[0], column[1]; name == field.Name && len(takes) > 0 && slices.Contains(copied, is) && !slices.Contains(takes, is) {
				return &misplacedError{fmt.Sprintf("the rows have %v in column %q, which PostgreSQL's driver sends as %s, and the table has %s: the server would take the bytes of one for the other",
					field.Type, name, takes[0], is)}
			}
		}
	}
	return nil
}

// copied are PostgreSQL's types that have no bytes to tell them from others.
var copied = strings.Fields("bool char int2 int4 int8 oid float4 float8 numeric money date time timetz timestamp timestamptz interval uuid text varchar bpchar name json xml bytea")

const pgTexts = "text varchar bpchar name json xml bytea"

// copiedAs are those of copied that a column may have where the driver sends values of a type, the one it is first; empty: all.
func copiedAs(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return copiedAs(t.ValueType)
	case arrow.ExtensionType:
		return copiedAs(t.StorageType())
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return "bytea uuid " + pgTexts
		}
		return "bytea " + pgTexts
	}
	return copiedTypes[t.ID()]
}

var copiedTypes = map[arrow.Type]string{
	arrow.BOOL: "bool",
	arrow.INT8: "int2 numeric", arrow.UINT8: "int2 numeric", arrow.INT16: "int2 numeric",
	arrow.UINT16: "int4 oid numeric", arrow.INT32: "int4 oid numeric",
	arrow.UINT32: "int8 numeric", arrow.INT64: "int8 numeric", arrow.UINT64: "int8 numeric",
	arrow.FLOAT16: "float4", arrow.FLOAT32: "float4", arrow.FLOAT64: "float8",
	arrow.DECIMAL32: "numeric", arrow.DECIMAL64: "numeric", arrow.DECIMAL128: "numeric", arrow.DECIMAL256: "numeric",
	arrow.DATE32: "date", arrow.DATE64: "date", arrow.TIME32: "time", arrow.TIME64: "time", arrow.TIMESTAMP: "timestamp timestamptz",
	arrow.DURATION: "interval", arrow.INTERVAL_MONTHS: "interval", arrow.INTERVAL_DAY_TIME: "interval", arrow.INTERVAL_MONTH_DAY_NANO: "interval",
	arrow.STRING: pgTexts, arrow.LARGE_STRING: pgTexts, arrow.STRING_VIEW: pgTexts,
	arrow.BINARY: "bytea uuid " + pgTexts, arrow.LARGE_BINARY: "bytea uuid " + pgTexts, arrow.BINARY_VIEW: "bytea uuid " + pgTexts,
}
