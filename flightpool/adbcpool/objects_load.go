package adbcpool

import (
	"context"
	"slices"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/flightpool/flightpool/backend"
	"github.com/flightpool/flightpool/internal/adbcconn"
)

// objectTree is ADBC's view of the catalogue while it is gathered. The lists keep
// the server's order.
type objectTree struct {
	depth    adbc.ObjectDepth
	column   *string // the LIKE pattern of the columns wanted
	catalogs []*catalogNode
}

// group is a catalogue with its schemas, or a schema with its tables. The name is nil
// where the server has none: it has no catalogues, or no schemas.
type group[M any] struct {
	name    *string
	members []M
}

type (
	schemaNode  = group[*tableNode]
	catalogNode = group[*schemaNode]
)

type tableNode struct {
	name, kind  string
	columns     *arrow.Schema
	constraints []constraint
	keysKnown   bool // the server tells constraints
}

// GetObjects is part of adbc.Connection. Patterns are the server's own LIKE for
// schemas and tables; for catalogues and columns, which servers do not filter,
// "\" before "_" or "%" takes it literally. An empty pattern means objects without
// a catalogue or schema.
//
// At full depth constraints cost two calls a table, see OptionConstraints; they
// are null where the server does not tell them. What a column has beside its
// type is taken from the field's metadata.
func (c *connection) GetObjects(ctx context.Context, depth adbc.ObjectDepth, catalog, dbSchema, table, column *string, types []string) (array.RecordReader, error) {
	if depth < adbc.ObjectDepthAll || depth > adbc.ObjectDepthTables {
		return nil, newADBCError(adbc.StatusInvalidArgument, "GetObjects: the depth does not exist")
	}
	t := &objectTree{depth: depth, column: column}
	if err := c.loadObjects(ctx, t, dbSchema, table, types); err != nil {
		return nil, err
	}
	if catalog != nil {
		t.catalogs = slices.DeleteFunc(t.catalogs, func(n *catalogNode) bool { return !adbcconn.Like(*catalog, orEmpty(n.name)) })
	}
	if dbSchema != nil && *dbSchema == "" {
		for _, n := range t.catalogs {
			n.members = slices.DeleteFunc(n.members, func(s *schemaNode) bool { return orEmpty(s.name) != "" })
		}
	}
	if depth == adbc.ObjectDepthColumns && !c.omitConstraints {
		if err := c.addConstraints(ctx, t); err != nil {
			return nil, err
		}
	}
	return t.build()
}

// loadObjects asks for what the depth needs.
func (c *connection) loadObjects(ctx context.Context, t *objectTree, dbSchema, table *string, types []string) error {
	if dbSchema != nil && *dbSchema == "" {
		dbSchema = nil // those without a schema match no pattern on the server
	}
	err := c.metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataCatalogs}, func(b arrow.RecordBatch, row int) error {
		groupNamed(&t.catalogs, optional(b, 0, row))
		return nil
	})
	if err != nil || t.depth == adbc.ObjectDepthCatalogs {
		return err
	}
	err = c.metadata(ctx, backend.MetadataRequest{Kind: backend.MetadataSchemas, Schema: dbSchema}, func(b arrow.RecordBatch, row int) error {
		t.schemaOf(b, row)
		return nil
	})
	if err != nil || t.depth == adbc.ObjectDepthDBSchemas {
		return err
	}
	return c.metadata(ctx, backend.MetadataRequest{
		Kind: backend.MetadataTables, Schema: dbSchema, Table: table, TableTypes: types,
		IncludeColumns: t.depth == adbc.ObjectDepthColumns,
	}, t.addTable)
}

func (t *objectTree) addTable(b arrow.RecordBatch, row int) error {
	node := &tableNode{name: textCell(b, 2, row), kind: textCell(b, 3, row)}
	if t.depth == adbc.ObjectDepthColumns {
		var err error
		if node.columns, err = columnsOf(b, row); err != nil {
			return err
		}
	}
	s := t.schemaOf(b, row)
	s.members = append(s.members, node)
	return nil
}

// schemaOf is the schema that a row names by its first two columns.
func (t *objectTree) schemaOf(b arrow.RecordBatch, row int) *schemaNode {
	return groupNamed(&groupNamed(&t.catalogs, optional(b, 0, row)).members, optional(b, 1, row))
}

// groupNamed finds the group of a name, or adds it.
func groupNamed[M any](all *[]*group[M], name *string) *group[M] {
	for _, g := range *all {
		if sameName(g.name, name) {
			return g
		}
	}
	g := &group[M]{name: name}
	*all = append(*all, g)
	return g
}

// sameName compares names, of which servers may give an absent one as empty.
func sameName(a, b *string) bool { return orEmpty(a) == orEmpty(b) }

func orEmpty(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// optional is a copy of a text, or nil for NULL.
func optional(batch arrow.RecordBatch, column, row int) *string {
	if text, ok := cell[string](batch, column, row); ok {
		return &text
	}
	return nil
}

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
		for _, schema := range catalog.members {
			for _, table := range schema.members {
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

func (k tableKeys) addPrimary(b arrow.RecordBatch, row int) error {
	if !k.containsRow(b, row, 0) {
		return nil
	}
	if len(k.table.constraints) == 0 {
		k.table.constraints = append(k.table.constraints, constraint{name: optional(b, 5, row), kind: "PRIMARY KEY"})
	}
	key := &k.table.constraints[0]
	key.columns = append(key.columns, textCell(b, 3, row))
	return nil
}

// addForeign takes the rows of a key together, which come one after the other.
func (k tableKeys) addForeign(b arrow.RecordBatch, row int) error {
	if !k.containsRow(b, row, 4) {
		return nil
	}
	key := k.foreignKeyFor(optional(b, 9, row), sequence(b, row))
	key.columns = append(key.columns, textCell(b, 7, row))
	key.references = append(key.references, reference{optional(b, 0, row), optional(b, 1, row), textCell(b, 2, row), textCell(b, 3, row)})
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
	place, _ := cell[int32](b, 8, row)
	return place
}

// unlessUnsupported is nil for the error of a call that the server lacks.
func unlessUnsupported(err error) error {
	if backend.FaultIn(err) == backend.FaultUnsupported {
		return nil
	}
	return err
}
