package export

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

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
	schema *arrow.Schema // of what is written: without views
	held   int64
}

func newParquet(w io.Writer, schema *arrow.Schema) (_ *parquetWriter, err error) {
	defer contain(&err)
	if schema.NumFields() == 0 {
		return nil, errors.New("as Parquet: there is no column")
	}
	for _, f := range schema.Fields() {
		if strings.Contains(f.Type.String(), "dictionary<values=timestamp[s") {
			return nil, fmt.Errorf("as Parquet: column %q: Arrow writes a dictionary of seconds as one of milliseconds", f.Name)
		}
	}
	schema = plainSchema(schema)
	out, err := pqarrow.NewFileWriter(schema, struct{ io.Writer }{w}, // Close must not close w
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, fmt.Errorf("as Parquet: %w", err)
	}
	return &parquetWriter{out: out, schema: schema}, nil
}

// contain makes an error of a panic: Arrow panics on some types that Parquet lacks.
func contain(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("as Parquet: %v", fault)
	}
}

func (p *parquetWriter) Write(batch arrow.RecordBatch) (err error) {
	defer contain(&err)
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
	return p.out.WriteBuffered(marked)
}

// written is a column as arrow-go's writer gets it right.
func written(column arrow.Array) (arrow.Array, error) {
	whole, err := fromItsBegin(column)
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	plain, err := plainData(whole.Data())
	if err != nil {
		return nil, err
	}
	defer plain.Release()
	data := withNullMembers(plain, nil)
	defer data.Release()
	return array.MakeFromData(data), nil
}

// fromItsBegin is a column whose lists of fixed size begin where their buffers do. Of a
// slice, arrow-go's writer of Parquet writes the rows that stand before it.
func fromItsBegin(column arrow.Array) (arrow.Array, error) {
	if !strings.Contains(column.DataType().String(), "fixed_size_list") || !isSlice(column.Data()) {
		column.Retain()
		return column, nil
	}
	return array.Concatenate([]arrow.Array{column}, memory.DefaultAllocator)
}

// isSlice reports whether a column, or what it consists of, begins in the middle of its buffers.
func isSlice(d arrow.ArrayData) bool {
	return d.Offset() > 0 || slices.ContainsFunc(d.Children(), isSlice)
}

// withNullMembers is d, the members of whose NULL structs are NULL too. Of decimals,
// half floats and dictionaries that are never NULL themselves, Arrow's writer of Parquet
// writes those of NULL structs as well, so that each row after has the value of another.
//
// above has the validity bits of the struct that d is a member of: bit i is that of d's
// row i, wherever the struct begins in its buffers. The caller releases the result.
func withNullMembers(d arrow.ArrayData, above *memory.Buffer) arrow.ArrayData {
	id, buffers := storageOf(d.DataType()).ID(), slices.Clone(d.Buffers())
	marked := above != nil && (id == arrow.STRUCT || id == arrow.DICTIONARY || id == arrow.FLOAT16 || arrow.IsDecimal(id))
	if !marked && len(d.Children()) == 0 {
		d.Retain()
		return d
	}
	if marked {
		own := buffers[0]
		valid := make([]byte, bitutil.BytesForBits(int64(d.Offset()+d.Len())))
		for i := range min(d.Len(), 8*above.Len()) {
			bitutil.SetBitTo(valid, d.Offset()+i, bitutil.BitIsSet(above.Bytes(), i) && (isEmpty(own) || bitutil.BitIsSet(own.Bytes(), d.Offset()+i)))
		}
		buffers[0] = memory.NewBufferBytes(valid)
	}
	var below *memory.Buffer
	if id == arrow.STRUCT && !isEmpty(buffers[0]) {
		below = buffers[0]
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		children[i] = withNullMembers(child, below)
		defer children[i].Release()
	}
	nulls := d.NullN()
	if marked {
		nulls = array.UnknownNullCount // without bits, Arrow cannot count
	}
	if id == arrow.DICTIONARY {
		return array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, nulls, d.Offset(), d.Dictionary().(*array.Data))
	}
	return array.NewData(d.DataType(), d.Len(), buffers, children, nulls, d.Offset())
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
