package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/util"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// rowGroupBytes bounds what a row group takes before it is written, as Arrow data.
const rowGroupBytes = 16 << 20

// A parquetWriter gathers batches to row groups.
type parquetWriter struct {
	out    *pqarrow.FileWriter
	file   *gate
	schema *arrow.Schema // of what is written: without views, and without lists of fixed size
	held   int64
}

func newParquet(w io.Writer, schema *arrow.Schema) (_ *parquetWriter, err error) {
	defer contain("as Parquet", &err)
	if schema.NumFields() == 0 {
		return nil, errors.New("as Parquet: there is no column")
	}
	for _, f := range schema.Fields() {
		if codesSeconds(f.Type) {
			return nil, fmt.Errorf("as Parquet: column %q: Arrow writes a dictionary of seconds as one of milliseconds", f.Name)
		}
	}
	schema = plainSchema(schema, true)
	properties, err := propertiesOf(schema)
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w", err)
	}
	file := &gate{out: w}
	out, err := pqarrow.NewFileWriter(schema, file, properties, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w", err)
	}
	return &parquetWriter{out: out, file: file, schema: schema}, nil
}

// propertiesOf has no statistics written of texts that are in a dictionary: arrow-go leaves
// the empty text out of the least of them, and readers that go by it pass over its rows. Nor are
// there any of half floats, of which it leaves out those before a NaN, and of what is in lists, of
// which it leaves out values beside NULLs.
func propertiesOf(schema *arrow.Schema) (*parquet.WriterProperties, error) {
	properties := []parquet.WriterProperty{parquet.WithCompression(compress.Codecs.Snappy)}
	columns, err := pqarrow.ToParquet(schema, parquet.NewWriterProperties(properties...), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	var misjudged []bool
	for _, f := range schema.Fields() {
		misjudged = appendMisjudged(misjudged, f.Type)
	}
	for i := range columns.NumColumns() {
		if len(misjudged) != columns.NumColumns() || misjudged[i] || columns.Column(i).MaxRepetitionLevel() > 0 {
			properties = append(properties, parquet.WithStatsPath(columns.Column(i).ColumnPath(), false))
		}
	}
	return parquet.NewWriterProperties(properties...), nil
}

// appendMisjudged appends, for each column of Parquet that a type is, whether arrow-go's statistics
// of its values may be false: it has texts of a dictionary, or half floats.
func appendMisjudged(to []bool, t arrow.DataType) []bool {
	switch t := storageOf(t).(type) {
	case *arrow.DictionaryType:
		return append(to, arrow.IsBaseBinary(storageOf(t.ValueType).ID()))
	case arrow.NestedType:
		for _, f := range t.Fields() {
			to = appendMisjudged(to, f.Type)
		}
		return to
	default:
		return append(to, t.ID() == arrow.FLOAT16)
	}
}

// A gate is what a file is written to. While it holds, what is written waits: where arrow-go
// cannot write a batch, it ends the file, which would look whole.
type gate struct {
	out   io.Writer
	holds bool
	held  bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	if g.holds {
		return g.held.Write(p)
	}
	return g.out.Write(p)
}

// during calls write, and lets through what it has written unless it fails.
func (g *gate) during(write func() error) error {
	g.holds = true
	if err := write(); err != nil {
		return err
	}
	g.holds = false
	_, err := g.held.WriteTo(g.out)
	return err
}

// codesSeconds reports whether a dictionary somewhere in a type has times of seconds.
func codesSeconds(t arrow.DataType) bool {
	switch t := storageOf(t).(type) {
	case *arrow.DictionaryType:
		of, ok := storageOf(t.ValueType).(arrow.TemporalWithUnit)
		return ok && of.TimeUnit() == arrow.Second || codesSeconds(t.ValueType)
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return codesSeconds(f.Type) })
	}
	return false
}

// contain makes an error of a panic: Arrow panics on some types that Parquet lacks.
func contain(form string, err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("%s: %v", form, fault)
	}
}

func (p *parquetWriter) Write(batch arrow.RecordBatch) (err error) {
	defer contain("as Parquet", &err)
	if batch.NumRows() == 0 {
		return nil
	}
	if p.held > rowGroupBytes {
		p.held = 0
		if err := p.out.NewBufferedRowGroupChecked(); err != nil {
			return err
		}
	}
	p.held += util.TotalRecordSize(batch)
	columns := make([]arrow.Array, batch.NumCols())
	for i, col := range batch.Columns() {
		if f := batch.Schema().Field(i); mayLack(f) {
			err = lacking(f, col, everyRow)
		}
		if err == nil {
			columns[i], err = written(col)
		}
		if err != nil {
			return fmt.Errorf("as Parquet: column %q: %w", batch.ColumnName(i), err)
		}
		defer columns[i].Release()
	}
	marked := array.NewRecordBatch(p.schema, columns, batch.NumRows())
	defer marked.Release()
	return p.file.during(func() error { return p.out.WriteBuffered(marked) })
}

