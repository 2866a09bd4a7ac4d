package adbcpool

import (
	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/flightpool/flightpool/internal/adbcconn"
)

// build makes the nested result.
func (t *objectTree) build() (array.RecordReader, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, adbc.GetObjectsSchema)
	defer b.Release()
	schemas := b.Field(1).(*array.ListBuilder)
	schema := schemas.ValueBuilder().(*array.StructBuilder)
	tables := schema.FieldBuilder(1).(*array.ListBuilder)
	for _, c := range t.catalogs {
		appendText(b.Field(0), c.name)
		if t.depth == adbc.ObjectDepthCatalogs {
			schemas.AppendNull()
			continue
		}
		schemas.Append(true)
		for _, s := range c.schemas {
			schema.Append(true)
			appendText(schema.FieldBuilder(0), s.name)
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
	return singleBatchReader(b)
}

func (t *objectTree) appendTable(b *array.StructBuilder, node *tableNode) {
	b.Append(true)
	b.FieldBuilder(0).(*array.StringBuilder).Append(node.name)
	b.FieldBuilder(1).(*array.StringBuilder).Append(node.kind)
	appendConstraints(b.FieldBuilder(3).(*array.ListBuilder), node)
	columns := b.FieldBuilder(2).(*array.ListBuilder)
	if node.columns == nil {
		columns.AppendNull()
		return
	}
	columns.Append(true)
	column := columns.ValueBuilder().(*array.StructBuilder)
	for i, f := range node.columns.Fields() {
		if t.column != nil && !adbcconn.Like(*t.column, f.Name) {
			continue
		}
		column.Append(true)
		column.FieldBuilder(0).(*array.StringBuilder).Append(f.Name)
		column.FieldBuilder(1).(*array.Int32Builder).Append(int32(i + 1))
		appendXDBC(column, f)
	}
}

func appendConstraints(b *array.ListBuilder, node *tableNode) {
	if !node.keysKnown {
		b.AppendNull()
		return
	}
	b.Append(true)
	item := b.ValueBuilder().(*array.StructBuilder)
	for _, c := range node.constraints {
		item.Append(true)
		appendText(item.FieldBuilder(0), c.name)
		item.FieldBuilder(1).(*array.StringBuilder).Append(c.kind)
		names := item.FieldBuilder(2).(*array.ListBuilder)
		names.Append(true)
		for _, column := range c.columns {
			names.ValueBuilder().(*array.StringBuilder).Append(column)
		}
		usages := item.FieldBuilder(3).(*array.ListBuilder)
		if c.references == nil {
			usages.AppendNull()
			continue
		}
		usages.Append(true)
		usage := usages.ValueBuilder().(*array.StructBuilder)
		for _, to := range c.references {
			usage.Append(true)
			appendText(usage.FieldBuilder(0), to.catalog)
			appendText(usage.FieldBuilder(1), to.schema)
			usage.FieldBuilder(2).(*array.StringBuilder).Append(to.table)
			usage.FieldBuilder(3).(*array.StringBuilder).Append(to.column)
		}
	}
}

func appendText(b array.Builder, v *string) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.(*array.StringBuilder).Append(*v)
}
