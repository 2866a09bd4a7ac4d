package adbcconn

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
)

// signedRows are rows up to a number that PostgreSQL's driver would store as a negative one, unless the column is numeric.
type signedRows struct {
	array.RecordReader
	numeric map[string]bool
	err     error
}

// Next is part of array.RecordReader.
func (r *signedRows) Next() bool {
	if r.err != nil || !r.RecordReader.Next() {
		return false
	}
	batch := r.RecordBatch()
	for i := range int(batch.NumCols()) {
		numbers, ok := batch.Column(i).(*array.Uint64)
		for row := 0; ok && !r.numeric[batch.ColumnName(i)] && row < numbers.Len(); row++ {
			if numbers.IsValid(row) && numbers.Value(row) > math.MaxInt64 {
				r.err = fmt.Errorf("the rows have %d in column %q, which PostgreSQL's driver would store as a negative number", numbers.Value(row), batch.ColumnName(i))
				return false
			}
		}
	}
	return true
}

// Err is part of array.RecordReader.
func (r *signedRows) Err() error { return cmp.Or(r.err, r.RecordReader.Err()) }

// misplacedError says that rows cannot be loaded into a table.
type misplacedError struct{ text string }

func (e *misplacedError) Error() string { return e.text }

// fitToTable is how rows are loaded by PostgreSQL's driver, which stores some as something else in a table that is there: it sends each
// value as what it is in the rows, of which the server sees the bytes alone: of an integer for a column of doubles, both of eight bytes, the
// bits. A *misplacedError refuses those. The caller holds driverLock.
func (c *GenericConn) fitToTable(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions) (array.RecordReader, error) {
	if !c.isPostgreSQL() {
		return rows, nil
	}
	signed := &signedRows{RecordReader: rows, numeric: map[string]bool{}}
	if opts.Mode != backend.IngestCreateAppend && opts.Mode != backend.IngestAppend {
		return signed, nil
	}
	name := tableName{table: opts.Table}
	switch {
	case opts.Temporary:
		name.schema = &temporarySchema
	case opts.Schema != "":
		name.schema = &opts.Schema
	}
	table, err := c.textRows(ctx, "SELECT a.attname::text, coalesce(b.typname, t.typname)::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "+
		"LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd' WHERE a.attrelid = to_regclass("+literal(name.quoted())+") AND a.attnum > 0 AND NOT a.attisdropped")
	if e, ok := adbcError(err); err != nil && (!ok || faultOf(e) != backend.FaultStatement) { // else of what only speaks PostgreSQL's protocol
		return nil, err
	}
	for _, column := range table {
		signed.numeric[column[0]] = column[1] == "numeric"
	}
	return signed, checkTypes(table, rows.Schema())
}

var temporarySchema = "pg_temp"

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
