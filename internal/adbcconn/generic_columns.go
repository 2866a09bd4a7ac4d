package adbcconn

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/backend"
)

// tableName names a table; a catalog or schema that is nil is none.
type tableName struct {
	catalog, schema *string
	table           string
}

// addColumns asks for the columns of every table, once the tree is known. It
// costs one call of the driver for each table. The caller holds driverLock.
func (c *GenericConn) addColumns(ctx context.Context, f *objectFlattener) error {
	for _, t := range f.tables {
		columns, err := c.columnsOf(ctx, f.tables, t)
		if err != nil {
			return err
		}
		f.Field(4).(*array.BinaryBuilder).Append(flight.SerializeSchema(columns, memory.DefaultAllocator))
	}
	return nil
}

// columnsOf is the schema of t. The Flight SQL driver takes names for LIKE
// patterns and the first match for the table: where another table matches, the
// schema is that of a query, which is prepared and not run.
func (c *GenericConn) columnsOf(ctx context.Context, all []tableName, t tableName) (*arrow.Schema, error) {
	if !c.isFlightSQL || !slices.ContainsFunc(all, t.matchesOther) {
		return c.cn.GetTableSchema(ctx, t.catalog, t.schema, t.table)
	}
	stmt, err := c.prepare(ctx, "SELECT * FROM "+t.quoted(), backend.Call{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = stmt.Close() }()
	if schema := preparedResultSchema(ctx, stmt); schema != nil {
		return schema, nil
	}
	return nil, fmt.Errorf("the columns of %s cannot be told from those of another table", t.quoted())
}

// matchesOther reports whether t's names, as patterns, match another table.
func (t tableName) matchesOther(other tableName) bool {
	return t.quoted() != other.quoted() && orEmpty(t.catalog) == orEmpty(other.catalog) &&
		(t.schema == nil || Like(*t.schema, orEmpty(other.schema))) && Like(t.table, other.table)
}

// quoted is the name as standard SQL writes it, with the parts that it has.
func (t tableName) quoted() string {
	var parts []string
	for _, name := range []string{orEmpty(t.catalog), orEmpty(t.schema), t.table} {
		if name != "" {
			parts = append(parts, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`)
		}
	}
	return strings.Join(parts, ".")
}
