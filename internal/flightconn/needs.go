package flightconn

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// needs are how many arrays and buffers a batch of some types has at least, but for those that views
// count. Arrow's reader does not look how many a header has: for one that is missing it takes the bytes
// behind the last, which nobody has verified, and makes room for what these claim.
type needs struct{ nodes, buffers int }

func (n *needs) add(more needs) { n.nodes, n.buffers = n.nodes+more.nodes, n.buffers+more.buffers }

// needsOf are those of an array of type t.
func needsOf(t arrow.DataType) needs {
	n := needs{1, 0}
	switch t := t.(type) {
	case arrow.ExtensionType:
		return needsOf(t.StorageType())
	case *arrow.DictionaryType:
		return needs{1, 2} // of the indices
	case *arrow.NullType, *arrow.RunEndEncodedType:
	case *arrow.SparseUnionType, *arrow.StructType, *arrow.FixedSizeListType:
		n.buffers = 1
	case *arrow.ListViewType, *arrow.LargeListViewType:
		n.buffers = 3
	case arrow.BinaryViewDataType:
		n.buffers = 2
	case arrow.BinaryDataType:
		n.buffers = 3
	default: // lists, maps, dense unions, and what has a fixed width
		n.buffers = 2
	}
	if nested, ok := t.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			n.add(needsOf(f.Type))
		}
	}
	return n
}

// checkNeeds refuses a message that has less than its schema needs.
func (s *knownSchema) checkNeeds(m messageSize) error {
	n := s.needs
	if m.dictionary {
		n = s.dictionaryNeeds[m.id]
	}
	if buffers := n.buffers + m.record.variadicBuffers; m.batch && (m.record.nodes < n.nodes || m.record.buffers < buffers) {
		return fmt.Errorf("%w: %d arrays of %d, %d buffers of %d", errTooFew, m.record.nodes, n.nodes, m.record.buffers, buffers)
	}
	return nil
}

// learnNeeds looks what batches of the schema need, and its dictionaries, which have their numbers in
// the message alone. The message was verified and decoded.
func (s *knownSchema) learnNeeds(fields []arrow.Field) {
	for _, f := range fields {
		s.needs.add(needsOf(f.Type))
	}
	if s.dictionaries == 0 {
		return
	}
	s.dictionaryNeeds = map[int64]needs{}
	v := &verifier{buf: s.header, tablesLeft: len(s.header), bytesLeft: maxSchemaBytes + 4*len(s.header)}
	s.learnDictionaries(v, v.ref(v.table(v.offset(0)), 2), 1, fields)
}

// learnDictionaries goes through a vector of fields beside what they were decoded to.
func (s *knownSchema) learnDictionaries(v *verifier, t table, n int, fields []arrow.Field) {
	i := 0
	for field := range v.tables(t, n) {
		if i == len(fields) {
			return
		}
		of := fields[i].Type
		for e, ok := of.(arrow.ExtensionType); ok; e, ok = of.(arrow.ExtensionType) {
			of = e.StorageType()
		}
		if coded, ok := of.(*arrow.DictionaryType); ok {
			of = coded.ValueType
			s.dictionaryNeeds[v.int64Field(v.ref(field, 4), 0)] = needsOf(of)
		}
		if nested, ok := of.(arrow.NestedType); ok {
			s.learnDictionaries(v, field, 5, nested.Fields())
		}
		i++
	}
}
