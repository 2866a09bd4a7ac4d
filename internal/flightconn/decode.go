package flightconn

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// recordLayout is where the parts of a RecordBatch are in the header of its message. It
// comes of verifyMessage: all positions are within the header, and all buffers within
// the body.
type recordLayout struct {
	rows                          int64
	nodesAt, nodes                int // where they begin, and how many there are
	buffersAt, buffers            int
	variadicAt, variadic          int
	variadicBuffers               int  // the sum of the counts
	variadicGiven                 bool // the vector is there, with entries or without
	compressed, metadata, current bool // current: of the version that is written since Arrow 1.0
}

// plain reports whether batchDecoder can read the batch.
func (l *recordLayout) plain() bool { return l.current && !l.compressed && !l.metadata }

// batchDecoder makes the arrays of one batch, for which Arrow's reader takes twice as
// many allocations. It reads what most results are: batches without compression and
// dictionaries (recordLayout.plain, knownSchema.plain). The others go through Arrow's
// reader, to which it is equal otherwise.
//
// It refuses a batch that has fewer buffers than its schema needs, where Arrow's reader
// takes whatever bytes of the header follow the last for one.
//
// Arrays share the body. Each buffer of theirs has a reference to it, so that a column
// that is kept keeps no more than the body.
type batchDecoder struct {
	verifier
	layout                 recordLayout
	body                   *memory.Buffer
	node, buffer, variadic int // how many were taken
	err                    error
}

var errTooFew = errors.New("the batch has fewer arrays or buffers than its schema needs")

// decodeBatch makes a batch that its caller owns. Nothing is believed of what the
// arrays hold: each is checked (Validator) before it is made. An error leaves what was
// made of the batch to the collector.
func decodeBatch(schema *arrow.Schema, header []byte, layout recordLayout, body *memory.Buffer, check *Validator) (batch arrow.RecordBatch, err error) {
	defer func() { // Arrow's constructors panic; so may the ArrayType of a type of the user's
		if panicked := recover(); panicked != nil {
			batch, err = nil, fmt.Errorf("%v", panicked)
		}
	}()
	d := batchDecoder{verifier: verifier{buf: header}, layout: layout, body: body}
	columns := make([]arrow.Array, schema.NumFields())
	for i := range columns {
		field := schema.Field(i)
		data := d.array(field.Type, field.Type)
		if d.err != nil {
			return nil, fmt.Errorf("column %q: %w", field.Name, d.err)
		}
		if err := check.column(field, data, layout.rows); err != nil {
			return nil, err
		}
		columns[i] = array.MakeFromData(data)
		data.Release()
	}
	batch = array.NewRecordBatch(schema, columns, layout.rows)
	for _, c := range columns {
		c.Release()
	}
	return batch, nil
}

// array makes an array of type t whose memory is laid out as that of another type, by
// which its storage is meant where t is an extension type. It is not nil, but of no use
// after an error.
func (d *batchDecoder) array(t, layout arrow.DataType) *array.Data {
	switch layout := layout.(type) {
	case arrow.ExtensionType:
		return d.array(t, layout.StorageType())
	case *arrow.NullType:
		length, nulls := d.nextNode()
		return array.NewData(t, length, nil, nil, nulls, 0)
	case *arrow.DictionaryType:
		d.err = errors.New("it is dictionary-encoded") // knownSchema.plain excludes it
		return array.NewData(t, 0, nil, nil, 0, 0)
	case *arrow.RunEndEncodedType:
		length, nulls := d.nextNode()
		return d.nested(t, length, nulls, []*memory.Buffer{nil}, layout)
	case arrow.UnionType:
		return d.union(t, layout)
	case *arrow.StructType, *arrow.FixedSizeListType:
		return d.withBuffers(t, 0, layout.(arrow.NestedType))
	case *arrow.ListViewType, *arrow.LargeListViewType:
		return d.withBuffers(t, 2, layout.(arrow.NestedType))
	case arrow.ListLikeType: // maps, too
		return d.withBuffers(t, 1, layout.(arrow.NestedType))
	case arrow.BinaryViewDataType:
		return d.withBuffers(t, 1+d.nextVariadic(), nil)
	case arrow.BinaryDataType:
		return d.withBuffers(t, 2, nil)
	case arrow.FixedWidthDataType:
		return d.withBuffers(t, 1, nil)
	default:
		d.err = fmt.Errorf("type %v is not known here", t)
		return array.NewData(t, 0, nil, nil, 0, 0)
	}
}

// withBuffers makes an array of a validity bitmap, which is looked at only where there
// are nulls, and n buffers more, and the children of its type.
func (d *batchDecoder) withBuffers(t arrow.DataType, n int, children arrow.NestedType) *array.Data {
	length, nulls := d.nextNode()
	buffers := make([]*memory.Buffer, 1+n)
	if nulls == 0 {
		d.buffer++
	} else {
		buffers[0] = d.nextBuffer()
	}
	for i := range n {
		buffers[1+i] = d.nextBuffer()
	}
	return d.nested(t, length, nulls, buffers, children)
}

// union makes an array of type codes and, if it is dense, offsets. It has no validity,
// and no nulls of its own.
func (d *batchDecoder) union(t arrow.DataType, layout arrow.UnionType) *array.Data {
	length, _ := d.nextNode()
	buffers := []*memory.Buffer{nil, d.nextBuffer()}
	if layout.Mode() == arrow.DenseMode {
		buffers = append(buffers, d.nextBuffer())
	}
	return d.nested(t, length, 0, buffers, layout)
}

// nested ends an array with the children of its type, which is nil if there are none. The
// references in buffers become those of the array.
func (d *batchDecoder) nested(t arrow.DataType, length, nulls int, buffers []*memory.Buffer, of arrow.NestedType) *array.Data {
	var children []arrow.ArrayData
	if of != nil && d.err == nil {
		children = make([]arrow.ArrayData, 0, of.NumFields())
		for _, f := range of.Fields() {
			children = append(children, d.array(f.Type, f.Type))
			if d.err != nil {
				break
			}
		}
	}
	data := array.NewData(t, length, buffers, children, nulls, 0)
	memory.ReleaseBuffers(buffers)
	for _, c := range children {
		c.Release()
	}
	return data
}

// nextNode is the length and the number of nulls of the next array.
func (d *batchDecoder) nextNode() (length, nulls int) {
	if d.node >= d.layout.nodes {
		d.err = errTooFew
		return 0, 0
	}
	at := d.layout.nodesAt + 16*d.node
	d.node++
	return int(d.i64(at)), int(d.i64(at + 8))
}

// nextBuffer is the next buffer, nil after an error. The caller owns the reference.
func (d *batchDecoder) nextBuffer() *memory.Buffer {
	if d.buffer >= d.layout.buffers {
		d.err = errTooFew
		return nil
	}
	at := d.layout.buffersAt + 16*d.buffer
	d.buffer++
	from, size := int(d.i64(at)), int(d.i64(at+8))
	if size == 0 {
		return memory.NewBufferBytes(nil)
	}
	return memory.SliceBuffer(d.body, from, size)
}

// nextVariadic is how many buffers the next array of views has: none where the batch counts them
// for no array.
func (d *batchDecoder) nextVariadic() int {
	if !d.layout.variadicGiven {
		return 0
	}
	if d.variadic >= d.layout.variadic {
		d.err = errTooFew
		return 0
	}
	at := d.layout.variadicAt + 8*d.variadic
	d.variadic++
	return int(d.i64(at))
}
