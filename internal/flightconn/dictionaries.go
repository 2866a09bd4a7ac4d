package flightconn

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// All batches that Arrow's reader makes of a stream share its dictionaries. With
// each batch it sets again, in a dictionary whose values have dictionaries of
// their own, which those are: whoever reads or keeps the batch before would see
// them change, or vanish meanwhile.

// nestsDictionaries reports whether a dictionary of schema has values with
// dictionaries. Only such streams pay for withOwnDictionaries.
func nestsDictionaries(schema *arrow.Schema) bool {
	return slices.ContainsFunc(schema.Fields(), func(f arrow.Field) bool { return dictionariesIn(f.Type) > 1 })
}

// dictionariesIn is how deep dictionaries are nested in a type. Extension types
// count as what they are stored as.
func dictionariesIn(t arrow.DataType) int {
	if e, ok := t.(arrow.ExtensionType); ok {
		t = e.StorageType()
	}
	if d, ok := t.(*arrow.DictionaryType); ok {
		return 1 + dictionariesIn(d.ValueType)
	}
	deepest := 0
	if nested, ok := t.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			deepest = max(deepest, dictionariesIn(f.Type))
		}
	}
	return deepest
}

// withOwnDictionaries is batch with dictionaries that no other batch has. The
// values are not copied. The caller owns the result and must release it; batch
// stays its reader's. Metadata of the batch is kept.
func withOwnDictionaries(batch arrow.RecordBatch) arrow.RecordBatch {
	columns := make([]arrow.Array, batch.NumCols())
	for i, c := range batch.Columns() {
		data := ownData(c.Data())
		columns[i] = array.MakeFromData(data)
		data.Release()
		defer columns[i].Release()
	}
	var metadata arrow.Metadata
	if with, ok := batch.(arrow.RecordBatchWithMetadata); ok {
		metadata = with.Metadata()
	}
	return array.NewRecordBatchWithMetadata(batch.Schema(), columns, batch.NumRows(), metadata)
}

// ownData is a copy of an array's description, down to its children and
// dictionaries. The buffers are shared, and retained by it. The caller must
// release it.
func ownData(d arrow.ArrayData) *array.Data {
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, c := range d.Children() {
		children[i] = ownData(c)
		defer children[i].Release()
	}
	own := array.NewData(d.DataType(), d.Len(), slices.Clone(d.Buffers()), children, d.NullN(), d.Offset())
	if values, _ := d.Dictionary().(*array.Data); values != nil { // the interface itself never is nil
		dictionary := ownData(values)
		defer dictionary.Release()
		own.SetDictionary(dictionary)
	}
	return own
}

// dictionaryBytes is what the dictionaries of a stream take in memory. They
// stay there to its end, or until they are replaced. A server that sends ever
// more dictionaries, or adds to one for ever, would otherwise fill the memory
// without a single row.
type dictionaryBytes struct {
	byID  map[int64]int64
	total int64
}

// add counts a message, of whatever kind. It returns how many bytes come with
// it: a dictionary that is added to is copied. limit bounds all dictionaries of
// the stream together, in bytes, decompressed. A dictionary that is replaced
// counts once: Arrow's reader drops the one before. A message that is none
// costs what its header and body say (messageSize).
//
// An error means that the stream must not be read on; the counts are then of no
// use.
func (d *dictionaryBytes) add(w messageSize, limit int64) (bytes int64, err error) {
	if !w.dictionary {
		return w.bytes, nil
	}
	before := d.byID[w.id]
	now := w.bytes
	if w.delta {
		now += before
	}
	if d.total += now - before; d.total > limit {
		return 0, fmt.Errorf("the dictionaries of one stream take more than %d bytes", limit)
	}
	if d.byID == nil {
		d.byID = make(map[int64]int64)
	}
	d.byID[w.id] = now
	return now, nil
}
