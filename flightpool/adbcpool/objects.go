package adbcpool

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/session"
)

// tree is ADBC's view of the catalogue while it is gathered. The lists keep
// the server's order.
type tree struct {
	depth    adbc.ObjectDepth
	column   *string // the LIKE pattern of the columns wanted
	catalogs []*catalogNode
}

type catalogNode struct {
	name    string
	schemas []*schemaNode
}

type schemaNode struct {
	name   string
	tables []tableNode
}

type tableNode struct {
	name, kind string
	columns    *arrow.Schema
}

// GetObjects is part of adbc.Connection. Constraints and the XDBC columns are
// null.
func (c *connection) GetObjects(ctx context.Context, depth adbc.ObjectDepth, catalog, dbSchema, table, column *string, types []string) (array.RecordReader, error) {
	t := &tree{depth: depth, column: column}
	err := c.metadata(ctx, session.MetadataRequest{Kind: session.MetadataCatalogs}, func(b arrow.RecordBatch) error {
		for i := range int(b.NumRows()) {
			t.catalog(cell(b, 0, i))
		}
		return nil
	})
	if err == nil && depth != adbc.ObjectDepthCatalogs {
		err = c.metadata(ctx, session.MetadataRequest{Kind: session.MetadataSchemas, Schema: dbSchema}, func(b arrow.RecordBatch) error {
			for i := range int(b.NumRows()) {
				t.catalog(cell(b, 0, i)).schema(cell(b, 1, i))
			}
			return nil
		})
	}
	if err == nil && (depth == adbc.ObjectDepthAll || depth == adbc.ObjectDepthTables) {
		req := session.MetadataRequest{
			Kind: session.MetadataTables, Schema: dbSchema, Table: table, TableTypes: types,
			IncludeColumns: depth == adbc.ObjectDepthAll,
		}
		err = c.metadata(ctx, req, t.addTables)
	}
	if err != nil {
		return nil, err
	}
	if catalog != nil {
		t.catalogs = slices.DeleteFunc(t.catalogs, func(n *catalogNode) bool { return !like(*catalog, n.name) })
	}
	return t.build()
}

func (t *tree) addTables(b arrow.RecordBatch) error {
	for i := range int(b.NumRows()) {
		node := tableNode{name: cell(b, 2, i), kind: cell(b, 3, i)}
		if t.depth == adbc.ObjectDepthAll {
			var err error
			if node.columns, err = columnsOf(b, i); err != nil {
				return err
			}
		}
		s := t.catalog(cell(b, 0, i)).schema(cell(b, 1, i))
		s.tables = append(s.tables, node)
	}
	return nil
}

func (t *tree) catalog(name string) *catalogNode {
	for _, n := range t.catalogs {
		if n.name == name {
			return n
		}
	}
	n := &catalogNode{name: name}
	t.catalogs = append(t.catalogs, n)
	return n
}

func (c *catalogNode) schema(name string) *schemaNode {
	for _, n := range c.schemas {
		if n.name == name {
			return n
		}
	}
	n := &schemaNode{name: name}
	c.schemas = append(c.schemas, n)
	return n
}

// build makes the nested result.
func (t *tree) build() (array.RecordReader, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.GetObjectsSchema)
	defer b.Release()
	schemas := b.Field(1).(*array.ListBuilder)
	schema := schemas.ValueBuilder().(*array.StructBuilder)
	tables := schema.FieldBuilder(1).(*array.ListBuilder)
	for _, c := range t.catalogs {
		b.Field(0).(*array.StringBuilder).Append(c.name)
		if t.depth == adbc.ObjectDepthCatalogs {
			schemas.AppendNull()
			continue
		}
		schemas.Append(true)
		for _, s := range c.schemas {
			schema.Append(true)
			schema.FieldBuilder(0).(*array.StringBuilder).Append(s.name)
			if t.depth == adbc.ObjectDepthDBSchemas {
				tables.AppendNull()
				continue
			}
			tables.Append(true)
			for _, node := range s.tables {
				t.appendTable(tables.ValueBuilder().(*array.StructBuilder), node)
			}
		}
	}
	return one(b)
}

func (t *tree) appendTable(b *array.StructBuilder, node tableNode) {
	b.Append(true)
	b.FieldBuilder(0).(*array.StringBuilder).Append(node.name)
	b.FieldBuilder(1).(*array.StringBuilder).Append(node.kind)
	b.FieldBuilder(3).AppendNull()
	columns := b.FieldBuilder(2).(*array.ListBuilder)
	if node.columns == nil {
		columns.AppendNull()
		return
	}
	columns.Append(true)
	column := columns.ValueBuilder().(*array.StructBuilder)
	for i, f := range node.columns.Fields() {
		if t.column != nil && !like(*t.column, f.Name) {
			continue
		}
		column.Append(true)
		column.FieldBuilder(0).(*array.StringBuilder).Append(f.Name)
		column.FieldBuilder(1).(*array.Int32Builder).Append(int32(i + 1))
		for rest := 2; rest < column.NumField(); rest++ {
			column.FieldBuilder(rest).AppendNull()
		}
	}
}

// like matches name against a LIKE pattern, without escapes.
func like(pattern, name string) bool {
	if pattern == "" {
		return name == ""
	}
	head, rest, more := strings.Cut(pattern, "%")
	if !more {
		return len(head) == len(name) && matchesHere(head, name)
	}
	if len(name) < len(head) || !matchesHere(head, name[:len(head)]) {
		return false
	}
	for i := len(head); i <= len(name); i++ {
		if rest == "" || like(rest, name[i:]) {
			return true
		}
	}
	return false
}

// matchesHere compares texts of one length; "_" matches any byte.
func matchesHere(pattern, name string) bool {
	for i := range len(pattern) {
		if pattern[i] != '_' && pattern[i] != name[i] {
			return false
		}
	}
	return true
}