// written is a column as arrow-go's writer gets it right.
func written(column arrow.Array) (arrow.Array, error) {
	plain, err := plainData(column.Data())
	if err != nil {
		return nil, err
	}
	defer plain.Release()
	data, err := asWritten(plain, nil)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

// asWritten is d with what arrow-go's writer of Parquet cannot do put right: the members of NULL
// structs are NULL too (markedNull), NULL lists have no items (withoutDeadItems), a dictionary
// without values has a buffer of its indices, which the writer looks into, and none is a slice.
//
// above has the validity bits of the struct that d is a member of: bit i is that of d's
// row i, wherever the struct begins in its buffers. The caller releases the result.
func asWritten(d arrow.ArrayData, above *memory.Buffer) (arrow.ArrayData, error) {
	id := storageOf(d.DataType()).ID()
	if id == arrow.DICTIONARY {
		buffers, nulls := markedNull(d, above)
		if buffers[1] == nil {
			buffers[1] = memory.NewBufferBytes([]byte{})
		}
		values, err := fromTheBeginning(d.Dictionary())
		if err != nil {
			return nil, err
		}
		defer values.Release()
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, nulls, d.Offset(), values.(*array.Data)), nil
	}
	marked := id == arrow.STRUCT || isList(id) || id == arrow.FLOAT16 || arrow.IsDecimal(id)
	if !marked || above == nil && len(d.Children()) == 0 {
		d.Retain()
		return d, nil
	}
	buffers, nulls := markedNull(d, above)
	if isList(id) {
		return withoutDeadItems(d, buffers[0])
	}
	var below *memory.Buffer
	if id == arrow.STRUCT && !isEmpty(buffers[0]) {
		below = buffers[0]
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		of, err := asWritten(child, below)
		if err != nil {
			return nil, err
		}
		defer of.Release()
		children[i] = of
	}
	return array.NewData(plainType(d.DataType(), true), d.Len(), buffers, children, nulls, d.Offset()), nil
}

// fromTheBeginning is a dictionary that is no slice: of the texts of one, arrow-go's writer takes
// others. The caller releases it.
func fromTheBeginning(d arrow.ArrayData) (arrow.ArrayData, error) {
	if d.Offset() == 0 {
		d.Retain()
		return d, nil
	}
	slice := array.MakeFromData(d)
	defer slice.Release()
	whole, err := array.Concatenate([]arrow.Array{slice}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	whole.Data().Retain()
	return whole.Data(), nil
}

// markedNull is d's buffers, and how many NULLs there are, where every member of a NULL
// struct is NULL. Of decimals, half floats and dictionaries that are never NULL themselves, Arrow's
// writer of Parquet writes those of NULL structs as well, so that each row after has the value of
// another.
func markedNull(d arrow.ArrayData, above *memory.Buffer) (buffers []*memory.Buffer, nulls int) {
	buffers = slices.Clone(d.Buffers())
	if above == nil {
		return buffers, d.NullN()
	}
	own := buffers[0]
	valid := make([]byte, bitutil.BytesForBits(int64(d.Offset()+d.Len())))
	for i := range min(d.Len(), 8*above.Len()) {
		bitutil.SetBitTo(valid, d.Offset()+i, bitutil.BitIsSet(above.Bytes(), i) && (isEmpty(own) || bitutil.BitIsSet(own.Bytes(), d.Offset()+i)))
	}
	buffers[0] = memory.NewBufferBytes(valid)
	return buffers, array.UnknownNullCount // without bits, Arrow cannot count
}

// storageOf is what the values of a type are kept as.
func storageOf(t arrow.DataType) arrow.DataType {
	for t.ID() == arrow.EXTENSION {
		t = t.(arrow.ExtensionType).StorageType()
	}
	return t
}

// isEmpty reports whether there are no validity bits: nothing is NULL.
func isEmpty(valid *memory.Buffer) bool { return valid == nil || valid.Len() == 0 }

func (p *parquetWriter) Close() error { return p.out.Close() }
