package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/flightpool"
)

// column is a column of text of a catalogue call's rows, in order.
func column(name string, result *flightpool.QueryResult, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer result.Release()
	var all []string
	for result.Next() {
		b := result.RecordBatch()
		for _, i := range b.Schema().FieldIndices(name) {
			values, ok := b.Column(i).(*array.String)
			if !ok {
				return nil, fmt.Errorf("%s is of type %s", name, b.Column(i).DataType())
			}
			for row := range values.Len() {
				all = append(all, values.Value(row))
			}
		}
	}
	slices.Sort(all)
	return all, result.Err()
}

// tables fails unless a filter has these tables.
func tables(ctx context.Context, pool *flightpool.FlightSQLPool, f flightpool.TableFilter, want ...string) error {
	result, err := pool.Tables(ctx, f)
	got, err := column("table_name", result, err)
	return errors.Join(err, equal("tables", got, want))
}

func patterns(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := errors.Join(table(ctx, pool, "like_1"), table(ctx, pool, "likex1")); err != nil {
		return "", err
	}
	escaped, open := `like\_1`, "lik%1"
	schema := d.schema
	if schema != "" {
		schema = "p_b%" // is that of "public"
	}
	result, err := pool.Schemas(ctx, nil, &schema)
	schemas, err := column("db_schema_name", result, err)
	return "", errors.Join(err, equal("schemas", schemas, []string{d.schema}),
		tables(ctx, pool, flightpool.TableFilter{TablePattern: &escaped}, "like_1"),
		tables(ctx, pool, flightpool.TableFilter{TablePattern: &open}, "like_1", "likex1"),
		tables(ctx, pool, flightpool.TableFilter{SchemaPattern: &schema, TablePattern: &open}, "like_1", "likex1"))
}

func types(ctx context.Context, d *database, pool *flightpool.FlightSQLPool) (string, error) {
	if err := table(ctx, pool, "typed", 1); err != nil {
		return "", err
	}
	if _, err := pool.Update(ctx, "CREATE VIEW typed_view AS SELECT n FROM typed"); err != nil {
		return "", err
	}
	pattern := "typed%"
	for range 10 {
		beside := litter()
		for kind, want := range map[string]string{"table": "typed", "view": "typed_view"} {
			f := flightpool.TableFilter{SchemaPattern: &d.schema, TablePattern: &pattern, Types: make([]string, typesAtOnce)}
			f.Types[0] = kind
			if err := tables(ctx, pool, f, want); err != nil {
				return "", err
			}
		}
		runtime.KeepAlive(beside)
	}
	return "", nil
}

// typesAtOnce is how many types fill the list that the driver manager makes of them, as large as a neighbour.
const typesAtOnce = 8

// A neighbour is a place in memory that is no pointer, and no end of a list of them.
type neighbour struct {
	words [typesAtOnce - 1]uintptr
	_     *byte // as a list has, so that both are kept together
}

// litter has the next lists of types lie beside neighbours, so that a driver that reads beyond one's end ends
// the process.
func litter() []*neighbour {
	all := make([]*neighbour, 1<<14)
	for i := range all {
		all[i] = &neighbour{words: [typesAtOnce - 1]uintptr{1, 1, 1, 1, 1, 1, 1}}
	}
	for i := 0; i < len(all); i += 2 {
		all[i] = nil
	}
	runtime.GC()
	return all
}

// emptyCatalogue asks for what no catalogue has: tables without one, and one by a name that is none.
func emptyCatalogue(ctx context.Context, _ *database, pool *flightpool.FlightSQLPool) (string, error) {
	none, missing := "", "missing"
	return "", errors.Join(tables(ctx, pool, flightpool.TableFilter{Catalog: &none}),
		tables(ctx, pool, flightpool.TableFilter{Catalog: &missing}),
		tables(ctx, pool, flightpool.TableFilter{TablePattern: &missing}))
}
