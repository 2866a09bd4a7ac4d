package flightconn

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	mathbits "math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// maxInflationFactor is how many times MaxMessage the compressed buffers of one message
// may become.
const maxInflationFactor = 16

// maxInflated bounds the bytes that the buffers of one message may become. It
// also bounds all dictionaries of a stream together.
func (cfg *Config) maxInflated() int64 { return maxInflationFactor * int64(cfg.MaxMessage) }

// reject says what is wrong. Only the first reason counts.
func (v *verifier) reject(format string, args ...any) {
	if !v.invalid {
		v.err = fmt.Errorf(format, args...)
	}
	v.invalid = true
}

// i64 is an element that a vector has room for.
func (v *verifier) i64(at int) int64 { return int64(binary.LittleEndian.Uint64(v.buf[at:])) }

// record checks a RecordBatch and returns where its parts are: its rows, the nodes of its arrays, where its
// buffers lie, and the counts of variadic buffers. Nothing of it is allocated
// before: a node or buffer takes 16 bytes of the header. Which buffers belong
// to which array is for Arrow's reader to see, by the schema.
func (v *verifier) record(t table) (l recordLayout) {
	l.rows = v.int64Field(t, 0)
	v.rows(l.rows)
	l.nodesAt, l.nodes = v.vector(t, 1, 16)
	for i := range l.nodes {
		v.rows(v.i64(l.nodesAt + 16*i))
	}
	l.buffersAt, l.buffers = v.vector(t, 2, 16)
	l.compressed = v.field(t, 3) != 0
	v.buffers(l.buffersAt, l.buffers, l.compressed, l.compressed && v.byteAt(v.ref(t, 3), 0) == codecZstd)
	l.variadicAt, l.variadic = v.vector(t, 4, 8)
	l.variadicGiven = v.field(t, 4) != 0
	left := int64(l.buffers)
	for i := range l.variadic {
		n := v.i64(l.variadicAt + 8*i)
		if n < 0 || n > left {
			v.reject("%d variadic buffers of %d buffers", n, l.buffers)
			return l
		}
		left -= n
		l.variadicBuffers += int(n)
	}
	return l
}

// rows refuses more than other implementations of Arrow would take. Numbers of
// rows are added and multiplied further on, where larger ones would wrap round.
func (v *verifier) rows(n int64) {
	if n < 0 || n > math.MaxInt32 {
		v.reject("%d rows in one batch", n)
	}
}

// buffers checks that each lies in the body, and what compressed ones say that
// they will be. A compressed buffer begins with its length when decompressed,
// in 8 bytes, which is what Arrow's reader allocates; -1 there means that it
// was left as it is. All of a message together may be as long as v.limit.
func (v *verifier) buffers(at, count int, compressed, zstd bool) {
	left := v.limit
	for i := range count {
		from, size := v.i64(at+16*i), v.i64(at+16*i+8)
		if size == 0 {
			continue
		}
		if from < 0 || size < 0 || size > int64(len(v.body))-from {
			v.reject("buffer %d has %d bytes from %d of a body of %d", i, size, from, len(v.body))
			return
		}
		if !compressed {
			continue
		}
		if size < 8 {
			v.reject("compressed buffer %d has %d bytes", i, size)
			return
		}
		inflated := int64(binary.LittleEndian.Uint64(v.body[from:]))
		if inflated == -1 { // it is not compressed after all
			continue
		}
		if inflated < 0 || inflated > left {
			v.reject("buffer %d claims to be %d bytes, which makes more than %d in one message", i, inflated, v.limit)
			return
		}
		if zstd {
			if window := zstdWindow(v.body[from+8 : from+size]); window > uint64(max(inflated, maxZstdWindow)) {
				v.reject("buffer %d of %d bytes needs a window of %d to be decompressed", i, inflated, window)
				return
			}
		}
		left -= inflated
		v.inflatedBytes += inflated
	}
}

// Validator checks the batches of one stream for everything that reading
// their values relies on: that buffers are as long as the rows need, and that
// offsets, indices, type codes and run ends point to what is there. Arrow's
// reader believes them, and a value then panics when it is read, or is made of
// other memory. Text is not checked to be UTF-8.
//
// Its zero value is ready. It belongs to one goroutine.
//
// It costs a pass over offsets and indices, and nothing for values of a fixed
// width. Whoever reads a value of a batch that was checked need not look at
// bounds again.
type Validator struct {
	// dictionaries were found valid; most batches share theirs with the one
	// before.
	dictionaries map[arrow.ArrayData]struct{}

	maxValue int64 // bytes that one value may become; 0: see checkUnfolded
}

// Check returns what is wrong with batch, as a malformed reply.
func (v *Validator) Check(batch arrow.RecordBatch) error {
	if err := v.batch(batch); err != nil {
		return malformed("batch: %w", err)
	}
	return nil
}

// batch checks each column, and that all have as many rows as the batch says.
func (v *Validator) batch(batch arrow.RecordBatch) error {
	for i, column := range batch.Columns() {
		if err := v.column(batch.Schema().Field(i), column.Data(), batch.NumRows()); err != nil {
			return err
		}
	}
	return nil
}

