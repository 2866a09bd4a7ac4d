package script

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"

	"github.com/flightpool/flightpool/testserver/engine"
)

// change runs a statement that changes tables, with one row of parameters.
func (s *session) change(ctx context.Context, v *view, st *parsed, row []any) (int64, error) {
	if st.verb == "CREATE TABLE" {
		return s.createTable(ctx, v, st, row)
	}
	t, err := s.find(v, st.name)
	if err != nil {
		if st.verb == "DROP" && st.lenient {
			return 0, nil
		}
		return 0, err
	}
	switch st.verb {
	case "DROP":
		v.drop(t)
		return 0, nil
	case "INSERT":
		values := make([][]any, len(st.rows))
		for i, items := range st.rows {
			if values[i], err = t.typed(st.into, items, row); err != nil {
				return 0, err
			}
		}
		return int64(len(values)), v.insert(t, values)
	case "ALTER":
		return 0, addColumn(v, t, st, row)
	default: // DELETE, UPDATE
		return rewrite(v, t, st, row)
	}
}

// insertReturning is an INSERT whose result is a column of what it has stored.
func (s *session) insertReturning(ctx context.Context, st *parsed, rows [][]any) (array.RecordReader, error) {
	t, err := s.find(s.view(), st.name)
	if err != nil {
		return nil, err
	}
	schema, err := s.rowSchema(st, s.view())
	if err != nil {
		return nil, err
	}
	column, _ := t.column(st.returning)
	var values [][]any
	for _, row := range rows {
		for _, items := range st.rows {
			stored, err := t.typed(st.into, items, row)
			if err != nil {
				return nil, err
			}
			values = append(values, stored[column:column+1])
		}
	}
	if _, err := s.updateRows(ctx, st, rows); err != nil {
		return nil, err
	}
	return fromRows(ctx, schema, values), nil
}

// rewrite deletes or updates the rows that fit.
func rewrite(v *view, t *table, st *parsed, row []any) (int64, error) {
	fits, err := t.filter(st.where, row)
	if err != nil {
		return 0, err
	}
	column := -1
	var value any
	if st.verb == "UPDATE" {
		if column, err = t.column(st.set); err != nil {
			return 0, err
		}
		if value, err = convert(st.items[0].bound(row), t.columns.Field(column).Type); err != nil {
			return 0, err
		}
	}
	var n int64
	var rows [][]any
	for _, r := range t.rows {
		switch {
		case !fits(r):
			rows = append(rows, r)
		case column >= 0:
			changed := append([]any(nil), r...)
			changed[column] = value
			rows = append(rows, changed)
			n++
		default:
			n++
		}
	}
	if n > 0 {
		v.put(t.with(rows))
	}
	return n, nil
}

func (s *session) createTable(ctx context.Context, v *view, st *parsed, row []any) (int64, error) {
	t := &table{columns: arrow.NewSchema(st.columns, nil), key: st.key}
	there, err := s.place(v, t, st.name, st.temp)
	if err != nil {
		return 0, err
	}
	switch {
	case there != nil && st.lenient:
		return 0, nil
	case there != nil:
		return 0, catalogError("catalog error: table with name %s already exists", st.name)
	case st.as == nil:
		v.put(t)
		return 0, nil
	}
	rows, err := s.selectRows(ctx, st.as, [][]any{row})
	if err != nil {
		return 0, err
	}
	defer rows.Release()
	t.columns = rows.Schema()
	if t.rows, err = readRows(rows); err != nil {
		return 0, err
	}
	v.put(t)
	return int64(len(t.rows)), nil
}

// Ingest stores rows whose columns fit the table's by position.
func (s *session) Ingest(ctx context.Context, into engine.IngestTarget, rows array.RecordReader) (int64, error) {
	if s.tx != nil && s.tx.aborted {
		return 0, errAborted
	}
	values, err := readRows(rows)
	if err != nil {
		return 0, s.abort(err)
	}
	err = s.inTx(func(v *view) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := s.ingestTable(v, into, rows.Schema())
		if err == nil && s.tx != nil {
			err = s.tx.change(t.in)
		}
		if err != nil {
			return err
		}
		for i, r := range values {
			if values[i], err = t.typedValues(r); err != nil {
				return err
			}
		}
		return v.insert(t, values)
	})
	if err != nil {
		return 0, s.abort(err)
	}
	return int64(len(values)), nil
}

// ingestTable finds or makes the table that Ingest stores into.
func (s *session) ingestTable(v *view, into engine.IngestTarget, columns *arrow.Schema) (*table, error) {
	name := into.Table
	switch {
	case into.Catalog != "":
		name = into.Catalog + "." + cmp.Or(into.Schema, mainSchema) + "." + name
	case into.Schema != "":
		name = into.Schema + "." + name
	}
	fresh := &table{columns: columns, key: -1}
	t, err := s.place(v, fresh, name, into.Temporary)
	if err != nil {
		return nil, err
	}
	switch {
	case t == nil && !into.Create:
		return nil, catalogError("catalog error: table with name %s does not exist", into.Table)
	case t != nil && into.Exists == engine.IngestFail:
		return nil, catalogError("catalog error: table with name %s already exists", into.Table)
	case t != nil && into.Exists == engine.IngestAppend:
		return t, nil
	}
	for _, f := range columns.Fields() {
		if _, known := zeroOf(f.Type); !known {
			return nil, catalogError("catalog error: column %s: type %s is not supported", f.Name, f.Type)
		}
	}
	v.put(fresh)
	return fresh, nil
}

// readRows reads all values.
func readRows(rows array.RecordReader) ([][]any, error) {
	var all [][]any
	for rows.Next() {
		b := rows.RecordBatch()
		for i := range int(b.NumRows()) {
			row, err := rowOf(b, i)
			if err != nil {
				return nil, err
			}
			all = append(all, row)
		}
	}
	return all, rows.Err()
}

// rowOf returns one row as int64, float64, string, bool or nil.
func rowOf(b arrow.RecordBatch, i int) ([]any, error) {
	row := make([]any, b.NumCols())
	for c, col := range b.Columns() {
		if col.IsNull(i) {
			continue
		}
		v, err := scalar.GetScalar(col, i)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case *scalar.Int64:
			row[c] = v.Value
		case *scalar.Float64:
			row[c] = v.Value
		case *scalar.Float32:
			row[c] = float64(v.Value)
		case *scalar.Uint64:
			if v.Value > math.MaxInt64 {
				return nil, fmt.Errorf("parameter or column: %d does not fit BIGINT", v.Value)
			}
			row[c] = int64(v.Value)
		case *scalar.Boolean:
			row[c] = v.Value
		case scalar.BinaryScalar:
			row[c] = string(v.Data())
		default:
			wide, err := v.CastTo(arrow.PrimitiveTypes.Int64)
			if err != nil {
				return nil, fmt.Errorf("parameter or column of type %s: %w", col.DataType(), err)
			}
			n, _ := wide.(*scalar.Int64)
			row[c] = n.Value
		}
	}
	return row, nil
}
