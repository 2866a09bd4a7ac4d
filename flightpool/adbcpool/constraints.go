package adbcpool

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
)

// constraint is a primary or foreign key.
type constraint struct {
	name         *string
	kind         string // as ADBC names it
	columns      []string
	references   []reference // of a foreign key, in the order of columns
	lastSequence int32       // the place of the last column, of a foreign key
}

// reference is a column that a foreign key refers to.
type reference struct {
	catalog, schema *string
	table, column   string
}

// addConstraints asks for the keys of every table of t. A server without such a
// call is asked once.
func (c *connection) addConstraints(ctx context.Context, t *objectTree) error {
	for _, catalog := range t.catalogs {
		for _, schema := range catalog.schemas {
			for _, table := range schema.tables {
				if known, err := c.loadKeys(ctx, tableKeys{catalog.name, schema.name, table}); err != nil || !known {
					return err
				}
				table.keysKnown = true
			}
		}
	}
	return nil
}

// tableKeys gathers the keys of a table.
type tableKeys struct {
	catalog, schema *string
	table           *tableNode
}

// containsRow reports whether a row is of the table's: some servers take its name for a
// pattern, or know no catalogues and schemas in the rows of keys.
func (k tableKeys) containsRow(b arrow.RecordBatch, row, catalog int) bool {
	inCatalog, inSchema := optional(b, catalog, row), optional(b, catalog+1, row)
	return (inCatalog == nil || sameName(inCatalog, k.catalog)) && (inSchema == nil || sameName(inSchema, k.schema)) &&
		textCell(b, catalog+2, row) == k.table.name
}

// loadKeys asks for those of one table. It is false where the server has no call for
// any.
func (c *connection) loadKeys(ctx context.Context, k tableKeys) (known bool, err error) {
	req := backend.MetadataRequest{Kind: backend.MetadataPrimaryKeys, Table: &k.table.name}
	if err := c.metadata(ctx, req, k.addPrimary); err != nil {
		return false, unlessUnsupported(err)
	}
	req.Kind = backend.MetadataImportedKeys
	return true, unlessUnsupported(c.metadata(ctx, req, k.addForeign))
}

func (k tableKeys) addPrimary(b arrow.RecordBatch) error {
	for i := range int(b.NumRows()) {
		if !k.containsRow(b, i, 0) {
			continue
		}
		if len(k.table.constraints) == 0 {
			k.table.constraints = append(k.table.constraints, constraint{name: optional(b, 5, i), kind: "PRIMARY KEY"})
		}
		key := &k.table.constraints[0]
		key.columns = append(key.columns, textCell(b, 3, i))
	}
	return nil
}

// addForeign takes the rows of a key together, which come one after the other.
func (k tableKeys) addForeign(b arrow.RecordBatch) error {
	for i := range int(b.NumRows()) {
		if !k.containsRow(b, i, 4) {
			continue
		}
		key := k.foreignKeyFor(optional(b, 9, i), sequence(b, i))
		key.columns = append(key.columns, textCell(b, 7, i))
		key.references = append(key.references, reference{optional(b, 0, i), optional(b, 1, i), textCell(b, 2, i), textCell(b, 3, i)})
	}
	return nil
}

// foreignKeyFor is the key that a row belongs to: the last one, unless the row has
// another name or begins anew.
func (k tableKeys) foreignKeyFor(name *string, at int32) *constraint {
	all := &k.table.constraints
	if n := len(*all); n > 0 {
		if last := &(*all)[n-1]; last.kind == foreignKey && sameName(last.name, name) && at > last.lastSequence {
			last.lastSequence = at
			return last
		}
	}
	*all = append(*all, constraint{name: name, kind: foreignKey, lastSequence: at})
	return &(*all)[len(*all)-1]
}

const foreignKey = "FOREIGN KEY"

// sequence is the place of a row's column in its key.
func sequence(b arrow.RecordBatch, row int) int32 {
	if places, ok := b.Column(8).(*array.Int32); ok && places.IsValid(row) {
		return places.Value(row)
	}
	return 0
}

// unlessUnsupported is nil for the error of a call that the server lacks.
func unlessUnsupported(err error) error {
	if backend.FaultIn(err) == backend.FaultUnsupported {
		return nil
	}
	return err
}
