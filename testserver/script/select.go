package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/internal/backoff"
	"github.com/flightpool/flightpool/testserver/engine"
	"github.com/flightpool/flightpool/testserver/internal/sqltext"
)

// batchRows is how many rows a batch has unless the statement says.
const batchRows = 1024

var countSchema = arrow.NewSchema([]arrow.Field{{Name: "count", Type: arrow.PrimitiveTypes.Int64}}, nil)
var numberSchema = arrow.NewSchema([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64}}, nil)

func (st *parsed) hasRows() bool {
	return st.verb == "SELECT" || st.verb == "SHOW" || st.returning != ""
}

// bindings returns the values of the parameters, one row for each run.
func bindings(st *parsed, params arrow.RecordBatch) ([][]any, error) {
	if params == nil {
		if st.params > 0 {
			return nil, fmt.Errorf("statement has %d parameters, none are bound", st.params)
		}
		return [][]any{nil}, nil
	}
	if int(params.NumCols()) != st.params {
		return nil, fmt.Errorf("statement has %d parameters, %d are bound", st.params, params.NumCols())
	}
	rows := make([][]any, params.NumRows())
	var err error
	for i := range rows {
		if rows[i], err = rowOf(params, i); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// bound is the value of a literal or parameter.
func (it item) bound(row []any) any {
	if it.param > 0 {
		return row[it.param-1]
	}
	return it.value
}

// rowSchema tells the columns of a statement, or nil where the parameters
// decide.
func (s *session) rowSchema(st *parsed, v *view) (*arrow.Schema, error) {
	switch {
	case !st.hasRows():
		if st.verb == "INSERT" || st.verb == "UPDATE" || st.verb == "DELETE" {
			_, err := s.find(v, st.name)
			return arrow.NewSchema(nil, nil), err
		}
		return arrow.NewSchema(nil, nil), nil
	case st.verb == "SHOW":
		return textSchema(st.name), nil
	case st.count:
		return countSchema, nil
	case st.returning != "":
		t, err := s.find(v, st.name)
		if err != nil {
			return nil, err
		}
		c, err := t.column(st.returning)
		if err != nil {
			return nil, err
		}
		return arrow.NewSchema([]arrow.Field{t.columns.Field(c)}, nil), nil
	case st.source == "generate" || st.source == "endless":
		return numberSchema, nil
	case st.source == "table":
		t, err := s.find(v, st.name)
		if err != nil {
			return nil, err
		}
		return t.columns, nil
	case st.source != "":
		return nil, catalogError("catalog error: function %s does not exist", st.source)
	}
	for _, it := range st.items {
		if it.param > 0 {
			return nil, nil
		}
		if it.call != "" && !slices.Contains(functions, it.call) {
			return nil, catalogError("catalog error: function %s does not exist", it.call)
		}
	}
	return itemSchema(st.items, nil), nil
}

var functions = []string{"sleep", "error", "current_setting", "current_database", "current_schema"}

func textSchema(name string) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
}

// itemSchema names and types the items of a SELECT.
func itemSchema(items []item, row []any) *arrow.Schema {
	fields := make([]arrow.Field, len(items))
	for i, it := range items {
		fields[i] = arrow.Field{Name: it.name, Type: typeOf(it.bound(row)), Nullable: true}
		if it.call != "" {
			fields[i].Type = arrow.BinaryTypes.String
		}
		if it.call == "sleep" {
			fields[i].Type = arrow.FixedWidthTypes.Boolean
		}
		if fields[i].Name == "" {
			fields[i].Name = fmt.Sprintf("column%d", i)
		}
	}
	return arrow.NewSchema(fields, nil)
}

// paramSchema tells the types of the parameters, or nil where any will do.
func (s *session) paramSchema(st *parsed, v *view) *arrow.Schema {
	types := make([]arrow.DataType, st.params)
	learn := func(it item, t *table, column int) {
		if it.param > 0 && column >= 0 && column < t.columns.NumFields() {
			types[it.param-1] = t.columns.Field(column).Type
		}
	}
	if t, err := s.find(v, st.name); err == nil {
		for _, row := range st.rows {
			for c, it := range row {
				if st.into != nil && c < len(st.into) {
					c, _ = t.column(st.into[c])
				}
				learn(it, t, c)
			}
		}
		if st.set != "" {
			c, _ := t.column(st.set)
			learn(st.items[0], t, c)
		}
		if st.where != nil {
			c, _ := t.column(st.where.column)
			learn(st.where.value, t, c)
		}
	}
	fields := make([]arrow.Field, len(types))
	for i, t := range types {
		if t == nil {
			return nil
		}
		fields[i] = arrow.Field{Name: fmt.Sprintf("$%d", i+1), Type: t, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// selectRows runs a SELECT or SHOW for each row of parameters.
func (s *session) selectRows(ctx context.Context, st *parsed, rows [][]any) (array.RecordReader, error) {
	schema, err := s.rowSchema(st, s.view())
	if err != nil {
		return nil, err
	}
	switch st.source {
	case "generate":
		return generate(ctx, st)
	case "endless":
		return endless(ctx, st)
	}
	if schema == nil {
		schema = itemSchema(st.items, firstOf(rows))
	}
	var values [][]any
	for _, row := range rows {
		more, err := s.selectOnce(ctx, st, row)
		if err != nil {
			return nil, err
		}
		values = append(values, more...)
	}
	return fromRows(ctx, schema, values), nil
}

func firstOf(rows [][]any) []any {
	if len(rows) == 0 {
		return make([]any, sqltext.MaxParams)
	}
	return rows[0]
}

func (s *session) selectOnce(ctx context.Context, st *parsed, row []any) ([][]any, error) {
	if st.verb == "SHOW" {
		return [][]any{{s.setting(st.name)}}, nil
	}
	if st.source == "" {
		values := make([]any, len(st.items))
		var err error
		for i, it := range st.items {
			if values[i], err = s.evaluate(ctx, it, row); err != nil {
				return nil, err
			}
		}
		return [][]any{values}, nil
	}
	t, err := s.find(s.view(), st.name)
	if err != nil {
		return nil, err
	}
	fits, err := t.filter(st.where, row)
	if err != nil {
		return nil, err
	}
	var found [][]any
	for _, r := range t.rows {
		if fits(r) {
			found = append(found, r)
		}
	}
	if st.count {
		found = [][]any{{int64(len(found))}}
	}
	return found, nil
}

func (s *session) setting(name string) any {
	if name == "schema" {
		return s.at.schema
	}
	if v, ok := s.settings[name]; ok {
		return v
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if of, ok := s.db.settings[name]; ok {
		return of.value
	}
	return nil
}

func (s *session) evaluate(ctx context.Context, it item, row []any) (any, error) {
	switch it.call {
	case "":
		return it.bound(row), nil
	case "sleep":
		d, err := time.ParseDuration(it.arg)
		if err != nil {
			return nil, fmt.Errorf("sleep: %w", err)
		}
		return true, sleep(ctx, d)
	case "current_setting":
		return s.setting(it.arg), nil
	case "current_database":
		return s.at.catalog, nil
	case "current_schema":
		return s.at.schema, nil
	default: // error
		return nil, errors.New(it.arg)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	return engine.Aside(ctx, func() error { return backoff.Sleep(ctx, d) })
}