// column checks one column of a batch.
func (v *Validator) column(field arrow.Field, data arrow.ArrayData, rows int64) error {
	if int64(data.Len()) != rows {
		return fmt.Errorf("column %q has %d rows of %d", field.Name, data.Len(), rows)
	}
	err := v.array(data, data.DataType())
	if err == nil {
		err = checkUnfolded(data, data.DataType(), float64(v.maxValue))
	}
	if err != nil {
		return fmt.Errorf("column %q: %w", field.Name, err)
	}
	return nil
}

// array checks an array of type t, down to its children and dictionary. Types
// that are not known here are refused: what they are made of cannot be checked.
func (v *Validator) array(d arrow.ArrayData, t arrow.DataType) error {
	if e, ok := t.(arrow.ExtensionType); ok {
		return v.array(d, e.StorageType())
	}
	end := d.Offset() + d.Len()
	if d.Len() < 0 || d.Offset() < 0 || end < 0 {
		return fmt.Errorf("%d rows from %d", d.Len(), d.Offset())
	}
	if _, null := t.(*arrow.NullType); null {
		setNulls(d, d.Len())
		return nil
	}
	bitmap := bytesOf(d, 0)
	if len(bitmap) > 0 && int64(len(bitmap))*8 < int64(end) {
		return fmt.Errorf("validity of %d bytes for %d rows", len(bitmap), end)
	}
	if err := checkNulls(d, bitmap); err != nil {
		return err
	}
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return v.dictionary(d, t)
	case *arrow.RunEndEncodedType:
		return v.runs(d, t)
	case *arrow.StructType:
		return v.children(d, t.Fields(), end)
	case arrow.UnionType:
		return v.union(d, t)
	case *arrow.FixedSizeListType:
		if t.Len() < 0 {
			return fmt.Errorf("lists of %d elements", t.Len())
		}
		return v.children(d, t.Fields(), end*int(t.Len()))
	case arrow.ListLikeType:
		if err := v.child(d, 0, t.ElemField(), 0); err != nil {
			return err
		}
		return checkLists(d, t)
	case arrow.BinaryViewDataType:
		return checkViews(d)
	case arrow.BinaryDataType:
		return checkVariableWidth(d, t.ID() == arrow.LARGE_BINARY || t.ID() == arrow.LARGE_STRING, len(bytesOf(d, 2)))
	case arrow.FixedWidthDataType:
		return cmp.Or(checkDigits(t), checkFixedWidth(d, t))
	default:
		return fmt.Errorf("type %v is not known here", t)
	}
}

// bytesOf is a buffer of an array, empty if it has none. A number beyond the
// last is no error: the check of its length fails then.
func bytesOf(d arrow.ArrayData, n int) []byte {
	if buffers := d.Buffers(); n < len(buffers) && buffers[n] != nil {
		return buffers[n].Bytes()
	}
	return nil
}

// checkNulls checks how many nulls there are said to be. Arrow counts them in the bitmap
// where that is less than none, which stands for unknown; without a bitmap there are none.
func checkNulls(d arrow.ArrayData, bitmap []byte) error {
	switch n := d.NullN(); {
	case n > d.Len(), n > 0 && len(bitmap) == 0:
		return fmt.Errorf("%d nulls in %d rows and a validity of %d bytes", n, d.Len(), len(bitmap))
	case n < 0 && len(bitmap) == 0:
		setNulls(d, 0)
	}
	return nil
}

// setNulls sets how many nulls there are. A dictionary that was found to have so many may be
// read meanwhile.
func setNulls(d arrow.ArrayData, n int) {
	if d.NullN() != n {
		d.(*array.Data).SetNullN(n) //nolint:forcetypeassert // there is no other
	}
}

// checkDigits refuses a decimal whose type has more digits than its values can have. A text
// of a value would have them all, which may be more than the memory has room for, and
// Arrow panics where it has no power of ten for the scale.
func checkDigits(t arrow.FixedWidthDataType) error {
	decimal, ok := t.(arrow.DecimalType)
	if !ok {
		return nil
	}
	limit := int32(decimal128.MaxPrecision)
	if t.ID() == arrow.DECIMAL256 {
		limit = decimal256.MaxPrecision
	}
	if scale := decimal.GetScale(); scale < -limit || scale > limit || decimal.GetPrecision() > limit {
		return fmt.Errorf("%v has more than %d digits", t, limit)
	}
	return nil
}

// checkFixedWidth checks that there are values of a fixed width for all rows.
// It is a bound in bits, rounded up: a boolean takes one.
func checkFixedWidth(d arrow.ArrayData, t arrow.FixedWidthDataType) error {
	rows, width := uint64(d.Offset()+d.Len()), uint64(max(t.BitWidth(), 0))
	over, bits := mathbits.Mul64(rows, width) // both may be 2^34: what wraps round would pass
	if t.BitWidth() < 0 || over != 0 || (bits+7)/8 > uint64(len(bytesOf(d, 1))) {
		return fmt.Errorf("values of %d bytes for %d rows of %v", len(bytesOf(d, 1)), d.Offset()+d.Len(), t)
	}
	return nil
}
