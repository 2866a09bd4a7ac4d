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
	numeric map[string]bool // columns of such numbers, or of lists of them
	err     error
}

// Next is part of array.RecordReader.
func (r *signedRows) Next() bool {
	if r.err != nil || !r.RecordReader.Next() {
		return false
	}
	batch := r.RecordBatch()
	for i := range int(batch.NumCols()) {
		if name := batch.ColumnName(i); !r.numeric[name] {
			if n := unsignedIn(batch.Column(i)); n > math.MaxInt64 {
				r.err = fmt.Errorf("the rows have %d in column %q, which PostgreSQL's driver would store as a negative number", n, name)
				return false
			}
		}
	}
	return true
}

// unsignedIn is the largest number without a sign among values, or in their lists.
func unsignedIn(values arrow.Array) (largest uint64) {
	switch values := values.(type) {
	case array.ExtensionArray:
		return unsignedIn(values.Storage())
	case array.ListLike:
		for row := range values.Len() {
			if values.IsValid(row) {
				from, to := values.ValueOffsets(row)
				part := array.NewSlice(values.ListValues(), from, to)
				largest = max(largest, unsignedIn(part))
				part.Release()
			}
		}
	case *array.Uint64:
		for row := range values.Len() {
			if values.IsValid(row) {
				largest = max(largest, values.Value(row))
			}
		}
	}
	return largest
}

// Err is part of array.RecordReader.
func (r *signedRows) Err() error { return cmp.Or(r.err, r.RecordReader.Err()) }

// misplacedError says that rows cannot be loaded into a table.
type misplacedError struct{ text string }

func (e *misplacedError) Error() string { return e.text }

// fitToTable is how rows are loaded by PostgreSQL's driver, which stores some as something else in a table that is there: it sends each
// value as what it is in the rows, of which the server sees the bytes alone: of an integer for a column of doubles, both of eight bytes, the
// bits. A *misplacedError refuses those. isThere is true only where it is known that there is a table. The caller holds driverLock.
func (c *GenericConn) fitToTable(ctx context.Context, rows array.RecordReader, opts backend.IngestOptions) (fitting array.RecordReader, isThere bool, err error) {
	if !c.isPostgreSQL() {
		return rows, false, nil
	}
	signed := &signedRows{RecordReader: rows, numeric: map[string]bool{}}
	if opts.Mode != backend.IngestCreateAppend && opts.Mode != backend.IngestAppend {
		return signed, false, nil
	}
	table, err := c.textRows(ctx, columnsOf(opts))
	if e, ok := adbcError(err); err != nil && (!ok || faultOf(e) != backend.FaultStatement) { // else of what only speaks PostgreSQL's protocol
		return nil, false, err
	}
	for _, column := range table {
		signed.numeric[column[0]] = strings.TrimSuffix(column[1], "[]") == "numeric"
	}
	return signed, len(table) > 0, checkTypes(table, rows.Schema())
}

// columnsOf asks for the columns of a table and their types, which are those below their domains, and in arrays. Without a schema the driver
// loads into the first of the search path, and not into a temporary table, wherever the name leads.
func columnsOf(opts backend.IngestOptions) string {
	name := tableName{table: opts.Table}
	place := "quote_ident(current_schema()) || '.' || "
	if schema := cmp.Or(opts.Schema, temporarySchema); opts.Temporary || opts.Schema != "" {
		name.schema, place = &schema, ""
	}
	return "WITH RECURSIVE below(col, type, suffix) AS (SELECT attname, atttypid, '' FROM pg_attribute WHERE attrelid = to_regclass(" + place + literal(name.quoted()) +
		") AND attnum > 0 AND NOT attisdropped UNION ALL SELECT col, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END, CASE typtype WHEN 'd' THEN suffix ELSE '[]' END " +
		"FROM below JOIN pg_type ON oid = type WHERE typtype = 'd' OR typcategory = 'A') " +
		"SELECT col::text, (typname || suffix)::text FROM below JOIN pg_type ON oid = type WHERE typtype <> 'd' AND typcategory <> 'A'"
}

const temporarySchema = "pg_temp"

// checkTypes refuses rows of which PostgreSQL would take the bytes of a value for another.
func checkTypes(table [][2]string, rows *arrow.Schema) error {
	for _, field := range rows.Fields() {
		takes := strings.Fields(copiedAs(field.Type))
		for _, column := range table {
			if name, is := column[0], column[1]; name == field.Name && len(takes) > 0 && slices.Contains(copied, strings.TrimSuffix(is, "[]")) && !slices.Contains(takes, is) {
				return &misplacedError{fmt.Sprintf("the rows have %v in column %q, which PostgreSQL's driver sends as %s, and the table has %s: the server would take the bytes of one for the other",
					field.Type, name, takes[0], is)}
			}
		}
	}
	return nil
}

// copied are PostgreSQL's types that have no bytes to tell them from others.
var copied = strings.Fields("bool char int2 int4 int8 oid float4 float8 numeric money date time timetz timestamp timestamptz interval uuid text varchar bpchar name json xml bytea " + pgOthers)

const (
	pgTexts    = "text varchar bpchar name json xml bytea"
	pgIDs      = "xid cid regclass regtype regproc regprocedure regrole regnamespace regconfig"
	pgBinaries = "bytea uuid " + pgTexts + " " + pgOthers
	pgOthers   = pgIDs + " xid8 pg_lsn tid macaddr macaddr8 point line lseg box circle"
)

// copiedAs are those of copied that a column may have where the driver sends values of a type, the one it is first; empty: all.
func copiedAs(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return copiedAs(t.ValueType)
	case arrow.ListLikeType:
		takes := strings.Fields(copiedAs(t.Elem()))
		for i := range takes {
			takes[i] += "[]"
		}
		return strings.Join(takes, " ")
	case arrow.ExtensionType:
		return copiedAs(t.StorageType())
	case *arrow.FixedSizeBinaryType:
		if t.ByteWidth == 16 {
			return pgBinaries
		}
		return "bytea " + pgTexts + " " + pgOthers
	}
	return copiedTypes[t.ID()]
}

var copiedTypes = map[arrow.Type]string{
	arrow.BOOL: "bool",
	arrow.INT8: "int2 numeric", arrow.UINT8: "int2 numeric", arrow.INT16: "int2 numeric",
	arrow.UINT16: "int4 numeric oid " + pgIDs, arrow.INT32: "int4 numeric oid " + pgIDs,
	arrow.UINT32: "int8 numeric xid8 pg_lsn", arrow.INT64: "int8 numeric xid8 pg_lsn", arrow.UINT64: "int8 numeric xid8 pg_lsn",
	arrow.FLOAT16: "float4", arrow.FLOAT32: "float4", arrow.FLOAT64: "float8",
	arrow.DECIMAL32: "numeric", arrow.DECIMAL64: "numeric", arrow.DECIMAL128: "numeric", arrow.DECIMAL256: "numeric",
	arrow.DATE32: "date", arrow.DATE64: "date", arrow.TIME32: "time", arrow.TIME64: "time", arrow.TIMESTAMP: "timestamp timestamptz",
	arrow.DURATION: "interval", arrow.INTERVAL_MONTHS: "interval", arrow.INTERVAL_DAY_TIME: "interval", arrow.INTERVAL_MONTH_DAY_NANO: "interval",
	arrow.STRING: pgTexts, arrow.LARGE_STRING: pgTexts, arrow.STRING_VIEW: pgTexts,
	arrow.BINARY: pgBinaries, arrow.LARGE_BINARY: pgBinaries, arrow.BINARY_VIEW: pgBinaries,
}
